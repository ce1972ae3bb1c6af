"""Families of reasoning-gym (105 of them, `pip install reasoning-gym`) as an environment with reset and step.

[environment]
name = "gym"
make = "examples.worlds.reasoning:Reasoning"
arguments = { leg_counting = {}, gcd = { max_value = 30 } }
description = "Answer the question. Reply with the answer and nothing else."
trusted = true
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import reasoning_gym


class Reasoning:
    """One question for each seed, of one of the families; the answer ends the episode."""

    def __init__(self, **families: Mapping[str, Any]) -> None:
        """Take families by name, each with settings of its own (`{}` = reasoning-gym's)."""
        self.families = families

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        """Draw the family, then the question."""
        family = Random(seed).choice(sorted(self.families))
        self.questions = reasoning_gym.create_dataset(family, size=1, seed=seed, **self.families[family])
        self.entry = self.questions[0]
        return self.entry["question"], {"family": family}

    def step(self, text: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Score the answer, from 0 to 1."""
        return "", self.questions.score_answer(text.strip(), self.entry), True, False, {}
