"""Claim mend_3: everything that happened is found, in `logs list`, in `report` and on the page.

Work of every kind is done in one workspace: a run, evaluations, a comparison, an `Agent`, a LangChain agent under the
middleware, MCP clients (one of which is cut off) and a LangGraph store. Each episode (of the store each item) has to be
listed, counted in a report and found from the page's list of runs in Chromium. Beside it, as the control, the same work
and the same search with the source of commit 69e46c8. `--quick`: 4 tasks of each kind instead of 24.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.browser import chromium
from benchmarks.claim import Row, begin, exactly
from benchmarks.findings import AUDITED, audited_tree
from benchmarks.office_arms import folder
from benchmarks.table import ROOT
from benchmarks.visible import Found, Place, looked_for, made

TASKS, QUICK = 24, 4


def search(tree: Path, count: int) -> dict[str, Found]:
    """Work in a new workspace under the source at `tree`, and look for all of it."""
    with folder() as root:
        place = Place(root, tree)
        return looked_for(place, made(place, count))


def rows(now: dict[str, Found], then: dict[str, Found]) -> list[Row]:
    """Return the figures: what is missing now, and what the audited commit shows."""
    found = [
        Row(
            f"{kind}: not found in logs, report or page, of three looks each", each.missing, exactly(0), n=3 * each.made
        )
        for kind, each in now.items()
    ]
    for kind, each in then.items():
        found.append(Row(f"{kind}: found by {AUDITED}, of three looks each", each.found, n=3 * each.made))
    for name in ("listed", "reported", "shown"):
        total = sum(getattr(each, name) for each in then.values())
        found.append(Row(f"all kinds: {name} by {AUDITED}", total, n=sum(each.made for each in then.values())))
    return found


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("mend_3_visible", __doc__)
    if chromium() is None:
        raise SystemExit("no Chromium: install Debian's `chromium`, or name one in EVOLVE_CHROMIUM")
    count = QUICK if claim.quick else TASKS
    now = search(ROOT, count)
    for kind, each in now.items():
        print(kind, each, flush=True)
    with audited_tree() as tree:
        then = search(tree, count)
    claim.conclude(rows(now, then))


if __name__ == "__main__":
    main()
