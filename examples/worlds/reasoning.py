"""A family of reasoning-gym (105 of them, `pip install reasoning-gym`) as an environment with reset and step.

[environment]
name = "gym"
make = "examples.worlds.reasoning:Reasoning"
arguments = { family = "leg_counting" }
description = "Answer the question. Reply with the answer and nothing else."
trusted = true
"""

from __future__ import annotations

from typing import Any

import reasoning_gym


class Reasoning:
    """One question for each seed; the answer ends the episode."""

    def __init__(self, family: str) -> None:
        self.family = family

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        """Draw the question."""
        self.questions = reasoning_gym.create_dataset(self.family, size=1, seed=seed)
        self.entry = self.questions[0]
        return self.entry["question"], {}

    def step(self, text: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Score the answer, from 0 to 1."""
        return "", self.questions.score_answer(text.strip(), self.entry), True, False, {}
