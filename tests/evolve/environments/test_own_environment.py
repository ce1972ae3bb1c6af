"""A user's own environment and tasks through the command, from the folder they stand in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.evolve.command import evolve_json, finish, one_sentence, start

ENV = ("--env", "depot:Depot", "--policy", "depot:clerk")


@pytest.fixture
def own(tmp_path: Path, root: Path) -> Path:
    """Return a copy of the example's folder."""
    source = root / "examples" / "own_environment"
    return Path(shutil.copytree(source, tmp_path / "own", ignore=shutil.ignore_patterns(".evolve", "__pycache__")))


def test_the_example_learns(own: Path) -> None:
    out, _ = finish(start(own, "run", "--json"))
    report = json.loads(out)
    assert report["environment"] == "depot"
    assert report["curve"] == [False, False, True, True, True, True]
    rules = [row["content"] for row in evolve_json(own, "playbook", "list")]
    assert rules == ["weigh must be called before ship", "ship wants grams, not kilos"]
    out, _ = finish(start(own, "eval", "--json"))
    (evaluation, *_) = json.loads(out)["evaluations"]
    assert (evaluation["metrics"]["tgc"], evaluation["metrics"]["tasks"]) == (1.0, 2)
    out, _ = finish(start(own, "eval", "--no-memory", "--json"))
    assert json.loads(out)["evaluations"][0]["metrics"]["tgc"] == 0.0


def test_options_do_what_the_file_does_from_a_folder_below(own: Path) -> None:
    """The settings that `evolve init` writes name another environment: its own keys do not go to this one."""
    (own / "evolve.toml").unlink()
    finish(start(own, "init"))
    assert "deployment" in (own / "evolve.toml").read_text()
    (own / "below").mkdir()
    more = ("--tasks", "../tasks.jsonl", "--json")
    learner = {"EVOLVE_PLAYBOOK__REFLECTOR": "rules", "EVOLVE_PLAYBOOK__CURATOR": "direct"}
    out, _ = finish(start(own / "below", "run", *ENV, *more, **learner))
    assert json.loads(out)["whole"]["tasks"] == 6


def test_a_module_called_like_one_of_our_packages_takes_nothing_over(own: Path) -> None:
    for name in ("memory", "skills", "policies"):
        (own / f"{name}.py").write_text("raise RuntimeError('imported')")
    out, _ = finish(start(own, "run", "--limit", "2", "--json"))
    assert json.loads(out)["whole"]["tasks"] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--env", "dept:Depot"), "no module 'dept'"),
        (("--env", "depot:Dept"), "has no 'Dept'"),
        (("--policy", "depot:nobody"), "has no 'nobody'"),
        (("--tasks", "bad.jsonl"), "bad.jsonl:2: not JSON"),
        (("--tasks", "keys.jsonl"), "keys.jsonl:1: instruction"),
        (("--tasks", "empty.jsonl"), "holds no task"),
        (("--tasks", "other.jsonl"), "split 'train' of 'depot' has no tasks"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(own: Path, arguments: tuple[str, ...], said: str) -> None:
    good = (own / "tasks.jsonl").read_text().splitlines()
    (own / "bad.jsonl").write_text(f"{good[0]}\n{good[1][:30]}\n")
    (own / "keys.jsonl").write_text('{"task": "Ship."}\n')
    (own / "empty.jsonl").write_text("\n")
    (own / "other.jsonl").write_text(good[-1])
    _, err = finish(start(own, "run", *arguments), code=2)
    assert said in one_sentence(err)


def test_a_key_that_the_environment_does_not_take_is_named(own: Path) -> None:
    text = (own / "evolve.toml").read_text().replace("max_steps = 6", "max_stps = 6")
    (own / "evolve.toml").write_text(text)
    _, err = finish(start(own, "run"), code=2)
    assert "max_stps" in one_sentence(err)


def test_a_bug_of_the_users_own_names_its_line(own: Path) -> None:
    (own / "broken.py").write_text("def make():\n    return 1 / 0\n")
    _, err = finish(start(own, "run", "--env", "broken:make"), code=1)
    assert "environment 'broken:make' raised ZeroDivisionError: division by zero (broken.py:2" in one_sentence(err)
    (own / "broken.py").write_text("import nothing_like_it\n")
    _, err = finish(start(own, "run", "--env", "broken:make"), code=1)
    assert "ModuleNotFoundError: No module named 'nothing_like_it' (broken.py:1" in one_sentence(err)
