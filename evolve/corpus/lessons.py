"""What a perfect reflector and curator would answer, given only what the trajectory shows."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence

from evolve.corpus.episodes import Played
from evolve.corpus.setting import bullet
from evolve.environments.office.rules import BY_CODE, BY_ID, RULES, Rule, Values
from evolve.environments.office.wording import MEANING, frames, sentence
from memory.records import Insight, Record, Step
from playbooks.bullets import Bullet
from playbooks.compact import curate_prompt, curate_reply, nearest, reflect_prompt, reflect_reply, salient_steps
from policies.protocols import Message

_CODE = re.compile(r"\b(E\d\d)$")
_MISMATCH = re.compile(r"(\S+) (\S+): expected (\S+), got \S+")
_SILENT = {(rule.call, rule.thing): rule for rule in RULES if rule.feedback == "silent"}

Meaning = tuple[str, str]


def lessons(played: Played, *, label_free: bool = False) -> list[Meaning]:
    """Return (rule id, option) for every house rule that the shown part of a trajectory reveals, in order."""
    found: dict[str, str] = {}
    steps = salient_steps(played.trajectory, label_free=label_free)
    for i, step in enumerate(steps):
        rule_id, option = _from_step(step, steps[i + 1 :], played.values) or ("", "")
        if rule_id:
            found[rule_id] = option
    outcome = played.trajectory.outcome
    if outcome is not None and not label_free:
        for check in outcome.checks:
            for call, thing, wanted in _MISMATCH.findall(check.detail):
                if (call, thing) in _SILENT:
                    found[_SILENT[call, thing].id] = wanted
    return list(found.items())


def reflect_document(played: Played, rng: random.Random) -> tuple[list[Message], str]:
    """Return the prompt and the reply of the reflect role for one episode."""
    label_free = rng.random() < 0.15
    meanings = lessons(played, label_free=label_free)
    harmful = [r for r in played.setting.shown if _contradicts(r.payload.content, dict(meanings))]
    reply = reflect_reply((sentence(BY_ID[rule], option) for rule, option in meanings), harmful)
    return reflect_prompt(played.trajectory, played.setting.shown, label_free=label_free), reply


def curate_document(rng: random.Random, values: Values) -> tuple[list[Message], str]:
    """Return the prompt and the reply of the curate role for one lesson against a playbook."""
    rule = rng.choice(RULES)
    option = values[rule.id]
    situation = rng.choices(("ADD", "NONE", "EDIT"), weights=(5, 3, 3))[0]
    others = [other for other in RULES if other is not rule and rng.random() < rng.random()]
    texts = [_say(rng, other, values[other.id]) for other in others]
    told = None
    if situation == "NONE":
        told = _say(rng, rule, option)
    elif situation == "EDIT":
        told = _say(rng, rule, rng.choice([o for o in rule.options if o != option]))
    texts += [told] if told else []
    rng.shuffle(texts)
    numbers = sorted(rng.sample(range(1, 100), len(texts)))
    records = [bullet(number, text) for number, text in zip(numbers, texts, strict=True)]
    return _curated(records, _say(rng, rule, option, 0.85), told, situation)


def _curated(
    records: Sequence[Record[Bullet]], lesson: str, told: str | None, situation: str
) -> tuple[list[Message], str]:
    candidates = nearest(lesson, records)
    target = next((r for r in candidates if r.payload.content == told), None)
    prompt = curate_prompt(Insight(content=lesson), candidates)
    if target is None:
        return prompt, curate_reply("ADD")
    return prompt, curate_reply("EDIT" if situation == "EDIT" else "NONE", target)


def _from_step(step: Step, later: Iterable[Step], values: Values) -> Meaning | None:
    if step.error is None:
        return None
    if step.error in MEANING:
        return MEANING[step.error]
    code = _CODE.search(step.error)
    if code is None:
        return None
    rule = BY_CODE[code[1]]
    solved = any(other.error is None and f"apps.{rule.call}(" in other.action for other in later)
    return (rule.id, values[rule.id]) if solved else None


def _contradicts(content: str, learned: dict[str, str]) -> bool:
    rule_id, option = MEANING.get(content, ("", ""))
    return rule_id in learned and learned[rule_id] != option


def _say(rng: random.Random, rule: Rule, option: str, canonical: float = 0.5) -> str:
    return sentence(rule, option, None if rng.random() < canonical else rng.choice(frames(rule)))
