"""Keys as earlier versions called them: one table for files, variables, `--set`, and settings stored in journals.

An old key is taken for one version, with a warning that says the new one; `evolve config migrate` rewrites a file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any, NamedTuple

from evolve.config.preset import find_preset
from evolve.config.training import MEMBERS
from evolve.errors import ConfigError

_log = logging.getLogger(__name__)
_ABSENT = object()
Layers = Sequence[Mapping[str, Any]]
"""What is given, and below it what it lies over, the nearest first."""
Change = Callable[[Any, Layers], Mapping[str, Any]]
"""(the value of an old key, layers) -> new path -> value; empty where nothing has to be said any more."""


class Move(NamedTuple):
    """What becomes of one old key."""

    old: str
    new: Mapping[str, Any]
    """Path -> value."""

    @property
    def sentence(self) -> str:
        """Return it in words."""
        now = " and ".join(f"{path} = {value!r}" for path, value in self.new.items())
        to = f"now say {now}" if now else "leave it out: what it says holds without it"
        return f"key {self.old} is of an earlier version; {to} (`evolve config migrate` rewrites the file)"


def _to(*paths: str) -> Change:
    return lambda value, _: dict.fromkeys(paths, value)


def _gone(always: Any) -> Change:
    """Return what becomes of a key that nobody set: it has the value that it had by default."""

    def change(value: Any, _: Layers) -> Mapping[str, Any]:
        if value != always:
            raise ConfigError(f"a key of an earlier version is gone, and its value is always {always!r}; got {value!r}")
        return {}

    return change


def _dev_split(value: Any, layers: Layers) -> Mapping[str, Any]:
    """Return the one split that selects: that of two which is not the default. Two of one's own are too many."""
    other = _found(layers[:1], "run.dev_split")
    if other in (None, "dev", value):
        return {"run.dev_split": value}
    if value == "dev":
        return {}
    raise ConfigError(f"gate.select_split is now run.dev_split; got {value!r} for one and {other!r} for the other")


def _review(value: Any, layers: Layers) -> Mapping[str, Any]:
    names = _found(layers, "gate.names") or _preset(layers).get("gate", {}).get("names") or ("static",)
    return {"gate.names": [*names, "review"]} if value is True and "review" not in names else {}


def _options(value: Any, _: Layers) -> Mapping[str, Any]:
    unknown = sorted(set(value) - set(MEMBERS))
    if unknown:
        raise ConfigError(f"train.options has no {unknown[0]!r}; options are given for {', '.join(MEMBERS)}")
    return {f"train.{key}.{option}": each for key, given in value.items() for option, each in given.items()}


def _aggregation(value: Any, layers: Layers) -> Mapping[str, Any]:
    """Return the option of a loss that does not say it itself; of others the key never decided anything."""
    loss = _found(layers, "train.loss") or "ppo"
    name = loss.get("name", "ppo") if isinstance(loss, Mapping) else loss
    says_itself = name in ("sft", "dapo", "gmpo", "gspo", "soft_adaptive")
    return {} if says_itself or value == "token-mean" else {"train.loss.aggregation": value}


