"""What a server has said to arms that are not done, packed: a measurement of hours goes on on another machine.

    python -m benchmarks.peers.unfinished HOME CELLS        pack what HOME/seed-N/ARM/calls-*.jsonl hold

An arm with a cell needs none of it any more, and its file goes.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = "unfinished"


def unpack(cells: Path, arm: str, seed: int, folder: Path) -> None:
    """Write what was packed of an arm into its folder; nothing, where nothing was."""
    for file in (cells / FOLDER).glob(f"{arm}-{seed}.calls-*.jsonl.gz"):
        (folder / file.name.removeprefix(f"{arm}-{seed}.").removesuffix(".gz")).write_bytes(
            gzip.decompress(file.read_bytes())
        )


def pack(home: Path, cells: Path) -> list[Path]:
    """Pack the arms of `home` that have no cell, and remove what is packed of those that have; return the files."""
    target = cells / FOLDER
    target.mkdir(parents=True, exist_ok=True)
    for file in home.glob("seed-*/*/calls-*.jsonl"):
        named = f"{file.parent.name}-{file.parents[1].name.removeprefix('seed-')}"
        if not (cells / f"{named}.json").exists():
            (target / f"{named}.{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    packed = sorted(target.glob("*.gz"))
    for file in packed:
        if (cells / f"{file.name.split('.')[0]}.json").exists():
            file.unlink()
    return [file for file in packed if file.exists()]


def main(arguments: Sequence[str]) -> int:
    """Pack; return the exit status."""
    home, cells = map(Path, arguments)
    for file in pack(home, cells):
        print(f"{file}: {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
