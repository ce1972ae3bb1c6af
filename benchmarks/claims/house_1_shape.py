"""Claim house_1: the tree has no circles, no upward arrows, few fragments, few names twice, no long file, few keys.

Everything is counted by `benchmarks/shape.py`, which anyone can run. The control is the audited commit, counted by the
same script in the same run: what it meets there already has no target here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.claim import Row, Target, at_most, begin, exactly
from benchmarks.findings import AUDITED, audited_tree
from benchmarks.table import ROOT

TARGETS: dict[str, Target] = {
    "circles": exactly(0),
    "upward arrows": exactly(0),
    "fragments": at_most(15),
    "duplicate basenames": at_most(25),
    "files above 500 lines": exactly(0),
    "lines": at_most(40_000),
    "keys": at_most(80),
    "keys that nobody sets": exactly(0),
    "modules with SQL outside memory": exactly(0),
    "strings that name our own modules": exactly(0),
}


def counted(tree: Path) -> dict[str, list[str]]:
    """Return what the script counts in a tree, in a process of its own: it reads that tree's packages."""
    command = [sys.executable, str(Path(ROOT) / "benchmarks" / "shape.py"), str(tree)]
    return json.loads(subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout)


def figure(what: str, found: list[str]) -> float:
    """Return one figure: how many were found, of lines how many there are in all modules together."""
    return sum(int(each.split()[0]) for each in found) if what == "lines" else len(found)


def main() -> None:
    """Measure and record; a quick run is the whole."""
    claim = begin("house_1_shape", __doc__)
    now = counted(Path(ROOT))
    with audited_tree() as tree:
        before = counted(tree)
    missed = {what for what, target in TARGETS.items() if not target.met(figure(what, before[what]))}
    rows = [
        Row(what, figure(what, now[what]), target if what in missed else None, n=len(now["lines"]))
        for what, target in TARGETS.items()
    ]
    rows += [
        Row(f"{what}, {AUDITED} (control)", figure(what, before[what]), n=len(before["lines"])) for what in TARGETS
    ]
    claim.conclude(rows)


if __name__ == "__main__":
    main()
