"""Presets: values by name, what the user says wins, and each says what it reproduces."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from evolve.cli.main import app
from evolve.config.file import changed, load_config
from evolve.config.model import Config, PlaybookSection
from evolve.config.preset import find_preset, preset_names
from evolve.errors import ConfigError
from evolve.loop.assembly import make_curator, make_reflector, open_store
from playbooks.notebook.note_curator import NotebookSettings
from policies.roles import Policies
from policies.scripted import ScriptedPolicy

NAMES = preset_names()


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_is_a_configuration_and_its_roles_can_be_built(name: str, tmp_path: Path) -> None:
    preset, config = find_preset(name), Config(preset=name, root=tmp_path)
    assert config.applied_preset is not None
    assert config.applied_preset.taken == preset.keys()  # pyright: ignore[reportOptionalMemberAccess]
    assert name in ("none",) or re.search(r"arXiv \d{4}\.\d{5}", preset.about.paper)
    assert name == "none" or preset.about.deviates
    policy = ScriptedPolicy(["x"])
    with open_store(config) as store:
        assert make_reflector(config, policy).name
        assert make_curator(config, Policies.of(policy), lambda _: None, store).name


def test_the_values_of_a_preset_are_those_of_its_file() -> None:
    config = Config(preset="mnl")
    assert (config.playbook.reflector, config.playbook.curator, config.run.batch_size) == ("none", "notebook", 16)
    assert not Config(preset="none").playbook.enabled
    assert Config().preset is None
    assert Config().applied_preset is None


def test_the_user_wins_key_by_key_and_both_are_said() -> None:
    config = Config(preset="mnl", playbook=PlaybookSection(notebook=NotebookSettings(batch=1)))
    assert (config.playbook.notebook.batch, config.playbook.notebook.neighbours) == (1, 3)
    told = config.applied_preset
    assert told is not None
    assert told.overridden == {"playbook.notebook.batch": 1}
    assert "playbook.notebook.batch" not in told.taken
    assert "your own values stay: playbook.notebook.batch = 1" in told.sentence


def test_a_section_that_was_set_by_object_keeps_the_rest_of_the_preset() -> None:
    config = Config(preset="ace", playbook=PlaybookSection(token_budget=77))
    assert (config.playbook.token_budget, config.playbook.reflector) == (77, "model")
    rules = Config(preset="mnl", playbook=PlaybookSection(reflector="rules"))
    assert (rules.playbook.reflector, rules.playbook.curator) == ("rules", "notebook")


def test_another_preset_takes_nothing_over_from_the_former_one() -> None:
    own = {"playbook.token_budget": 77}
    mine = changed(Config(preset="mnl"), own)
    assert changed(mine, {"preset": "ace"}).digest == changed(Config(preset="ace"), own).digest
    assert changed(Config(preset="mnl"), {"preset": None}).digest == Config().digest


def test_an_explicit_default_is_the_users_word_too() -> None:
    assert (
        Config(
            preset="mnl", playbook=PlaybookSection(notebook=NotebookSettings(batch=5, neighbours=5))
        ).playbook.notebook.neighbours
        == 5
    )


def test_the_file_the_variable_and_the_caller_name_it_and_win(write, monkeypatch: pytest.MonkeyPatch) -> None:
    write('preset = "mnl"\n[playbook.notebook]\nneighbours = 9\n')
    assert (load_config().preset, load_config().playbook.notebook.neighbours) == ("mnl", 9)
    assert load_config(overrides={"preset": "none"}).preset == "none"
    monkeypatch.setenv("EVOLVE_PRESET", "ace")
    monkeypatch.setenv("EVOLVE_RUN__BATCH_SIZE", "3")
    config = load_config(overrides={"playbook": {"curator": "direct"}})
    assert (config.preset, config.playbook.curator, config.playbook.reflector) == ("ace", "direct", "model")
    assert config.run.batch_size == 3


@pytest.mark.parametrize("said", ["acee", "ACE", "../ace", ""])
def test_an_unknown_name_is_answered_with_those_there_are(write, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(", ".join(NAMES))):
        load_config(write(f'preset = "{said}"\n'))
    with pytest.raises(ValidationError, match="evolve presets list"):
        Config(preset=said)


def test_the_digest_is_that_of_the_values() -> None:
    by_hand = Config(playbook=PlaybookSection(enabled=False))
    assert Config(preset="none").digest == by_hand.digest != Config().digest


def test_a_recorded_configuration_comes_back_as_it_was() -> None:
    config = Config(preset="mnl", playbook=PlaybookSection(notebook=NotebookSettings(batch=1)))
    again = Config.model_validate({**config.model_dump(mode="json", exclude={"root"}), "root": config.root})
    assert again == config


def test_a_run_says_and_reports_its_preset(write, tmp_path: Path) -> None:
    office = "evolve.environments.office.worker:worker"
    write(f'preset = "none"\n[run]\ntasks = 2\n[policy]\nname = "{office}"\n[memory]\nindex = "exact"\n')
    ran = CliRunner().invoke(app, ["run", "--set", "environment.max_steps=3"])
    assert ran.exit_code == 0, ran.output
    assert "preset none set playbook.enabled = False" in re.sub(r"\s+", " ", ran.output)
    report = json.loads(CliRunner().invoke(app, ["report", "--json"]).output)
    assert report["preset"] == "none"


def test_the_command_lists_and_shows_them(write) -> None:
    write("")
    listed = json.loads(CliRunner().invoke(app, ["presets", "list", "--json"]).output)
    assert [row["preset"] for row in listed] == NAMES
    shown = CliRunner().invoke(app, ["presets", "show", "ace"]).output
    assert "arXiv 2510.04618" in shown
    assert "deviates" in shown
    assert "playbook.curator = 'model'" in shown
    wrong = CliRunner().invoke(app, ["presets", "show", "acee"])
    assert (wrong.exit_code, "did you mean 'ace'?" in wrong.output) == (2, True)


def test_set_takes_toml_or_text_and_refuses_what_is_neither(write) -> None:
    write("")
    given = ["config", "show", "--json"]
    assert json.loads(CliRunner().invoke(app, given).output)["preset"] is None
    wrong = CliRunner().invoke(app, ["run", "--set", "batch_size=3"])
    assert (wrong.exit_code, "section.key=value" in wrong.output) == (2, True)
    wrong = CliRunner().invoke(app, ["run", "--set", "run.batch_sise=3"])
    assert "did you mean 'batch_size'" in wrong.output


def test_every_preset_ships_as_data() -> None:
    folder = resources.files("evolve.config") / "presets"
    assert sorted(file.name for file in folder.iterdir()) == sorted(f"{name}.toml" for name in NAMES)