RENAMED: Mapping[str, Change] = {
    "run.review": _review,
    "run.plan_review": _to("policy.teacher.plan_review"),
    "run.teacher_retry": _to("policy.teacher.retry"),
    "memory.min_score": _gone(0),
    "memory.mmr_lambda": _gone(0.7),
    "gate.select_split": _dev_split,
    "gate.select_tasks": _to("gate.held_out.tasks"),
    "gate.first_stage": _to("gate.held_out.first_stage"),
    "gate.slices": _to("gate.held_out.slices"),
    "gate.mode": _to("gate.held_out.mode"),
    "gate.alpha": _to("gate.held_out.alpha"),
    "gate.hide": _to("gate.online_ab.hide"),
    "gate.error": _to("gate.online_ab.error", "gate.utility.error"),
    "gate.rounds": _to("gate.utility.rounds"),
    "gate.allow": _to("gate.static.allow"),
    "gate.leak_ngram": _to("gate.static.leak_ngram"),
    "gate.max_chars": _to("gate.static.max_chars"),
    "gate.near_duplicate": _to("gate.static.near_duplicate"),
    "notebook.batch": _to("playbook.notebook.batch"),
    "notebook.distance": _to("playbook.notebook.distance"),
    "notebook.neighbours": _to("playbook.notebook.neighbours"),
    "notebook.similarity": _to("playbook.notebook.similarity"),
    "notebook.writer": _to("playbook.notebook.writer"),
    "skills.revise": _to("playbook.distill.revise"),
    "skills.gain": _to("skills.useless.gain"),
    "skills.floor": _to("skills.useless.floor"),
    "skills.evidence": _to("skills.useless.evidence"),
    "skills.unused": _to("skills.unused.tasks"),
    "forget.floor": _to("forget.useless.floor"),
    "forget.evidence": _to("forget.useless.evidence"),
    "forget.harmful": _to("forget.harmful.marks"),
    "forget.window": _to("forget.harmful.window"),
    "forget.unused": _to("forget.unused.tasks"),
    "train.options": _options,
    "train.branches": _to("train.branching.branches"),
    "train.oversampling": _to("train.partial.oversampling"),
    "train.staleness": _to("train.partial.staleness"),
    "train.off_policy": _to("train.partial.off_policy"),
    "train.passes": _to("train.sft.passes"),
    "train.batch": _to("train.sft.batch"),
    "train.context": _to("train.sft.context"),
    "train.reflections": _to("train.sft.reflections"),
    "train.counting": _gone("strict"),
    "train.clip": _to("train.max_grad_norm"),
    "train.aggregation": _aggregation,
    "train.patience": _to("train.limits.patience"),
    "train.max_growth": _to("train.limits.max_growth"),
    "train.min_valid": _to("train.limits.min_valid"),
    "train.min_entropy": _to("train.limits.min_entropy"),
    "train.max_entropy": _to("train.limits.max_entropy"),
    "train.max_kl": _to("train.limits.max_kl"),
    "train.min_skill_use": _to("train.limits.min_skill_use"),
}
"""Old path -> what becomes of its value."""
COMBINED = ("gate.names", "run.dev_split")
"""New keys that an old one has its say in even where they are given: its change has read them."""


def moves(given: Mapping[str, Any], below: Layers = ()) -> Iterator[Move]:
    """Yield what becomes of each old key that is given. Raises `ConfigError` for a value that has no place any more."""
    for old, change in RENAMED.items():
        value = _found((given,), old, _ABSENT)
        if value is _ABSENT or (isinstance(value, Mapping) and old != "train.options"):  # a table of the same name
            continue
        try:
            yield Move(old, change(value, (given, *below)))
        except ConfigError as wrong:
            raise ConfigError(f"{old}: {wrong}") from wrong


def translated(given: Mapping[str, Any], below: Layers = (), *, warn: bool = True) -> dict[str, Any]:
    """Return settings with the old keys under their new names, each told once; where both are given the new one holds.

    `below` is what the settings lie over, the nearest first.
    """
    found: dict[str, Any] = deepcopy(dict(given))
    for move in moves(given, below):
        place(found, move)
        if warn:
            _tell(move.sentence)
    return found


def place(values: Any, move: Move) -> None:
    """Take an old key out of tables, and put what became of it where it stands now."""
    section, _, key = move.old.partition(".")
    del values[section][key]
    if not values[section]:
        del values[section]
    for path, value in move.new.items():
        *tables, last = path.split(".")
        table = values
        for name in tables:
            inner = table.get(name, {})
            table[name] = inner if isinstance(inner, Mapping) else {"name": inner} if inner else {}
            table = table[name]
        if last not in table or path in COMBINED:
            table[last] = value


@cache
def _tell(sentence: str) -> None:
    _log.warning(sentence)


def _found(layers: Layers, path: str, absent: object = None) -> Any:
    """Return what stands at a path in the first of some layers that has it."""
    section, _, key = path.partition(".")
    return next((each[section][key] for each in layers if key in (each.get(section) or {})), absent)


def _preset(layers: Layers) -> Mapping[str, Any]:
    name = next((each["preset"] for each in layers if each.get("preset")), None)
    return find_preset(name).values if name else {}
