"""A Ray cluster of this machine, for claims and tests: its nodes are processes, with a processor each."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 10**8}
"""What a node has."""


@contextmanager
def started(nodes: int) -> Generator[Any]:
    """Have a cluster of so many nodes; yield Ray's own handle of it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read once, when ray is imported
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args=NODE)
    try:
        for _ in range(nodes - 1):
            made.add_node(**NODE)
        yield made
    finally:
        made.shutdown()


@contextmanager
def cluster(nodes: int) -> Generator[None]:
    """Have a cluster of so many nodes, and be connected to it."""
    with started(nodes) as made:
        import ray

        ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
        try:
            yield
        finally:
            ray.shutdown()


def workers(variable: str = "", name: str = "Worker") -> list[int]:
    """Return the processes that do episodes, as Ray titles them; with a `variable` (`NAME=value`) those with it.

    `name`: the class of the workers.
    """
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            titled = (entry / "cmdline").read_bytes().startswith(f"ray::{name}".encode())
            if titled and (not variable or variable.encode() in (entry / "environ").read_bytes().split(b"\0")):
                found.append(int(entry.name))
    return sorted(found)
