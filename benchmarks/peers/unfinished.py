"""Pack unfinished arms, so that a measurement of hours can go on on another machine.

    python -m benchmarks.peers.unfinished HOME CELLS        pack what HOME/seed-N/ARM/ hold

An arm with a cell needs none of it any more, and its files go. A packed file that holds more than the one here stays.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = "unfinished"
FILES = ("calls-*.jsonl", "state.json")


def unpack(cells: Path, arm: str, seed: int, folder: Path) -> None:
    """Write what was packed of an arm into its folder, where that lacks it."""
    for file in (cells / FOLDER).glob(f"{arm}-{seed}.*.gz"):
        target = folder / file.name.removeprefix(f"{arm}-{seed}.").removesuffix(".gz")
        if not target.exists():
            target.write_bytes(gzip.decompress(file.read_bytes()))


def pack(home: Path, cells: Path) -> list[Path]:
    """Pack the arms of `home` that have no cell, and remove what is packed of those that have; return the files."""
    target = cells / FOLDER
    target.mkdir(parents=True, exist_ok=True)
    for file in (each for pattern in FILES for each in home.glob(f"seed-*/*/{pattern}")):
        named = f"{file.parent.name}-{file.parents[1].name.removeprefix('seed-')}"
        packed, content = target / f"{named}.{file.name}.gz", file.read_bytes()
        less = packed.exists() and len(gzip.decompress(packed.read_bytes())) > len(content)
        if not less and not (cells / f"{named}.json").exists():
            packed.write_bytes(gzip.compress(content, mtime=0))
    packed_files = sorted(target.glob("*.gz"))
    for file in packed_files:
        if (cells / f"{file.name.split('.')[0]}.json").exists():
            file.unlink()
    return [file for file in packed_files if file.exists()]


def main(arguments: Sequence[str]) -> int:
    """Pack; return the exit status."""
    home, cells = map(Path, arguments)
    for file in pack(home, cells):
        print(f"{file}: {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
