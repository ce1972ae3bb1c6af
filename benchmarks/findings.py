"""Run the tests that hold the audit's findings, here and on the source that the audit read.

`benchmarks/data/findings.jsonl` names a test for each finding. `outcomes` runs such tests in this tree or on another
commit. There, the tests of this tree are laid over that commit's source, so the same test is asked about both.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.table import ROOT
from memory.records import Frozen

FILE = ROOT / "benchmarks" / "data" / "findings.jsonl"
AUDITED = "69e46c8"
"""The commit that the audit read."""
ROWS = (
    *(f"A{at}" for at in range(1, 12)),
    *("B13", "B14"),
    *(f"D{at}" for at in range(1, 17)),
    *(f"E{at}" for at in range(1, 16)),
)
"""Rows of the audit that the claim `mend_2` answers for."""
PASSED, FAILED, SKIPPED, UNIMPORTABLE, MISSING = "passed", "failed", "skipped", "cannot import", "not found"
_PLUGIN = Path(__file__).with_name("pytest_outcomes.py")


class Finding(Frozen):
    """One finding, or a part of one: `A8.2` belongs to row `A8`."""

    id: str
    finding: str
    tests: tuple[str, ...]

    @property
    def row(self) -> str:
        return self.id.partition(".")[0]


def load(file: Path = FILE) -> tuple[Finding, ...]:
    """Return the findings in the audit's order."""
    found: list[Finding] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.strip():
            item = json.loads(line)
            tests = [item["test"]] if isinstance(item["test"], str) else item["test"]
            found.append(Finding(id=item["id"], finding=item["finding"], tests=tuple(tests)))
    return tuple(sorted(found, key=lambda each: (each.id[0], int(each.row[1:]), each.id, each.finding)))


def outcomes(root: Path, nodes: Iterable[str]) -> dict[str, str]:
    """Return test id -> outcome in the tree at `root`; a test without its parameters stands for all of them.

    One process runs the tests of one file, since a file that cannot be imported ends its process. So does a
    `conftest.py` that cannot be imported: its files cannot be either. Raises `RuntimeError` for a process that reports
    nothing for another reason.
    """
    by_file: dict[str, list[str]] = {}
    for node in dict.fromkeys(nodes):
        by_file.setdefault(node.partition("::")[0], []).append(node)
    found: dict[str, str] = {}
    for file, wanted in by_file.items():
        seen, imported = _run(root, wanted)
        for node in wanted:
            results = [outcome for name, outcome in seen.items() if name == node or name.startswith(f"{node}[")]
            found[node] = _worst(results) if results else (MISSING if imported else UNIMPORTABLE)
        print(file, [found[node] for node in wanted], flush=True)
    return found


@contextmanager
def audited_tree(commit: str = AUDITED) -> Generator[Path]:
    """Yield a checkout of `commit` under the tests of this tree, and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="evolve-audited-") as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], cwd=ROOT, check=True)
        try:
            shutil.rmtree(tree / "tests")
            shutil.copytree(ROOT / "tests", tree / "tests", ignore=shutil.ignore_patterns("__pycache__"))
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def _run(root: Path, nodes: Sequence[str]) -> tuple[dict[str, str], bool]:
    """Return the outcome of each test that ran, and whether its file could be imported."""
    with tempfile.TemporaryDirectory(prefix="evolve-outcomes-") as folder:
        shutil.copy(_PLUGIN, folder)
        report = Path(folder) / "outcomes.json"
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(root), folder)),
            "EVOLVE_OUTCOMES": str(report),
            "OMP_NUM_THREADS": "1",
        }
        apart = ("-p", "no:cacheprovider", "-p", "no:slipcover")  # nobody else's coverage is theirs
        command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_outcomes", *apart, *nodes]
        ran = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, errors="replace", timeout=1800)
        if report.exists():
            read: Any = json.loads(report.read_text())
            return read["tests"], read["imported"]
    if "ImportError while loading conftest" in ran.stderr:
        return {}, False
    raise RuntimeError(
        f"pytest ended with code {ran.returncode} and without a report: {(ran.stdout + ran.stderr)[-2000:]}"
    )


def _worst(results: Sequence[str]) -> str:
    return next((each for each in (FAILED, SKIPPED) if each in results), PASSED)
