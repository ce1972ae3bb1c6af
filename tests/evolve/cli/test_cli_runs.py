"""Runs through the command: they learn, are reported, evaluated, reviewed, stopped, killed and taken up again.

R1  a report says what the journal says, and the same each time; the curve is a PNG
R2  an evaluation changes nothing and is counted against its own number of tasks
R3  with --review nothing is in a prompt before it was accepted
R4  a budget ends a run with exit code 3, an interrupt with 130; `resume` ends where an undisturbed run does
R5  the light verbs load no heavy package
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from evolve.config.file import load_config
from evolve.loop.assembly import open_store
from tests.evolve.command import (
    ROOT,
    TASKS,
    complaint,
    evolve,
    evolve_json,
    finish,
    invoke,
    one_sentence,
    settings,
    start,
)

HEAVY = [
    "torch",
    "langgraph",
    "chromadb",
    "transformers",
    "openai",
    "langchain_core",
    "sklearn",
    "scipy",
    "matplotlib",
    "plotext",
    "fastapi",
]
SLOW = '''
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import make_worker


def policy(section):
    """The worker, slow enough to be killed."""
    return make_worker(Office(OfficeConfig(deployment=3)), latency_s=0.1)
'''


def learned_text(folder: Path) -> list[Any]:
    """Return everything a run decided about the playbook, counters included."""
    return [{**row, "trust": None} for row in evolve_json(folder, "playbook", "list", "--all")]


def test_a_report_says_what_the_journal_says(learned: Path) -> None:
    report = evolve_json(learned, "report")
    assert (report["mode"], report["status"], len(report["curve"])) == ("online", "done", TASKS)
    assert report["learned"] == len(evolve_json(learned, "playbook", "list"))
    assert report["whole"]["tasks"] == TASKS
    assert report["first_half"]["tasks"] + report["second_half"]["tasks"] == TASKS
    assert report["second_half"]["tgc"] > report["control"]["tgc"]
    assert report["second_half"]["injected"] > 0 == report["control"]["injected"]
    assert evolve_json(learned, "report", report["run_id"]) == report
    text = evolve(learned, "report")
    assert "without memory" in text
    assert f"known before: 0, changes applied: {report['learned']}" in text
    assert "\x1b" not in text


def test_the_curve_is_a_picture(learned: Path, tmp_path: Path) -> None:
    evolve(learned, "report", "--plot", str(tmp_path / "curve.png"))
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    (own,) = (learned / ".evolve" / "runs").glob("*/curve.png")
    assert own.read_bytes().startswith(b"\x89PNG")


def test_a_run_is_reported_from_the_workspace_that_it_was_given(tmp_path: Path) -> None:
    folder = settings(tmp_path, tasks=4)
    for verb in (("run",), ("eval", "--limit", "2")):
        told = evolve_json(folder, *verb, "--set", "memory.workspace=elsewhere")
        assert told["status"] == "done"
    assert list((folder / "elsewhere" / "runs").glob("*/curve.png"))
    assert not (folder / ".evolve").exists()


def test_an_evaluation_changes_nothing_and_counts_its_own_tasks(learned: Path) -> None:
    before = learned_text(learned)
    result = invoke(learned, "eval", "--limit", "10")
    assert result.exit_code == 0
    assert "frozen, 10 tasks" in result.stderr
    assert "10/10: success" in result.stderr
    (run,) = evolve_json(learned, "logs", "list", "--kind", "eval")
    report = evolve_json(learned, "report", run["run"])
    (main, *_) = report["evaluations"]
    assert (report["mode"], main["split"], main["metrics"]["tasks"]) == ("frozen", "test_normal", 10)
    assert learned_text(learned) == before
    cold = invoke(learned, "eval", "--limit", "10", "--no-memory", "--split", "dev")
    assert "10/10: success" in cold.stderr
    (*_, run) = evolve_json(learned, "logs", "list", "--kind", "eval")
    (alone,) = evolve_json(learned, "report", run["run"])["evaluations"]
    assert (alone["split"], alone["arm"]) == ("dev", "no_memory")
    assert alone["metrics"]["tgc"] < main["metrics"]["tgc"]


def test_json_output_of_a_run_is_its_report(tmp_path: Path) -> None:
    folder = settings(tmp_path, tasks=2)
    result = invoke(folder, "run", "--json", "--seed", "7")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert (report["seed"], report["whole"]["tasks"]) == (7, 2)
    assert result.stderr == ""


def test_with_review_nothing_is_shown_before_it_was_accepted(tmp_path: Path) -> None:
    folder = settings(tmp_path, tasks=8)
    told = invoke(folder, "run", "--review")
    assert told.exit_code == 0
    assert "wait for `evolve review list`" in told.stderr
    assert evolve_json(folder, "playbook", "list") == []
    waiting = evolve_json(folder, "review", "list")
    assert len(waiting) >= 3
    first, second, third = (str(row["number"]) for row in waiting[:3])
    assert "from tasks: office-3/" in evolve(folder, "review", "show", first)
    assert evolve_json(folder, "review", "accept", first)["applied"] == 1
    evolve(folder, "review", "reject", second, "--reason", "too narrow")
    evolve(folder, "review", "edit", third, "In my own words.")
    rows = evolve_json(folder, "playbook", "list")
    assert [row["content"] for row in rows] == [waiting[0]["content"], "In my own words."]
    assert {row["trust"] for row in rows} == {"operator"}
    assert len(evolve_json(folder, "review", "list")) == len(waiting) - 3
    decisions = [row["decision"] for row in evolve_json(folder, "review", "list", "--all")[:3]]
    assert decisions == ["accepted", "rejected", "accepted"]
    assert "accepted already" in evolve_json(folder, "review", "reject", first, code=2)["error"]["message"]


def test_several_are_decided_together_or_none_is(tmp_path: Path) -> None:
    folder = settings(tmp_path, tasks=8)
    evolve(folder, "run", "--review")
    waiting = evolve_json(folder, "review", "list")
    first, second = (str(row["number"]) for row in waiting[:2])
    for verb in ("accept", "reject", "defer"):
        assert "no proposal '99999'" in complaint(folder, "review", verb, first, "99999", code=1)
        assert evolve_json(folder, "review", "list") == waiting
    assert evolve_json(folder, "review", "accept", first, first)["applied"] == 1
    assert "accepted already" in complaint(folder, "review", "reject", second, first, code=2)
    assert len(evolve_json(folder, "review", "list")) == len(waiting) - 1


def test_a_budget_ends_with_3_and_more_of_it_ends_the_run(tmp_path: Path, once_learned: Path) -> None:
    folder = settings(tmp_path, more="\n[budget]\ncalls = 40\n")
    stopped = invoke(folder, "run")
    assert stopped.exit_code == 3
    assert "resume" in stopped.stderr
    assert "calls" in stopped.stderr
    assert evolve_json(folder, "logs", "list")[0]["status"] == "stopped"
    settings(tmp_path)
    begun_before_a_key_was_renamed(folder)
    resumed = evolve_json(folder, "resume")
    assert resumed["status"] == "done"
    assert learned_text(folder) == learned_text(once_learned)


def test_run_with_resume_goes_on_with_the_unfinished_run_of_its_settings_or_begins_one(
    tmp_path: Path,
) -> None:
    folder = settings(tmp_path, more="\n[budget]\ncalls = 40\n")
    invoke(folder, "run", "--resume")
    (stopped,) = evolve_json(folder, "logs", "list")
    assert stopped["status"] == "stopped"
    for other in (("--seed", "7"), ("--name", "second")):
        begun = evolve_json(folder, "run", "--resume", "--limit", "1", "--set", "budget.calls=1000", *other)
        assert begun["run_id"] != stopped["run"]
    settings(tmp_path)
    resumed = evolve_json(folder, "run", "--resume")
    assert (resumed["run_id"], resumed["status"]) == (stopped["run"], "done")
    assert evolve_json(folder, "run", "--resume", "--limit", "1")["run_id"] != stopped["run"]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_process_is_taken_up_where_it_was(tmp_path: Path, once_learned: Path, how: signal.Signals) -> None:
    folder = settings(tmp_path)
    (folder / "slow.py").write_text(SLOW)
    process = start(folder, "run", "--policy", "slow:policy")
    wait_for_episodes(folder, 6, process)
    process.send_signal(how)
    _, err = finish(process, code=-how if how is signal.SIGKILL else 130)
    if how is signal.SIGINT:
        assert "evolve resume" in one_sentence(err)
    done = episodes(folder)
    assert 6 <= done < TASKS
    killed = how is signal.SIGKILL
    assert evolve_json(folder, "logs", "list")[0]["status"] == ("stale" if killed else "stopped")
    assert ("the process of this run is gone: `evolve resume`" in evolve(folder, "report")) is killed
    added = evolve_json(folder, "memory", "stats")
    assert evolve_json(folder, "memory", "doctor") == []
    _, told = finish(start(folder, "resume"))
    assert "resuming run" in told
    assert evolve_json(folder, "report")["status"] == "done"
    assert evolve_json(folder, "memory", "stats")["runs"] == added["runs"] == 1
    assert learned_text(folder) == learned_text(once_learned)


@pytest.mark.slow
def test_a_person_writes_beside_a_run(tmp_path: Path) -> None:
    folder = settings(tmp_path, index="chroma")
    (folder / "slow.py").write_text(SLOW)
    process = start(folder, "run", "--policy", "slow:policy")
    wait_for_episodes(folder, 4, process)
    assert evolve_json(folder, "logs", "list")[0]["status"] == "running"
    evolve(folder, "playbook", "add", "Always greet the accountant.")
    finish(process)
    rows = evolve_json(folder, "playbook", "list")
    (mine,) = [row for row in rows if row["trust"] == "operator"]
    assert len(rows) > 3
    assert mine["shown"] > 0
    assert evolve_json(folder, "memory", "doctor") == []


@pytest.mark.parametrize("line", ["--help", "playbook list", "logs list", "review list", "memory stats", "config show"])
def test_light_verbs_load_no_heavy_package(line: str, learned: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv = ['evolve', *{line.split()!r}]\n"
        "from evolve.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=learned, check=True, capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1].split() == ["LOADED"]


def begun_before_a_key_was_renamed(folder: Path) -> None:
    """Give the latest run the settings that an earlier version journalled."""
    with open_store(load_config(folder / "evolve.toml"), owner=False) as store:
        (record,) = store.runs()
        train = {**record["config"]["train"], "clip": 0.5}
        del train["max_grad_norm"]
        config = {**record["config"], "train": train}
        store.put_run(record["run_id"], {**record, "config": config})


def episodes(folder: Path) -> int:
    """Count stored main-arm episodes without the program."""
    file = folder / ".evolve" / "evolve.db"
    if not file.exists():
        return 0
    db = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
    try:
        return db.execute("SELECT count(*) FROM trajectories WHERE arm = 'main'").fetchone()[0]
    except sqlite3.OperationalError:  # not migrated yet
        return 0
    finally:
        db.close()


def wait_for_episodes(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Wait until the process has stored so many episodes."""
    for _ in range(6000):
        if episodes(folder) >= count:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("no progress")
