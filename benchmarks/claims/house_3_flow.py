"""Claim house_3: data has one form. A batch is loaded once and handed through the nodes, a change is parsed once.

Counted is one run by `benchmarks/flow.py`: sixteen tasks of the office and nine episodes of a gate, no model. The
control is the audited commit, which does the same work under the same script in the same run. What must be a third of
it are statements, reads and parses. Statements that store a reply, an episode or a reflection stand beside: each is
kept before it is used, so that a killed run loses none, in a transaction of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.claim import Row, at_most, begin, exactly
from benchmarks.findings import AUDITED, audited_tree
from benchmarks.flow import CHECKPOINTS, COUNTED, STATEMENTS, TASKS, TEXTS
from benchmarks.table import ROOT

SHARE = 1 / 3
"""Of the audited commit's count, that is left at most."""
KEPT = ("put_reply", "batch.py:add", "nodes/act.py:act", "_reflect", "evaluator.py:_run")
"""Ends of the callers that store what happened."""


def counted(tree: Path, rounds: int) -> dict[str, Any]:
    """Return what a run of a tree counts, in a process of its own: it runs that tree's packages."""
    script = str(Path(ROOT) / "benchmarks" / "flow.py")
    command = [sys.executable, script, str(tree), "--rounds", str(rounds)]
    found = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    if found.returncode:
        raise RuntimeError(f"{' '.join(command)}: {found.stderr[-2000:]}")
    return json.loads(found.stdout)


def rows(now: dict[str, Any], before: dict[str, Any]) -> list[Row]:
    """Return the figures of this tree beside those of the audited commit."""
    differing = [what for what in before["held"] if now["held"][what] != before["held"][what]]
    found = [Row("parts of the work that differ from the control", len(differing), exactly(0), n=len(before["held"]))]
    for what in COUNTED:
        new, old = total(now, what), total(before, what)
        found.append(Row(f"{what}, share of {AUDITED}", new / old, at_most(SHARE), n=TASKS))
        found += [Row(what, new, n=TASKS), Row(f"{what}, {AUDITED} (control)", old, n=TASKS)]
    for name, each in (("", now), (f", {AUDITED} (control)", before)):
        found.append(Row(f"{STATEMENTS} that store what happened{name}", kept(each), n=TASKS))
        found.append(Row(f"{CHECKPOINTS}{name}", total(each, CHECKPOINTS), n=TASKS))
        found.append(Row(f"milliseconds a task{name}", each["ms a task"], n=TASKS))
    return found


def total(measured: dict[str, Any], what: str) -> int:
    """Return a count over all callers."""
    return sum(measured["by"][what].values())


def kept(measured: dict[str, Any]) -> int:
    """Return the statements of those that store what happened."""
    return sum(count for caller, count in measured["by"][STATEMENTS].items() if caller.endswith(KEPT))


def show(measured: dict[str, Any], lines: int = 12) -> None:
    """Print what dominates."""
    for what in (*COUNTED, TEXTS):
        print(f"\n{what}: {total(measured, what)}")
        for name, count in sorted(measured["by"][what].items(), key=lambda each: -each[1])[:lines]:
            print(f"  {count:6} {name}")


def main() -> None:
    """Measure and record; a quick run times fewer rounds."""
    claim = begin("house_3_flow", __doc__)
    rounds = 1 if claim.quick else 7
    now = counted(Path(ROOT), rounds)
    with audited_tree() as tree:
        before = counted(tree, rounds)
    show(now)
    claim.conclude(rows(now, before))


if __name__ == "__main__":
    main()
