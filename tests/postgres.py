"""A workspace's address on a PostgreSQL server, for tests: one server for each test process.

Where the machine has no server to start, tests that need one skip and say so; with EVOLVE_POSTGRES=required, as in CI,
they fail.
"""

from __future__ import annotations

import os

import pytest

from benchmarks.postgres_server import NoServer, new_workspace


def workspace_address(*, vector: bool = False) -> str:
    """Return an address where no workspace is yet; with `vector` the server has pgvector.

    Skips the test where there is no server.
    """
    try:
        return new_workspace(vector=vector)
    except NoServer as missing:
        if os.environ.get("EVOLVE_POSTGRES") == "required":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
