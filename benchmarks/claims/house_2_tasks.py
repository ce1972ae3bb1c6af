"""Claim house_2: an environment, an embedder, an estimator, a gate and a kind of memory are one added file each.

The files are those that CONTRIBUTING.md shows. Each is put into a copy of the tree, alone, and its contract suite is
run: it must find the new member and pass. Controls: the same suite without the file, which must know nothing of it, and
with a fault in the file, which the suite must notice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.claim import Row, at_least, begin, exactly
from benchmarks.mutants import copy_tree
from benchmarks.steady import Ran, read
from benchmarks.table import ROOT
from docs.blocks import FENCE

PAGE = Path(ROOT) / "CONTRIBUTING.md"


class Member(NamedTuple):
    """One of the files that the page shows."""

    file: str
    suites: tuple[str, ...]
    """Its contract suite."""
    right: str
    """A piece of the file,"""
    wrong: str
    """and what makes it faulty."""


MEMBERS = (
    Member(
        "evolve/environments/shout.py",
        ("tests/contracts/test_environments.py",),
        "self.said == self.word.upper()",
        "True",
    ),
    Member(
        "memory/embedders/letters.py",
        ("tests/contracts/test_embedders.py",),
        "return vectors / norms",
        "return vectors",
    ),
    Member(
        "policies/rl/advantages/halves.py",
        ("tests/policies/rl/test_advantage_properties.py", "tests/policies/rl/test_slots.py"),
        "[means[group] for group in episodes.groups]",
        "[0.5 for group in episodes.groups]",
    ),
    Member(
        "evolve/gates/sentences.py",
        ("tests/contracts/test_learning_gates.py",),
        "if op.op_id not in rejected",
        "if op.payload",
    ),
    Member(
        "playbooks/kinds/contact.py",
        ("tests/contracts/test_kinds.py",),
        'return f"{self.who}: {self.how}"',
        'return ""',
    ),
)


def sources() -> dict[str, str]:
    """Return the files that the page shows, by path."""
    return {file: body for _, file, body in FENCE.findall(PAGE.read_text(encoding="utf-8")) if file}


def suite(tree: Path, member: Member, *, alone: bool = True) -> Ran:
    """Return how a member's contract suite went in a tree: the tests that name it, or without `alone` all of them."""
    written = tree / "contract.xml"
    written.unlink(missing_ok=True)
    chosen = ["-k", Path(member.file).stem] if alone else []
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={written}"]
    environ = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, *member.suites, *chosen], cwd=tree, env=environ, capture_output=True, check=False)
    ran = read(written)
    written.unlink()
    return ran


def files(tree: Path) -> dict[str, bytes]:
    """Return the source and documentation of a tree, by path."""
    found = (path for path in tree.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in found if path.suffix in (".py", ".md")}


def rows(member: Member, source: str, *, quick: bool) -> list[Row]:
    """Return what came of adding one file."""
    what = member.file.rpartition("/")[0]
    with TemporaryDirectory(prefix="evolve-newcomer-") as folder:
        tree = Path(folder, "tree")
        copy_tree(Path(ROOT), tree)
        before, without = files(tree), suite(tree, member)
        (tree / member.file).write_text(source, encoding="utf-8")
        found = suite(tree, member, alone=quick)
        own = found if quick else suite(tree, member)
        after = files(tree)
        touched = {name for name in {*before, *after} if before.get(name) != after.get(name)} - {member.file}
        made = [
            Row(f"{what}: files touched beside the one that is added", len(touched)),
            Row(f"{what}: tests of its contract suite that ran on it", own.tests, at_least(1)),
            Row(f"{what}: failures of the suite", found.failures, exactly(0), n=found.tests),
            Row(f"{what}: tests that name it without the file (control)", without.tests, exactly(0)),
        ]
        if not quick:
            assert member.right in source, f"{PAGE.name} says {member.file} in other words; look for {member.right!r}"
            (tree / member.file).write_text(source.replace(member.right, member.wrong), encoding="utf-8")
            faulty = suite(tree, member)
            made.append(
                Row(f"{what}: failures with a fault in it (control)", faulty.failures, at_least(1), n=own.tests)
            )
        return made


def main() -> None:
    """Measure and record. With `--quick` the tests of the new members alone, and no fault."""
    claim = begin("house_2_tasks", __doc__)
    shown = sources()
    claim.conclude([row for member in MEMBERS for row in rows(member, shown[member.file], quick=claim.quick)])


if __name__ == "__main__":
    main()
