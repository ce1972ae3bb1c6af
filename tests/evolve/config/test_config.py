"""Configuration: where it is found, what wins, and what a mistake is answered with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from docs.reference import field_texts, tables
from evolve.config.file import changed, find_config, load_config, stored_config
from evolve.config.model import Config, RunSection
from evolve.config.tables import table_of
from evolve.config.training import recipe_settings
from evolve.errors import ConfigError
from memory.redact import redact


def test_defaults_without_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_config() is None
    config = load_config()
    assert config.run == RunSection()
    assert config.workspace == tmp_path / ".evolve"


def test_the_file_is_found_by_walking_up(write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("[run]\nseed = 7\n")
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    config = load_config()
    assert config.run.seed == 7
    assert config.workspace == tmp_path / ".evolve"


def test_caller_beats_variable_beats_file_beats_default(write, monkeypatch: pytest.MonkeyPatch) -> None:
    write('[run]\nseed = 1\nbatch_size = 2\nepochs = 3\n[gate]\nnames = ["none"]\n')
    monkeypatch.setenv("EVOLVE_RUN__SEED", "5")
    monkeypatch.setenv("EVOLVE_RUN__EPOCHS", "6")
    config = load_config(overrides={"run": {"epochs": 9}})
    assert (config.run.seed, config.run.batch_size, config.run.epochs, config.run.concurrency) == (5, 2, 9, 4)
    assert config.gate.names == ("none",)


def test_a_reflector_of_the_playbook_is_replaced_and_not_taken_for_a_role(write) -> None:
    path = write('[playbook]\nreflector = "rules"\n')
    assert load_config(path, {"playbook": {"reflector": "policy"}}).playbook.reflector == "policy"


def test_config_made_in_code_ignores_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVOLVE_RUN__SEED", "5")
    assert Config().run.seed == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[run]\nbatch_sise = 2\n", "unknown key 'batch_sise' in [run]; did you mean 'batch_size'?"),
        ("[run]\ntemperature = 1\n", "it belongs to [policy]"),
        ("[polcy]\nname = 'x'\n", "unknown section [polcy]; did you mean 'policy'?"),
        ("[run]\nbatch_size = 0\n", "[run] batch_size = 0 was refused"),
        ("[policy]\ntemperature = inf\n", "temperature = inf was refused: Input should be a finite number"),
        ("[run]\nmode = 'onlin'\n", "'online', 'offline', 'frozen' or 'quarantine'"),
        ("seed = 3\n", "'seed' stands outside any section"),
        ("[run\n", "is no TOML"),
        ("[policy.price]\npromt = 1\n", "unknown key 'promt' in [policy.price]"),
    ],
)
def test_a_mistake_is_named_with_its_fix(write, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(text))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ('[policy]\nbase_url = "https://me:secret7@host/v1"\n', "api_key_env"),
        (f'[policy]\nbase_url = "https://hf_{"Zq9" * 12}@host/v1"\n', "api_key_env"),
        ('[policy]\nname = "served"\nreplicas = ["http://a/v1", "http://me:secret7@b/v1"]\n', "api_key_env"),
        ('[policy.reflector]\nname = "openai"\nbase_url = "https://me:secret7@host/v1"\n', "api_key_env"),
        ('[telemetry]\notlp_endpoint = "http://me:secret7@host:4318"\n', "OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_an_address_with_a_password_is_refused_and_not_repeated(write, text: str, instead: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(text))
    assert "it holds a password, and settings are kept with every run" in str(caught.value)
    assert instead in str(caught.value)
    assert "secret7" not in str(caught.value)
    assert "Zq9" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[environment]\nname = "own:World"\napi_key = "Zq9Zq9Zq9Zq9"\n', "environment.api_key"),
        (
            '[environment]\nname = "own:World"\n[environment.login]\npassword = "Zq9Zq9Zq9"\n',
            "environment.login.password",
        ),
        (f'[environment]\nheaders = ["hf_{"Zq9" * 12}"]\n', "environment.headers"),
        (f'[gate.own]\nwhere = "https://me:{"Zq9" * 3}@host"\n', "gate.own.where"),
        (f'[run]\ntags = ["sk-proj-{"Zq9" * 12}"]\n', "run.tags"),
    ],
)
def test_a_secret_in_any_setting_is_refused_and_not_repeated(write, text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(text))
    assert f"{key} holds a secret, and settings are kept with every run" in str(caught.value)
    assert "Zq9" not in str(caught.value)


def test_settings_that_were_kept_without__their_password_are_read(tmp_path: Path) -> None:
    kept = {"telemetry": {"otlp_endpoint": redact("http://me:secret7@host:4318")}}
    assert "[REDACTED:" in str(stored_config(kept, tmp_path).telemetry.otlp_endpoint)


def test_variables_are_checked_too(write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("")
    monkeypatch.setenv("EVOLVE_RNU__SEED", "5")
    with pytest.raises(ConfigError, match="names no section"):
        load_config()
    monkeypatch.delenv("EVOLVE_RNU__SEED")
    monkeypatch.setenv("EVOLVE_RUN__SEDE", "5")
    with pytest.raises(ConfigError, match="did you mean 'seed'"):
        load_config()


def test_environment_keys_pass_through_and_sections_are_frozen() -> None:
    config = Config(environment={"name": "office", "deployment": 3})  # pyright: ignore[reportArgumentType]
    assert config.environment.options == {"deployment": 3}
    with pytest.raises(ValidationError):
        config.run.seed = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_every_key_is_explained() -> None:
    for _, model in (("", Config), *tables(Config)):
        told = field_texts(model)
        assert [key for key in model.model_fields if not told.get(key) and table_of(model, key) is None] == []


def test_the_digest_names_results_not_speed() -> None:
    base = Config()
    same = Config(run=RunSection(concurrency=9), budget={"calls": 3})  # pyright: ignore[reportArgumentType]
    assert base.digest == same.digest != Config(run=RunSection(batch_size=9)).digest


def test_a_recipe_is_the_same_after_somebody_set_more_than_it() -> None:
    asked = recipe_settings("dpo") | {"train.sft.passes": 7}
    assert changed(Config(), asked).train.sft.passes == 7
    assert changed(Config(), recipe_settings("dpo")).train.sft.passes == 1


def backwards(value: Any) -> Any:
    """Return a value with the keys of all its tables in the opposite order."""
    if isinstance(value, dict):
        return {key: backwards(value[key]) for key in reversed(value)}
    return [backwards(each) for each in value] if isinstance(value, list) else value


def test_the_order_in_which_options_were_written_decides_nothing() -> None:
    options = {"deployment": 3, "shops": [{"a": 1, "b": 2}], "table": {"a": {"b": 1, "c": 2}}}
    values: dict[str, dict[str, Any]] = {
        "environment": {"name": "office", **options},
        "gate": {"held_out": {"alpha": 0.1, "tasks": 4}, "utility": {"tasks": 3}},
        "train": {"loss": {"high": 0.3, "low": 0.1, "name": "ppo"}},
    }
    first, second = Config.model_validate(values), Config.model_validate(backwards(values))
    assert first.digest == second.digest
    assert repr(first.environment.options) == repr(options), "else this digest would not be that of earlier versions"
    other = {**values, "gate": {**values["gate"], "utility": {"tasks": 4}}}
    assert Config.model_validate(other).digest != first.digest
