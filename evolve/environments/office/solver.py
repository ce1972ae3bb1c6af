"""A scripted solver: the expert that writes gold code, and the same expert with gaps in its knowledge.

It starts from what the API suggests, follows the rules it is shown, believes the office's error messages over them, and
works through the options of a rule whose error is a bare code. With no rules shown it is the no-memory floor; with the
oracle playbook, the ceiling.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from evolve.environments.office.families import Goal
from evolve.environments.office.house_rules import BY_CODE, RULES, Rule, Values
from evolve.environments.office.wording import meaning, meanings, sentence

DONE = "apps.task.done()"
_CODE = re.compile(r"\b(E\d\d)\b")
_NUMBERED = re.compile(r"- (.*) \[(\d+)\]")


@dataclass
class Knowledge:
    """What the solver believes: an option per rule, options found wrong, and the shown rule each belief came from."""

    values: Values
    wrong: dict[str, set[str]] = field(default_factory=lambda: {rule.id: set() for rule in RULES})
    cited: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, lines: Sequence[str]) -> Knowledge:
        """Read `- text [number]` lines, every rule that a text states; what it does not understand is ignored."""
        known = cls({rule.id: rule.options[0] for rule in RULES})
        for line in lines:
            numbered = _NUMBERED.fullmatch(line.strip())
            for rule_id, option in meanings(numbered[1]) if numbered else ():
                known.values[rule_id] = option
                known.cited[rule_id] = numbered[2] if numbered else "?"
        return known

    def learn(self, error: str, governed: Sequence[Rule]) -> None:
        """Take in an error message: the words of a rule, or a bare code."""
        told = meaning(error)
        code = _CODE.search(error)
        if told:
            self._set(*told)
        elif code and BY_CODE[code[1]] in governed:
            rule = BY_CODE[code[1]]
            self.wrong[rule.id].add(self.values[rule.id])
            left = [option for option in rule.options if option not in self.wrong[rule.id]]
            self._set(rule.id, (left or list(rule.options))[0])

    def _set(self, rule_id: str, option: str) -> None:
        if self.values[rule_id] != option:
            self.values[rule_id] = option
            self.cited.pop(rule_id, None)

    def plan(self, rules: Sequence[Rule]) -> list[str]:
        """Return a comment for each rule: what is believed, and the number of the shown rule that says so, or `[?]`."""
        return [f"# {sentence(rule, self.values[rule.id])} [{self.cited.get(rule.id, '?')}]" for rule in rules]


def next_action(goal: Goal, knowledge: Knowledge, observations: Sequence[str]) -> str:
    """Return the code to run after `observations`, one per action so far. Changes `knowledge` by what they say."""
    done = 0
    phases = [(i, phase) for i in range(len(goal.intents)) for phase in ("lookup", "write")]
    for observation in observations:
        if done >= len(phases):
            break
        error = observation.partition("error: ")[2]
        if error:
            knowledge.learn(error, _rules(goal, phases[done]))
        else:
            done += 1
    if goal.color:
        seal = f'apps.files.seal(name="{goal.names.files[0]}", color="red")'
        return DONE if observations else seal
    return DONE if done >= len(phases) else _code(goal, phases[done], knowledge)


def gold(goal: Goal, values: Values) -> list[str]:
    """Return the code that solves the task, step by step."""
    if goal.color:
        return [f'apps.files.seal(name="{goal.names.files[0]}", color="{goal.color}")', DONE]
    steps = [
        "\n".join(lines(fields, values)) for intent, fields in goal.intents for lines in (intent.lookup, intent.write)
    ]
    return [*steps, DONE]


def _rules(goal: Goal, phase: tuple[int, str]) -> tuple[Rule, ...]:
    intent = goal.intents[phase[0]][0]
    return intent.lookup_rules if phase[1] == "lookup" else intent.write_rules


def _code(goal: Goal, phase: tuple[int, str], knowledge: Knowledge) -> str:
    index, part = phase
    intent, fields = goal.intents[index]
    header = [f"# {index + 1}"] if len(goal.intents) > 1 else []
    body = (intent.lookup if part == "lookup" else intent.write)(fields, knowledge.values)
    return "\n".join([*header, *knowledge.plan(_rules(goal, phase)), *body])
