"""`evolve train resume`: an unfinished training goes on by its name, with the settings that it was begun with."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from evolve.training import ledger, resumption
from policies.rl.protocols import Array, Episodes
from tests.evolve.command import invoke, start
from tests.evolve.training.test_cli_train import SETTINGS, told

pytestmark = pytest.mark.slow
LONG = SETTINGS.replace("iterations = 1", "iterations = 2").replace("max_steps = 6", "max_steps = 2")
EVERYTHING = "train.filter='everything'"
PRAISED = "train.advantages='tests.evolve.training.test_resume:praised'"
FLAT = {"gradient_norm": 0.0}
BEGIN = ("train", "sage", "--set", EVERYTHING, "--set", PRAISED, "--set", "train.sampler=spo")


def praised(episodes: Episodes) -> Array:
    """Return [s], 1: every batch has a gradient."""
    return episodes.spread(episodes.rewards * 0 + 1)


def indifferent(episodes: Episodes) -> Array:
    """Return [s], 0: no batch has a gradient."""
    return episodes.spread(episodes.rewards * 0)


def killed(folder: Path) -> Path:
    """Begin a training in a process that is killed after its first iteration; return its folder."""
    child = start(folder, *BEGIN)
    places = folder / ".evolve" / "policies" / "training"
    while not any(places.glob(f"sage-*/{ledger.CHECKPOINT}")):
        assert child.poll() is None, child.communicate()
        time.sleep(0.01)
    child.kill()
    child.communicate()
    (place,) = places.glob("sage-*")
    return place


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace that has done tasks, and in which a training was killed."""
    path = tmp_path_factory.mktemp("stopped")
    (path / "evolve.toml").write_text(SETTINGS)
    assert invoke(path, "run").exit_code == 0
    (path / "evolve.toml").write_text(LONG)
    shutil.copytree(path, path.parent / "through")
    place = killed(path)
    assert len(ledger.lines(place / ledger.METRICS)) < 2, "it was done before it was killed: this shows nothing"
    return path


def test_it_goes_on_by_name_with_its_own_settings_to_the_same_weights(stopped: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(stopped, tmp_path / "own"))
    through = told(stopped.parent / "through", *BEGIN)
    (row,) = told(own, "train", "status")
    assert row["state"] == "unfinished: `evolve train resume` goes on"
    (own / "evolve.toml").write_text(LONG.replace("rank = 4", "rank = 8"))
    done = told(own, "train", "resume", row["training"])
    assert done["name"] == row["training"] == through["name"]
    one, other = Path(done["folder"]) / "adapter", Path(through["folder"]) / "adapter"
    assert (one / "adapter_model.safetensors").read_bytes() == (other / "adapter_model.safetensors").read_bytes()
    assert (one.parent / ledger.HISTORY).read_text() == (other.parent / ledger.HISTORY).read_text()
    again = invoke(own, "train", "resume", row["training"])
    assert again.exit_code == 1
    assert "has ended: its candidate is published; unfinished are: none" in again.stderr
    assert "no training to go on with; unfinished are: none" in invoke(own, "train", "resume").stderr


def test_what_a_guard_discarded_is_not_counted(stopped: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(stopped, tmp_path / "own"))
    whole = told(own, "train", "resume")
    place = Path(whole["folder"])
    first, second = ledger.lines(place / ledger.METRICS)
    assert (whole["examples"], whole["tokens"]) == tuple(first[each] + second[each] for each in ("rows", "tokens"))
    (place / ledger.STOPPED).write_text("entropy")  # as where a guard found the second iteration beyond a limit
    shutil.rmtree(place / "adapter")
    again = told(own, "train", "resume", whole["name"])
    assert (again["stopped"], again["updates"]) == ("entropy", 1)
    assert (again["examples"], again["tokens"]) == (first["rows"], first["tokens"])
    ledger.write(place / ledger.METRICS, "".join(json.dumps(each) + "\n" for each in (first | FLAT, second)))
    shutil.rmtree(place / "adapter")
    assert "no batch had a gradient" in invoke(own, "train", "resume", whole["name"]).stderr


