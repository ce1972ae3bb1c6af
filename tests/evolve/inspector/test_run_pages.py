"""Pages of runs: what the overview leads with, what lists show of a run, filters, and two runs side by side.

R1  the overview leads with held-out success with memory and without, each with its interval, and a history over runs
R2  a short run does not replace the curve of a long one
R3  a run is listed with name, kind, date, tags, tokens; an evaluation has its tasks; filters let through what fits
R4  two runs stand side by side, with the tasks that ended differently and the settings that differ
R5  a date stands beside every id of a run
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evolve.command import evolve, evolve_json
from tests.evolve.inspector.conftest import Visitor, opened
from tests.evolve.inspector.test_clear_pages import charts

DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d"


@pytest.fixture(scope="module")
def once_measured(once_learned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace with a learning run, an evaluation, and a run of three tasks."""
    folder = Path(shutil.copytree(once_learned, tmp_path_factory.mktemp("measured") / "workspace"))
    evolve(folder, "eval", "--limit", "10", "--set", "controls.no_memory=1.0")
    evolve(folder, "run", "--limit", "3", "--set", "run.skip=16")
    return folder


@pytest.fixture
def measured(once_measured: Path) -> Iterator[Visitor]:
    with opened(once_measured) as found:
        yield found


def text(page: str) -> str:
    """Return what a page says, without its tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_the_overview_leads_with_held_out_success(measured: Visitor) -> None:
    page = measured.text("/")
    said = text(page)
    assert re.search(r"\d+ % held-out, with memory \d+ % to \d+ % \( 95 % \), 10 tasks", said)
    assert re.search(r"\d+ % held-out, without memory \d+ % to \d+ % \( 95 % \), \d+ tasks", said)
    assert page.index("held-out, with memory") < page.index("first half")
    history = charts(page)[0]
    assert history["x"] == [1, 2, 3]
    assert history["series"][0]["label"] == "held-out, with memory"


def test_a_short_run_does_not_replace_a_long_curve(measured: Visitor) -> None:
    page = measured.text("/")
    (curve,) = [each for each in charts(page) if each["title"] == "Tasks solved"]
    assert curve["x"] == list(range(1, 17))
    assert "too short for a curve" in page


def test_a_run_is_listed_with_what_it_was(measured: Visitor) -> None:
    page = measured.text("/runs")
    said = text(page)
    assert re.search(rf"eval {DATE} .*? eval {DATE} done", said)
    assert len(re.findall(r"<td[^>]*>learn", page)) == 2
    exam = measured.first("/runs?kind=eval", "runs")
    assert "No task is done yet" not in measured.text(exam)
    assert len(re.findall(r'href="/episodes/', measured.text(exam))) >= 10


def test_runs_are_filtered(measured: Visitor) -> None:
    def listed(query: str) -> int:
        return len(re.findall(r'<td data-label="run">', measured.text(f"/runs?{query}")))

    assert listed("") == 3
    assert listed("kind=eval") == 1
    assert listed("kind=learn&name=nosuch") == 0
    assert listed("since=2020-01-01&until=2020-02-01") == 0
    assert listed("since=2020-01-01&until=&tag=&name=") == 3
    measured.text("/runs?kind=nosuch", 400)
    measured.text("/runs?since=yesterday", 422)


def test_names_and_tags_are_shown_and_found(learned: Path) -> None:
    evolve(learned, "run", "--limit", "1", "--set", "run.name=nightly <b>", "--set", 'run.tags=["cheap","night"]')
    with opened(learned) as visitor:
        page = visitor.text("/runs?tag=night")
        assert "nightly &lt;b&gt;" in page
        assert '<span class="mark">cheap</span>' in page
        assert "nightly &lt;b&gt;" in visitor.text("/runs?name=NIGHTLY")
        assert "nightly &lt;b&gt;" not in visitor.text("/runs?tag=nosuch")
        assert "nightly &lt;b&gt;" in visitor.text("/")


def test_two_runs_stand_side_by_side(measured: Visitor) -> None:
    runs = dict.fromkeys(re.findall(r'href="(/runs/[^"]+)"', measured.text("/runs?kind=learn")))
    short, long = (path.rpartition("/")[2] for path in runs)
    page = measured.text(f"/compare?run={short}&run={long}")
    said = text(page)
    assert said.index(long) < said.index(short)
    assert "They did no task in common" in page
    assert "run.skip" in page
    (exam,) = dict.fromkeys(re.findall(r'href="/runs/([^"]+)"', measured.text("/runs?kind=eval")))
    measured.text(f"/compare?run={exam}&run={long}")
    measured.text(f"/compare?run={exam}", 400)
    measured.text(f"/compare?run={exam}&run=nosuch", 404)


def test_tasks_that_ended_differently_are_named(learned: Path) -> None:
    evolve(learned, "run", "--limit", "8", "--set", "playbook.enabled=false", "--set", "run.name=plain")
    report = evolve_json(learned, "report")
    with opened(learned) as visitor:
        runs = dict.fromkeys(re.findall(r'href="/runs/([^"]+)"', visitor.text("/runs")))
        page = visitor.text(f"/compare?{'&'.join(f'run={run}' for run in runs)}")
    assert report["run_id"] in page
    assert "playbook.enabled" in page
    assert "Of 8 tasks the second run gained" in text(page)


def test_a_date_stands_beside_the_id_of_a_run(measured: Visitor) -> None:
    episode = measured.text(measured.first(measured.first("/runs", "runs"), "episodes"))
    assert re.search(rf"run [0-9A-Z]{{26}} {DATE}", text(episode))
    record = measured.text(measured.first("/playbook", "records"))
    assert re.search(rf"in run [0-9A-Z]{{26}} {DATE}", text(record))
    for path in ("/playbook", "/runs", "/snapshots"):
        assert re.search(DATE, measured.text(path)), path
