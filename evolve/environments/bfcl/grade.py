"""Grades an episode as the benchmark does: after each turn the systems' public state must equal the gold run's, and the
gold responses of the turn must be among the responses so far.

The benchmark's own state and response checkers judge; its executor, which passes text to `eval`, is replaced by
`BfclWorld`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from evolve.environments.bfcl.data import Entry
from evolve.environments.bfcl.world import BfclWorld
from memory.records import Check, Outcome, ToolCall


def grade(entry: Entry, turns: Sequence[Sequence[ToolCall]]) -> Outcome:
    """Run the agent's calls and the gold calls side by side on fresh worlds. Reward is 1.0 or 0.0.

    `turns` holds the calls of each turn that was begun; a missing turn fails, and so does a turn without calls where
    the gold has some.
    """
    checker: Any = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
    agent, gold = BfclWorld(entry), BfclWorld(entry)
    responses = list[str]()
    checks = list[Check]()
    for index, wanted in enumerate(entry.gold):
        calls = turns[index] if index < len(turns) else ()
        responses += [agent.call(call.name, call.arguments)[0] for call in calls]
        parsed = [gold.parse(source) for source in wanted]
        expected = [gold.call(call.name, call.arguments)[0] for call in parsed]
        if not wanted:
            continue  # nothing can be done in this turn: what the agent tried shows in the next turn's state
        state = checker.state_checker(agent.instances, gold.instances)["valid"]
        answered = bool(calls) and checker.response_checker(responses, expected, index)["valid"]
        checks += [Check(name=f"turn {index + 1}: state", passed=bool(state))]
        checks += [Check(name=f"turn {index + 1}: responses", passed=bool(answered))]
    success = len(turns) >= len(entry.gold) and all(check.passed for check in checks)
    return Outcome(success=success, reward=float(success), checks=tuple(checks))
