"""Keys of earlier versions: taken by every reader with one warning, and rewritten by `evolve config migrate`."""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from evolve.config import renamed
from evolve.config.file import assigned, by_section, changed, load_config, stored_config
from evolve.config.migration import migrated
from evolve.config.model import Config
from evolve.config.renamed import RENAMED
from evolve.config.sections import BudgetSection
from evolve.config.tables import flat, table_of
from evolve.config.training import MEMBERS, TrainSection
from evolve.errors import ConfigError
from evolve.loop.assembly import check_gate_options, gate_options, open_store, shipped_gates
from evolve.loop.runs import load_run, save_run
from evolve.loop.session import Parts, aresume, arun
from evolve.workspace.config_check import check_names, in_force
from policies.rl import slots
from tests.evolve.command import complaint, evolve, evolve_json
from tests.evolve.toy_doors import Doors, doors_config, doors_policy

OLD: dict[str, str] = {
    **dict.fromkeys(RENAMED, "2"),
    **dict.fromkeys(("run.review", "run.plan_review", "run.teacher_retry", "train.reflections"), "true"),
    **dict.fromkeys(("gate.select_split", "gate.slices"), '"family"'),
    **dict.fromkeys(("gate.alpha", "gate.hide", "gate.error", "gate.near_duplicate", "notebook.distance"), "0.125"),
    **dict.fromkeys(("notebook.similarity", "skills.gain", "skills.floor", "forget.floor"), "0.125"),
    **dict.fromkeys(("train.min_valid", "train.min_skill_use"), "0.125"),
    "gate.mode": '"strict"',
    "gate.allow": '["corp.org"]',
    "gate.leak_ngram": "4",
    "memory.min_score": "0.0",
    "memory.mmr_lambda": "0.7",
    "notebook.writer": '"rules"',
    "train.options": "{loss = {high = 0.3}, advantages = {}}",
    "train.oversampling": "1.5",
    "train.off_policy": '"masked"',
    "train.context": '"dropped"',
    "train.counting": '"strict"',
    "train.aggregation": '"seq-mean-token-sum"',
}
"""Old key -> a value that is not its default, but for keys that are gone."""


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    renamed._tell.cache_clear()  # pyright: ignore[reportPrivateUsage]
    with caplog.at_level(logging.WARNING, logger=renamed.__name__):
        yield caplog


def at(config: Config, path: str) -> Any:
    return dict(flat(in_force(config)))[path]


def same(given: Any, wanted: Any) -> bool:
    return json.loads(json.dumps(given)) == json.loads(json.dumps(wanted))


