"""Claim inspect_1: the page works in a real browser, on a real workspace.

The demo's workspace (pocket, default gates) is made anew. Chromium then opens every page of `evolve ui`; a page must
show a run that begins meanwhile; a waiting change is accepted by keyboard, and the next run must put it into prompts; a
rollback must make the oldest snapshot the live one. `--quick`: 8 tasks instead of 60, the scripted worker.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.browser import chromium
from benchmarks.claim import Row, at_least, begin, exactly
from benchmarks.office_arms import folder
from benchmarks.walk import SCRIPTED, Walked, command, walk

ELSEWHERE = ("--limit", "8", "--set", "environment.deployment=1", "--set", 'gate.names=["static"]')
"""Tasks of another office: there is something new to learn."""
LATER = ("--limit", "16", "--set", "run.skip=8")
"""The scripted worker knows its own office only: tasks that it has not done."""


def workspace(root: Path, *, quick: bool) -> Path:
    """Make the demo's workspace and let it learn."""
    if quick:
        (root / "evolve.toml").write_text(f"[run]\ntasks = 8\n{SCRIPTED}")
    else:
        subprocess.run([sys.executable, "-m", "evolve.cli.main", "init", str(root)], check=True, capture_output=True)
    command(root, "run")
    return root


def rows(walked: Walked) -> list[Row]:
    """Return the figures."""
    seen = walked.seen
    for text in (*seen.complaints, *seen.failed, *seen.foreign):
        print(text)
    return [
        Row("pages that were opened", walked.pages, at_least(16)),
        Row("errors on the console", len(seen.complaints), exactly(0), n=walked.pages),
        Row("requests that failed", len(seen.failed), exactly(0), n=walked.pages),
        Row("requests that left the machine's own page", len(seen.foreign), exactly(0), n=walked.pages),
        Row("a page showed a run that began elsewhere, without a reload", float(walked.live), exactly(1)),
        Row("a change was accepted by keyboard", float(bool(walked.accepted[0])), exactly(1)),
        Row("episodes of the next run whose prompt held it", walked.injected, at_least(1)),
        Row("a rollback made the snapshot live", float(walked.rolled_back), exactly(1)),
    ]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("inspect_1_walk", __doc__)
    if chromium() is None:
        raise SystemExit("no Chromium: install Debian's `chromium`, or name one in EVOLVE_CHROMIUM")
    with folder() as root:
        workspace(root, quick=claim.quick)
        learning = LATER if claim.quick else ELSEWHERE
        claim.conclude(rows(walk(root, learning=learning)))


if __name__ == "__main__":
    main()
