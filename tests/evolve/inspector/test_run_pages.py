"""Pages of runs: what the overview leads with, what lists show of a run, filters, and two runs side by side.

R1  the overview leads with held-out success with memory and without, each with its interval, and a history over runs
R2  a short run does not replace the curve of a long one
R3  a run is listed with name, kind, date, tags, tokens; an evaluation has its tasks; filters let through what fits
R4  two runs stand side by side, with the tasks that ended differently and the settings that differ
R5  a date stands beside every id of a run
R6  a verdict shows each arm that ran something, task by task
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from evolve.config.file import load_config
from evolve.gates import batch_screen, canary, utility
from evolve.gates.decisions import Round, verdict_of
from evolve.gates.gate_events import VERDICT
from evolve.loop.assembly import open_store
from evolve.statistics.decision import Decision
from memory.records import DeltaOp, Event, Op
from tests.evolve.command import evolve, evolve_json, settings
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


TASKS = tuple(f"t{at}" for at in range(8))
ALL: dict[str, bool | None] = dict.fromkeys(TASKS, True)
NONE: dict[str, bool | None] = dict.fromkeys(TASKS, False)
SOME: dict[str, bool | None] = {"t0": True, "t1": None}


@pytest.mark.parametrize(
    ("gate", "decision", "heads", "first", "marks"),
    [
        (
            "utility",
            utility.decide(utility.UtilityTrial(cohort=TASKS, without=(NONE, NONE), with_change=(ALL, ALL))),
            ["Without it, 1", "With it, 1", "Without it, 2", "With it, 2"],
            ["failed", "solved", "failed", "solved"],
            {"solved": 16, "failed": 16},
        ),
        (
            "canary",
            canary.decide(canary.CanaryTrial(cohort=TASKS, base={}, candidate=ALL, again={})),
            ["With it"],
            ["solved"],
            {"solved": 8},
        ),
        (
            "batch_screen",
            batch_screen.decide(batch_screen.ScreenTrial(cohort=TASKS, base=SOME, candidate=SOME)),
            ["Without the change", "With it"],
            ["solved", "solved"],
            {"solved": 2, "missing": 2, "not run": 12},
        ),
    ],
)
def test_a_verdict_shows_a_mark_of_each_arm_that_ran(
    gate: str, decision: Decision, heads: list[str], first: list[str], marks: dict[str, int], tmp_path: Path
) -> None:
    folder = settings(tmp_path)
    op = DeltaOp(op=Op.ADD, op_id="a", payload={"content": "Pay in cents."})
    said = verdict_of(gate, [op], [Round(("a",), decision)], {})
    with open_store(load_config(folder / "evolve.toml")) as store:
        event = Event(type=VERDICT, namespace="default", run_id="run", data=said.model_dump(mode="json"))
        seq = store.append(event).seq
    with opened(folder) as visitor:
        (table,) = re.findall(r"<table>.*?</table>", visitor.text(f"/verdicts/{seq}"), re.DOTALL)
    head, *rows = re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
    assert [text(each) for each in re.findall(r"<th>.*?</th>", head)] == ["Task", *heads]
    cells = [[text(each) for each in re.findall(r"<td[^>]*>.*?</td>", row)] for row in rows]
    assert cells[0] == ["t0", *first]
    assert [row[0] for row in cells] == list(TASKS)
    assert {len(row) for row in cells} == {1 + len(heads)}
    assert Counter(mark for row in cells for mark in row[1:]) == marks