@pytest.mark.parametrize("old", RENAMED)
def test_every_reader_takes_an_old_key(
    old: str, tmp_path: Path, told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    section, _, key = old.partition(".")
    value = tomllib.loads(f"value = {OLD[old]}")["value"]
    wanted = next(renamed.moves({section: {key: value}})).new
    file = tmp_path / "evolve.toml"
    file.write_text(f"[{section}]\n{key} = {OLD[old]}\n")
    configs = [load_config(file), load_config(file)]
    (said,) = [each.getMessage() for each in told.records]
    assert [part for part in (old, "evolve config migrate", *wanted) if part not in said] == []
    file.write_text("")
    configs.append(load_config(file, by_section(assigned([f"{old}={OLD[old]}"]))))
    configs.append(changed(Config(), {old: value}))
    monkeypatch.setenv(f"EVOLVE_{section}__{key}".upper(), OLD[old].strip('"'))
    configs.append(load_config(file))
    told.clear()
    configs.append(stored_config({section: {key: value}}, tmp_path))
    assert not told.records, "nobody can rewrite a journal"
    for config in configs:
        assert [path for path in wanted if not same(at(config, path), wanted[path])] == []


@pytest.mark.parametrize("old", RENAMED)
def test_a_file_is_rewritten_and_means_the_same(old: str, tmp_path: Path) -> None:
    section, _, key = old.partition(".")
    text = (
        f"# the file\n\n[{section}]  # the table\n# above it\n{key} = {OLD[old]}  # beside it\n\n[log]\nfile = true\n"
    )
    file = tmp_path / "evolve.toml"
    file.write_text(text)
    before = load_config(file)
    new, moves = migrated(text)
    assert [move.old for move in moves] == [old]
    file.write_text(new)
    after = load_config(file)
    assert (after.digest, in_force(after)) == (before.digest, in_force(before))
    assert migrated(new) == (new, [])
    assert [said for said in ("# the file", "# the table", "# above it", "# beside it") if said not in new] == []


WHOLE = """\
# ours
preset = "mnl"

[run]
tasks = 4   # few
# a person decides
review = true

[notebook]   # notes
# as in the paper
batch = 16

[gate]
names = ["default"]  # all
select_tasks = 24   # of dev
error = 0.1

[train]
loss = "ppo"  # the usual
clip = 0.5 # norm

[train.options.loss]
high = 0.28 # upper

[log]
level = "info"
"""
REWRITTEN = """\
# ours
preset = "mnl"

[run]
tasks = 4   # few

[gate]
# a person decides
names = ["default", "review"]  # all

[gate.held_out]
tasks = 24   # of dev

[gate.online_ab]
error = 0.1

[gate.utility]
error = 0.1

[train]
max_grad_norm = 0.5 # norm

[train.loss]
name = "ppo"  # the usual
high = 0.28 # upper

[log]
level = "info"

# notes
[playbook.notebook]
# as in the paper
batch = 16
"""


def test_the_command_rewrites_the_file_and_shows_what_it_did(tmp_path: Path) -> None:
    file = tmp_path / "evolve.toml"
    file.write_text(WHOLE)
    assert "+max_grad_norm = 0.5 # norm" in evolve(tmp_path, "config", "migrate", "--dry-run")
    assert file.read_text() == WHOLE
    data = evolve_json(tmp_path, "config", "migrate")
    assert file.read_text() == REWRITTEN
    assert data["written"]
    assert {"old": "train.clip", "new": {"train.max_grad_norm": 0.5}} in data["moves"]
    assert "nothing to do" in evolve(tmp_path, "config", "migrate", "evolve.toml")


@pytest.mark.parametrize(
    ("given", "rewritten"),
    [
        (
            "[gate]\n# why\nalpha = 0.1  # strict\n\n[gate.held_out]\nalpha = 0.2\n",
            "[gate]\n# why\n# strict\n\n[gate.held_out]\nalpha = 0.2\n",
        ),
        (
            '[gate]\n# why\nerror = 0.1\nnames = ["static"]\n\n[gate.online_ab]\nerror = 0.2\n',
            '[gate]\nnames = ["static"]\n\n[gate.online_ab]\nerror = 0.2\n\n[gate.utility]\n# why\nerror = 0.1\n',
        ),
        (
            '[run]\nreview = true  # I decide\n\n[gate]\nnames = ["default"]  # all\n',
            '[gate]\n# I decide\nnames = ["default", "review"]  # all\n',
        ),
        ("[log]\nfile = true\n\n[memory]  # ours\nmin_score = 0\n", "[log]\nfile = true\n\n# ours\n"),
        (
            "# all\n[train.options]  # of members\n[train.options.loss]\nhigh = 0.3\n",
            "# all\n# of members\n[train.loss]\nhigh = 0.3\n",
        ),
    ],
    ids=["given already", "half given already", "combined", "gone", "a table of tables"],
)
def test_a_comment_stays_where_its_key_has_no_place_of_its_own(given: str, rewritten: str) -> None:
    assert migrated(given)[0] == rewritten


def test_line_ends_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "evolve.toml"
    file.write_bytes("[train]\r\n# a\u2028b\r\nclip = 0.5\r\nrank = 8\r\n".encode())
    file.chmod(0o600)
    (tmp_path / "link.toml").symlink_to(file)
    diff = evolve_json(tmp_path, "config", "migrate", "link.toml")["diff"]
    assert file.read_bytes() == "[train]\r\n# a\u2028b\r\nmax_grad_norm = 0.5\r\nrank = 8\r\n".encode()
    assert diff.splitlines()[-2:] == ["+max_grad_norm = 0.5", " rank = 8"]
    assert (file.stat().st_mode & 0o777, (tmp_path / "link.toml").is_symlink()) == (0o600, True)


@pytest.mark.parametrize("body", [b"[gate\nalpha = 0.1\n", b"[gate]\nalpha = 0.1 # \xff\n"])
def test_a_malformed_file_is_one_sentence_and_stays(body: bytes, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(body)
    assert "mine.toml is no TOML" in complaint(tmp_path, "config", "migrate", "mine.toml", code=2)
    assert (tmp_path / "mine.toml").read_bytes() == body


def test_what_would_stand_twice_is_not_rewritten() -> None:
    with pytest.raises(ConfigError, match="cannot be rewritten"):
        migrated("[gate]\nheld_out.tasks = 3\nalpha = 0.1\n")


def test_a_file_stays_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, write = tmp_path / "evolve.toml", Path.write_bytes
    file.write_text(WHOLE)

    def half(path: Path, data: bytes) -> int:
        write(path, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    complaint(tmp_path, "config", "migrate", code=1)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("evolve.toml", WHOLE)]


def test_a_run_that_an_earlier_version_began_means_the_same(root: Path) -> None:
    kept = json.loads((root / "tests/fixtures/config_of_0_1.json").read_text())
    assert set(RENAMED) - {f"{section}.{key}" for section, keys in kept.items() for key in keys or ()} == {"train.clip"}
    config = stored_config(kept, Path())
    check_names(config)
    today = in_force(Config())
    assert in_force(config) == today | {
        "gate": {**today["gate"], **in_force(config)["gate"]},
        "train": {**today["train"], "dtype": "float32", "pack_tokens": 1024},  # today's default depends on the device
    }
    for name in config.gate.options:
        model = gate_options(name)
        assert model is not None
        assert config.gate.of(name, model) == model()


async def test_it_is_resumed(tmp_path: Path, root: Path) -> None:
    config = doors_config(tmp_path, run={"batch_size": 2}, budget={"calls": 6}, controls={"no_memory": 0})
    parts = Parts(policy=doors_policy(), environment=Doors())
    begun = await arun(config, parts=parts)
    assert begun.status == "stopped"
    with open_store(config, len) as store:
        record = load_run(store, begun.run_id)
        old = json.loads((root / "tests/fixtures/config_of_0_1.json").read_text())
        mine = record.config
        old |= {"run": {**old["run"], **mine["run"]}, "memory": {**old["memory"], **mine["memory"]}}
        old |= {key: mine[key] for key in ("budget", "controls", "environment", "playbook")}
        save_run(store, record.model_copy(update={"config": old}))
    done = await aresume(config.model_copy(update={"budget": BudgetSection()}), parts=parts)
    assert (done.run_id, done.status) == (begun.run_id, "done")


def test_two_splits_that_select_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match=r"gate.select_split is now run.dev_split; got 'a' .* 'b'"):
        changed(Config(), {"run.dev_split": "b", "gate.select_split": "a"})


def test_a_key_that_is_gone_is_refused_with_another_value_than_it_has_now() -> None:
    with pytest.raises(ConfigError, match=r"train.counting: .* always 'strict'; got 'paper'"):
        changed(Config(), {"train.counting": "paper"})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gate.held_out.task": 3}, "unknown key 'task' in [gate.held_out]; did you mean 'tasks'?"),
        ({"gate.helt_out.tasks": 3}, "unknown table [gate.helt_out]; did you mean 'held_out'?"),
        ({"gate.batch_screen.tasks": 3}, "unknown key 'tasks' in [gate.batch_screen]; known are none"),
        ({"gate.nmaes": ["static"]}, "unknown key 'nmaes'; did you mean 'names'?"),
        ({"playbook.notebook.bach": 3}, "unknown key 'bach' in [playbook.notebook]; did you mean 'batch'?"),
        ({"forget.useless.flor": 0.3}, "unknown key 'flor' in [forget.useless]; did you mean 'floor'?"),
        ({"train.limits.patiens": 3}, "unknown key 'patiens' in [train.limits]; did you mean 'patience'?"),
        ({"train.loss.hihg": 0.3}, "[train.loss] losses 'ppo' has the options low, high"),
        ({"policy.bas_url": "x"}, "unknown key 'bas_url' in [policy]; did you mean 'base_url'?"),
        ({"environment.deploymnt": 3}, "unknown key 'deploymnt' in [environment]; did you mean 'deployment'?"),
    ],
)
def test_an_option_that_nobody_takes_is_refused_before_a_run(changes: Mapping[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_names(changed(Config(), changes))
    assert said in str(caught.value)


@pytest.mark.parametrize("name", [each for each in shipped_gates() if gate_options(each)])
def test_every_option_of_a_gate_is_reached(name: str) -> None:
    model = gate_options(name)
    assert model is not None
    given = {key: other(field.default) for key, field in model.model_fields.items()}
    if name == "held_out":
        given |= {"mode": "strict", "slices": "family"}
    config = changed(Config(), {f"gate.{name}.{key}": value for key, value in given.items()})
    check_gate_options(config)
    assert same(config.gate.of(name, model).model_dump(), given)


def other(default: Any) -> Any:
    if default is None or default == ():
        return 3 if default is None else ["corp.org"]
    return default + 1 if isinstance(default, int) else default / 2 if isinstance(default, float) else default


@pytest.mark.parametrize(("key", "slot"), MEMBERS.items())
def test_every_option_of_a_member_of_training_is_reached(key: str, slot: str) -> None:
    for name in slots.names(slot):
        for option, default in slots.options(slot, name).items():
            text = '"grpo"' if callable(default) else json.dumps(default)
            if default is None:
                text = '"seq-mean-token-sum"' if option == "aggregation" else "[0.5]" if option == "weights" else "2.0"
            elif isinstance(default, float):
                text = str(default * 1.1)
            file = tomllib.loads(f'[{key}]\nname = "{name}"\n{option} = {text}\n')
            made = TrainSection.model_validate(file).member(key)
            value = getattr(made, "keywords", {}).get(option, getattr(made, option, None))
            assert callable(value) if callable(default) else same(value, tomllib.loads(f"value = {text}")["value"])


def test_a_name_from_above_takes_over_no_option_of_what_it_replaces() -> None:
    start = changed(Config(), {"train.loss": "cispo", "train.loss.high": 0.5, "environment.deployment": 4})
    assert changed(start, {"train.loss": "cispo"}).train.loss.options == {"high": 0.5}
    assert changed(start, {"train.loss": "ppo"}).train.loss.options == {}
    assert changed(start, {"train.loss.low": 0.5}).train.loss.name == "cispo"
    assert changed(start, {"environment.name": "bfcl"}).environment.options == {}


def test_a_role_is_a_table_and_a_price_is_none() -> None:
    assert table_of(Config, "run") is not None
    assert table_of(TrainSection, "rank") is None
