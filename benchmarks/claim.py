"""Stores what a claim measured. The only writer of `benchmarks/results/`; it measures nothing itself.

A claim script is `benchmarks/claims/<name>_<n>.py`:

    run = begin("loop_4", __doc__)          # reads --quick; a full run refuses a dirty tree before it starts
    run.record([Row("recall p95 at 10k records, ms", p95, at_most(5.0), n=2000)])

The commit is read when the run begins, so a result names the source that produced it even if others commit meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.table import PACKAGES, RESULTS, ROOT, print_rows

SOURCE = (*PACKAGES, "benchmarks", ":(exclude)benchmarks/results")


@dataclass(frozen=True)
class Target:
    """What a figure must reach: a text for people and the test that decides."""

    text: str
    met: Callable[[float], bool]


def at_least(bound: float) -> Target:
    """Return the target `measured >= bound`."""
    return Target(f">= {bound:g}", lambda measured: measured >= bound)


def at_most(bound: float) -> Target:
    """Return the target `measured <= bound`."""
    return Target(f"<= {bound:g}", lambda measured: measured <= bound)


def exactly(value: float) -> Target:
    """Return the target `measured == value`, for counts."""
    return Target(f"= {value:g}", lambda measured: measured == value)


@dataclass(frozen=True)
class Row:
    """One figure. `measured=None`: it could not be measured; `target=None`: it stands beside for reading."""

    claim: str
    measured: float | None
    target: Target | None = None
    n: int = 1
    ci: tuple[float, float] | None = None
    """95 % interval, in the unit of `measured`."""
    seed: int | None = None
    commit: str | None = None
    """Where it was measured; None = in this run."""

    @property
    def ok(self) -> bool | None:
        """Tell whether the target is met; None without a target. Not measured is not met."""
        if self.target is None:
            return None
        return self.measured is not None and self.target.met(self.measured)


@dataclass(frozen=True)
class Run:
    """One run of a claim script, bound to the commit at its start."""

    name: str
    quick: bool
    commit: str

    def record(self, rows: Sequence[Row]) -> None:
        """Print the rows; a full run also writes `benchmarks/results/<name>.json`."""
        stored = [self._stored(row) for row in rows]
        print_rows({self.name: stored}, title=f"{self.name}{' (quick: a small sample, not stored)' * self.quick}")
        if not self.quick:
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / f"{self.name}.json").write_text(json.dumps(stored, indent=2, ensure_ascii=False) + "\n")

    def conclude(self, rows: Sequence[Row]) -> None:
        """Record, and with `--quick` end the process: with exit code 1 when a target is missed."""
        self.record(rows)
        if self.quick:
            sys.exit(any(row.ok is False for row in rows))

    def _stored(self, row: Row) -> dict[str, Any]:
        return {
            "claim": row.claim,
            "target": row.target.text if row.target else None,
            "measured": row.measured,
            "ok": row.ok,
            "n": row.n,
            "ci": row.ci,
            "seed": row.seed,
            "commit": row.commit or self.commit,
            "cores": len(os.sched_getaffinity(0)),
            "command": f"python -m benchmarks.claims.{self.name}",
        }


def begin(name: str, description: str | None, arguments: Sequence[str] | None = None) -> Run:
    """Read the command line of a claim script. A full run on a tree with uncommitted source ends here."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small sample; prints, stores nothing")
    quick = parser.parse_args(arguments).quick
    dirty = git("status", "--porcelain", "--", *SOURCE)
    if dirty and not quick:
        parser.exit(
            2, f"Uncommitted source would make the figures unrepeatable:\n{dirty}\nCommit it, or pass --quick.\n"
        )
    return Run(name, quick, git("rev-parse", "HEAD"))


def git(*arguments: str) -> str:
    """Return what git prints in this repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.rstrip()
