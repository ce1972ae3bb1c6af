"""What is stored of the claims can be traced: each figure names a commit of this repository."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from benchmarks.table import MISSED, RESULTS, ROOT, markdown, stored
from docs.headlines import MOST


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)


def test_every_stored_figure_names_a_commit_that_exists() -> None:
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("this clone has no whole history to look the commits up in")
    stored = sorted(RESULTS.rglob("*.json"))
    named = {(path.relative_to(RESULTS).as_posix(), commit) for path in stored for commit in _commits(path.read_text())}
    assert {name for name, _ in named} >= {path.name for path in RESULTS.glob("*.json")}
    assert [each for each in sorted(named) if git("cat-file", "-e", f"{each[1]}^{{commit}}").returncode] == []


def test_the_readme_says_on_which_source_each_claim_was_measured() -> None:
    overview = (ROOT / "docs" / "results.md").read_text()
    for path in RESULTS.glob("*.json"):
        (row,) = [line for line in overview.splitlines() if line.startswith(f"| `{path.stem}` |")]
        assert all(commit[:7] in row for commit in _commits(path.read_text())), row
    shown = re.findall(r"\| `(\w+)` ([0-9a-f]{7}) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(shown) == MOST
    for claim, commit in shown:
        (path,) = RESULTS.glob(f"{claim}_*.json") if len(claim.split("_")) == 2 else RESULTS.glob(f"{claim}.json")
        assert commit in {each[:7] for each in _commits(path.read_text())}


def test_a_missed_target_says_why_in_its_row() -> None:
    shown = markdown(stored()).splitlines()
    for name, figures in json.loads(MISSED.read_text()).items():
        for figure, why in figures.items():
            (row,) = [line for line in shown if line.startswith(f"| {name} | {figure} |")]
            assert row.endswith(f"| no: {why} |") or not row.endswith("| no |")


def _commits(text: str) -> set[str]:
    data = json.loads(text)
    rows = data if isinstance(data, list) else [data]
    return {row["commit"] for row in rows if isinstance(row, dict) and "commit" in row}
