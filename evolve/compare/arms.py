"""Arms of a comparison: each is a configuration that learns, or a snapshot that learned already.

default                                    the configuration that applies here
careful.toml                               another configuration file
ace                                        a preset; its values win over the file's
'ace playbook.token_budget=512'            the same with other values; without a name they go over the default
01K3... / 5f0c...                          a run of this workspace (what it knew at its end), or a snapshot
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from evolve.config.file import PRESET, assigned, by_section, changed, load_config
from evolve.config.model import Config
from evolve.config.preset import find_preset, preset_names
from evolve.config.tables import flat
from evolve.errors import ConfigError
from evolve.generations.workspace_registry import elsewhere
from evolve.lookup import find_snapshot
from evolve.loop.assembly import DATABASE, open_store, rooted
from memory.errors import BadInput, NotFound
from memory.records import Frozen

DEFAULT = "default"


class ArmRole(StrEnum):
    """Why an arm is there."""

    COMPARED = "compared"
    CONTROL = "control"
    """The first arm without any memory."""
    AA = "aa"
    """The first arm again, with other seeds: how much it differs from itself."""


class Arm(Frozen):
    """One way of learning. `config` is a `Config` without its root; paths in it are absolute."""

    name: str
    config: dict[str, Any]
    role: ArmRole = ArmRole.COMPARED
    learns: bool = True
    """Whether it works through the stream first."""
    snapshot: str | None = None
    """Knowledge to evaluate instead of learning, as `<id>@<position>`."""
    database: str | None = None
    """Where that snapshot is."""

    @property
    def policy(self) -> str:
        """Return the name of its policy, of one's own that of the object."""
        return str(self.config["policy"]["name"]).rpartition(":")[2]

    def values(self) -> dict[str, Any]:
        """Return every key as `section.key` -> value."""
        return dict(flat({section: keys for section, keys in self.config.items() if isinstance(keys, dict)}))


@dataclass(frozen=True)
class Given:
    """What all arms start from."""

    file: Path | None = None
    """`--config`; None = the nearest `evolve.toml`."""
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`section.key` -> value of the command line's options; they win over files and presets, not over an arm's own."""
    start: Config | None = None
    """A configuration to start from in place of a file's."""

    def config(self, file: Path | None, preset: str | None, own: Mapping[str, Any]) -> Config:
        """Return the configuration of an arm. Raises `ConfigError` as `load_config` does."""
        layers: dict[str, Any] = {}
        if preset is not None:
            layers = {PRESET: preset} | find_preset(preset).keys()
        layers = {**layers, **self.changes, **own}
        if self.start is not None and file is None:
            return changed(self.start, layers)
        return load_config(file or self.file, by_section(layers))


def resolve(text: str, given: Given) -> Arm:
    """Return the arm that a word, or a word with `section.key=value` pairs, stands for.

    Raises `ConfigError` when it is none of the above, or a value is wrong.
    """
    words = text.split()
    head = words.pop(0) if words and "=" not in words[0] else DEFAULT
    own = assigned(words)
    if head == DEFAULT:
        return _learner(text, given.config(None, None, own))
    if head.endswith(".toml") or Path(head).is_file():
        return _learner(text, given.config(Path(head), None, own))
    if head in preset_names():
        return _learner(text, given.config(None, head, own))
    return _snapshot(text, head, given.config(None, None, own))


def _learner(name: str, config: Config) -> Arm:
    if config.run.mode == "frozen":
        raise ConfigError(f"{name!r} says run.mode = 'frozen'; an arm learns online or offline, or name a snapshot")
    return Arm(name=name, config=dump(config))


def dump(config: Config) -> dict[str, Any]:
    """Return a configuration that means the same from another folder."""
    policy = elsewhere(config.policy, config.workspace)
    data = config.model_dump(mode="json", exclude={"root"}) | {"policy": policy.model_dump(mode="json")}
    data["environment"] |= rooted(config)
    if config.environment.tasks_file:
        data["environment"]["tasks_file"] = str((config.root / config.environment.tasks_file).resolve())
    return data


def _snapshot(name: str, head: str, config: Config) -> Arm:
    """Return the arm of a run id or a snapshot id of the workspace."""
    if config.memory.database:
        raise ConfigError(
            f"arm {head!r} is of a workspace on a server; `evolve backup` it, and compare from the backup's folder"
        )
    database = config.workspace / DATABASE
    try:
        with open_store(config, read_only=True) as store:
            run = store.get_run(head)
            address = find_snapshot(store, config.memory.namespace, head) if run is None else _frozen_by(run, head)
    except (NotFound, BadInput) as unknown:
        there = ", ".join((DEFAULT, *preset_names()))
        raise ConfigError(
            f"no arm {head!r}: it is no file, none of {there}, and no run or snapshot of {str(config.workspace)!r} "
            f"({unknown})"
        ) from unknown
    values = dump(config)
    learned = (run or {}).get("config", {}).get("run", {})
    values["run"] |= {key: learned[key] for key in ("split", "dev_split") if key in learned}  # what it was taught by
    return Arm(name=name, config=values, learns=False, snapshot=address, database=str(database.resolve()))


def _frozen_by(run: Mapping[str, Any], head: str) -> str:
    if not run.get("snapshot_id"):
        raise NotFound(f"run {head!r} is not finished; `evolve resume {head}` first")
    return str(run["snapshot_id"])
