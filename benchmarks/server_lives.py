"""Processes of claim scale_2: the command itself, the model of its workers, the network to the server.

python -m benchmarks.server_lives run|resume        in the folder of a workspace
python -m benchmarks.server_lives network FROM TO   hand on what comes to one socket to another
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from benchmarks.lives import Noted
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import make_worker

if TYPE_CHECKING:
    from evolve.config.model import PolicySection

LATENCY_S = 0.05
BEAT_SECONDS = 0.5
"""Of `evolve.loop.executors.cluster`: a worker that hangs is killed after 15 s."""
RUN_ID = "01SCALE2SCALE2SCALE2SCALE2"
"""Every run's: gates draw their tasks by it."""
_BYTES = 65536


def noted_worker(section: PolicySection) -> Noted:
    """Return the office's worker for the deployment and the file of calls that `section.model` names."""
    deployment, _, file = section.model.partition(":")
    return Noted(make_worker(Office(OfficeConfig(deployment=int(deployment))), LATENCY_S), Path(file))


async def network(listening: str, server: str) -> None:
    """Hand on everything between clients and the server until this process is stopped."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_unix_connection(server)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    async with await asyncio.start_unix_server(handle, listening) as listener:
        await listener.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


def main() -> None:
    """Do what the first argument says."""
    what, *more = sys.argv[1:]
    if what == "network":
        asyncio.run(network(*more))
        return
    from evolve.cli.main import main as command

    sys.argv = ["evolve", what]
    beat = patch("evolve.loop.executors.cluster.BEAT_SECONDS", BEAT_SECONDS)
    with patch("evolve.loop.session.new_id", lambda: RUN_ID), beat:
        command()


if __name__ == "__main__":
    main()
