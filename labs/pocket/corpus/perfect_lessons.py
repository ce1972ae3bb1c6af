"""Answers of a perfect reflector and curator, given only what the trajectory shows."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

from evolve.environments.office.house_rules import BY_CODE, BY_ID, RULES, Values
from evolve.environments.office.wording import meaning, sentence
from labs.pocket.corpus.expert_episodes import Played
from labs.pocket.corpus.setting import bullet, draw_frames
from memory.records import Insight, Step
from playbooks.compact import curate_prompt, curate_reply, reflect_prompt, reflect_reply, salient_steps
from playbooks.likeness import TrigramIndex
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
    harmful = [(said, r.number) for r in played.setting.shown for said in _refuted(r.payload.content, dict(meanings))]
    reply = reflect_reply((sentence(BY_ID[rule], option) for rule, option in meanings), harmful)
    return reflect_prompt(played.trajectory, played.setting.shown, label_free=label_free), reply


def curate_document(rng: random.Random, values: Values) -> tuple[list[Message], str]:
    """Return the prompt and the reply of the curate role for one lesson against a playbook."""
    rule = rng.choice(RULES)
    option = values[rule.id]
    situation = rng.choices(("ADD", "NONE", "EDIT"), weights=(5, 3, 3))[0]
    share = rng.random()
    others = [other for other in RULES if other is not rule and rng.random() < share]
    frames = draw_frames(rng)
    texts = [sentence(other, values[other.id], rng.choice(frames)) for other in others]
    known = option if situation == "NONE" else rng.choice([other for other in rule.options if other != option])
    told = "" if situation == "ADD" else sentence(rule, known, rng.choice(frames))
    texts += [told] if told else []
    rng.shuffle(texts)
    numbers = sorted(rng.sample(range(1, 100), len(texts)))
    records = [bullet(number, text) for number, text in zip(numbers, texts, strict=True)]
    lesson = sentence(rule, option)
    candidates = TrigramIndex(records).nearest(lesson)
    prompt = curate_prompt(Insight(content=lesson), candidates)
    target = next((record.number for record in candidates if record.payload.content == told), None)
    if target is None:
        return prompt, curate_reply("ADD", lesson, lesson)
    return prompt, curate_reply("EDIT" if situation == "EDIT" else "NONE", lesson, sentence(rule, known), target)


def _from_step(step: Step, later: Iterable[Step], values: Values) -> Meaning | None:
    if step.error is None:
        return None
    told = meaning(step.error)
    if told:
        return told
    code = _CODE.search(step.error)
    if code is None:
        return None
    rule = BY_CODE[code[1]]
    solved = any(other.error is None and f"apps.{rule.call}(" in other.action for other in later)
    return (rule.id, values[rule.id]) if solved else None


def _refuted(content: str, learned: dict[str, str]) -> list[str]:
    """Return what a shown bullet says, in the office's own wording, if a lesson says otherwise."""
    rule_id, option = meaning(content) or ("", "")
    return [sentence(BY_ID[rule_id], option)] if learned.get(rule_id, option) != option else []