def test_one_that_came_to_nothing_has_ended_and_an_older_one_goes_on(stopped: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(stopped, tmp_path / "own"))
    (older,) = told(own, "train", "status")
    no_gradient = "train.advantages='tests.evolve.training.test_resume:indifferent'"
    assert "nothing to publish" in invoke(own, "train", "grpo", "--set", EVERYTHING, "--set", no_gradient).stderr
    state = {row["training"]: row["state"] for row in told(own, "train", "status")}
    (name,) = set(state) - {older["training"]}
    assert state[name].startswith("nothing to publish: the weights are still those of policy-v0, which is live")
    by_name = invoke(own, "train", "resume", name).stderr
    assert f"training '{name}' has ended: the weights are still those of policy-v0" in by_name
    assert told(own, "train", "resume")["name"] == older["training"]


def test_one_that_an_earlier_version_began_goes_on_with_its_own_settings(stopped: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(stopped, tmp_path / "own"))
    (row,) = told(own, "train", "status")
    place = own / ".evolve" / "policies" / "training" / row["training"]
    earlier = place.rename(place.with_name("sage-0123456789"))  # settings were hashed with other keys
    settings = earlier / resumption.FILE
    settings.write_text(settings.read_text().replace('"max_grad_norm"', '"clip"'))
    assert told(own, "train", "resume")["name"] == earlier.name


def test_one_that_is_not_there_is_named_with_those_that_are(stopped: Path) -> None:
    (row,) = told(stopped, "train", "status")
    result = invoke(stopped, "train", "resume", "nosuch")
    assert result.exit_code == 1
    assert f"no training 'nosuch'; unfinished are: {row['training']}" in result.stderr


def test_one_that_does_not_say_how_it_was_begun_needs_its_command(stopped: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(stopped, tmp_path / "own"))
    (row,) = told(own, "train", "status")
    (own / ".evolve" / "policies" / "training" / row["training"] / "training.json").unlink()
    named = invoke(own, "train", "resume", row["training"])
    assert "go on with the command that began it" in named.stderr
    latest = invoke(own, "train", "resume")
    assert f"no training to go on with; unfinished are: {row['training']}" in latest.stderr


def test_it_does_not_go_on_beside_another_live_generation(stopped: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(stopped, tmp_path / "own"))
    assert invoke(own, "train", "sft").exit_code == 0
    assert invoke(own, "policy", "promote", "1", "--unmeasured").exit_code == 0
    before = sorted(path.name for path in (own / ".evolve" / "policies" / "training").iterdir())
    result = invoke(own, "train", "resume")
    assert result.exit_code == 1
    assert "it goes on from base, and policy-v1 is live" in result.stderr
    assert sorted(path.name for path in (own / ".evolve" / "policies" / "training").iterdir()) == before


def test_one_on_the_journal_goes_on_while_the_journal_offers_the_same(stopped: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(stopped, tmp_path / "own"))
    whole = told(own, "train", "sft")
    place = Path(whole["folder"])
    shutil.rmtree(place / "adapter")
    (own / "evolve.toml").write_text(SETTINGS.replace("[policy]", '[policy]\nbase_url = "http://127.0.0.1:9/v1"'))
    done = told(own, "train", "resume", whole["name"])
    assert (done["name"], done["generation"]) == (whole["name"], whole["generation"]), "the journal asks no server"
    settings = json.loads((place / "training.json").read_text())
    assert (settings["recipe"], settings["journal"], settings["start"]) == ("sft", True, "base")
    shutil.rmtree(place / "adapter")
    (own / "evolve.toml").write_text(SETTINGS)
    assert invoke(own, "run", "--limit", "8", "--set", "run.skip=4").exit_code == 0
    result = invoke(own, "train", "resume", whole["name"])
    assert "the journal offers other episodes than when it began" in result.stderr


def test_what_a_training_tells_goes_to_stderr_and_nothing_with_json(stopped: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(stopped, tmp_path / "own"))
    plain = invoke(own, "train", "resume")
    assert plain.exit_code == 0
    assert "iteration 1  success" in plain.stderr
    assert "left 0:00:00" in plain.stderr
    assert plain.stdout.startswith("policy-v1 is a candidate after 2 updates")
    result = invoke(own, "train", "sft", "--json")
    assert json.loads(result.stdout)["generation"] == "policy-v2"
    assert "update" not in result.stderr
