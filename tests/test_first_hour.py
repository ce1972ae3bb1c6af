"""The README as a newcomer follows it: its text, exactly, shows an agent that visibly improves (audit A1)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from docs.blocks import run_page, shell_commands
from evolve.config.file import load_config
from evolve.loop.assembly import open_store
from evolve.loop.report import Report, make_report
from tests.forked import forked

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
GAIN = 0.30
"""Least difference of the held-out tasks solved with what was learned and without."""


def test_the_readme_shows_an_agent_that_improves(tmp_path: Path) -> None:
    for ran in run_page(README, ROOT, tmp_path, start=forked):
        assert ran.ok, f"{ran.command}\n{ran.said}"
    run, *evaluations = reports(tmp_path)
    assert run.first_half is not None
    assert run.second_half is not None
    assert run.control is not None
    assert run.learned > 0
    assert run.second_half.tgc > run.first_half.tgc
    assert run.second_half.tgc > run.control.tgc
    exams = [each for report in evaluations for each in report.evaluations]
    found = {each.arm: each for each in sorted(exams, key=lambda each: len(each.passed))}
    known, unknown = found["main"], found["no_memory"]
    assert set(known.passed) == set(unknown.passed)
    assert known.metrics.tgc - unknown.metrics.tgc >= GAIN


def test_the_readme_measures_the_same_tasks_with_and_without_memory() -> None:
    evaluations = [command.partition("#")[0].split() for command in shell_commands(README) if " eval " in command]
    assert len(evaluations) == 2
    with_memory, without = evaluations
    assert without == [*with_memory, "--no-memory"]


def test_the_readme_says_how_to_install_and_what_its_figures_mean() -> None:
    text = " ".join(README.read_text().split())
    assert "pip install '.[" in text
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.search(r"further extras are ([^.]*)\.", text)
    assert named is not None
    assert set(re.findall(r"`(\w+)`", named[1])) <= set(extras)
    for term in ("TGC (", "SGC (", "coverage is", "shown the mean number"):
        assert term in text


def reports(folder: Path) -> list[Report]:
    """Return the reports of a folder's runs, in order."""
    with open_store(load_config(folder / "evolve.toml"), read_only=True) as store:
        return [make_report(store, run["run_id"]) for run in store.runs()]
