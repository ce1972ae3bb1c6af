"""`evolve compare` as a person runs it: tables, pictures, JSON, the same command again, and a kill in between."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.evolve.cli.test_cli_runs import SLOW, episodes
from tests.evolve.command import complaint, evolve, evolve_json, finish, invoke, settings, start

RULES = "playbook.curator=direct playbook.reflect_on=failures"


def test_it_reports_draws_and_is_printed_again(tmp_path: Path) -> None:
    folder = settings(tmp_path, tasks=12)
    told = invoke(folder, "compare", "default", RULES, "--report-tasks", "9", "--out", "c")
    assert told.exit_code == 0, told.output
    assert "do not rank the papers' methods" in told.stdout
    assert "n = 9 pairs on test_normal, look 1, 1 questions, A/A floor: 0.0%" in told.stdout
    assert "learning, 12 tasks" in told.stderr
    for name in ("curves.png", "forest.png"):
        assert (folder / "c" / name).read_bytes().startswith(b"\x89PNG")
    data = evolve_json(folder, "compare", "--reprint", "c")
    rates = {arm["name"]: arm["rate"] for arm in data["arms"]}
    assert rates["default"] > rates["without memory"]
    assert [contrast["role"] for contrast in data["contrasts"]] == ["aa", "control", "compared"]
    again = invoke(folder, "compare", "default", RULES, "--report-tasks", "9", "--out", "c", "--json")
    assert again.stdout == evolve(folder, "compare", "--reprint", "c", "--json")
    assert "learning" not in again.stderr


def test_what_cannot_be_compared_is_one_sentence(tmp_path: Path) -> None:
    folder = settings(tmp_path)
    assert "got 0 arms" in complaint(folder, "compare", code=2)
    assert "got 1 arms" in complaint(folder, "compare", "default", "--no-controls", code=2)
    assert "no arm 'aec'" in complaint(folder, "compare", "default", "aec", code=2)
    assert "run.tasks = 16" in complaint(folder, "compare", "default", "run.tasks=8", code=2)
    assert "--seeds '1;2' was refused" in complaint(folder, "compare", "default", "--seeds", "1;2", code=2)
    assert "no comparison in 'nowhere'" in complaint(folder, "compare", "--reprint", "nowhere", code=1)


@pytest.mark.parametrize("tasks", ["0", "-1"])
def test_a_number_of_tasks_that_is_none_is_refused_before_anything_is_stored(tmp_path: Path, tasks: str) -> None:
    folder = settings(tmp_path)
    told = invoke(folder, "compare", "default", RULES, "--report-tasks", tasks, "--out", "c")
    assert (told.exit_code, (folder / "c").exists()) == (2, False)
    assert "--report-tasks" in told.stderr


@pytest.mark.slow
def test_a_killed_comparison_goes_on_with_the_same_command(tmp_path: Path) -> None:
    folder = settings(tmp_path, tasks=8)
    (folder / "slow.py").write_text(SLOW)
    command = ("compare", "default", RULES, "--report-tasks", "4", "--policy", "slow:policy", "--out", "c")
    process = start(folder, *command)
    first = folder / "c" / "office-3-seed-0" / "0"
    while episodes(first) < 5:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    finish(process, code=-signal.SIGKILL)
    done = episodes(first)
    out, err = finish(start(folder, *command))
    assert "n = 4 pairs" in out
    assert "learning, 8 tasks" in err
    assert done < episodes(first)
