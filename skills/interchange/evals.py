"""`evals/evals.json` of an Agent Skills folder: the task that a skill was made for, and its tests as assertions.

With it another client can compare runs with and without the skill, as our gates did (`metadata`: utility_mean).
"""

from __future__ import annotations

import json

from skills.record import Skill

EVALS = "evals/evals.json"


def write(name: str, skill: Skill) -> str:
    """Return the file's text for the skill that is exported as `name`; empty where it has neither task nor test."""
    if not (skill.origin or skill.tests):
        return ""
    case = {
        "id": 1,
        "prompt": skill.origin or skill.described(),
        "expected_output": skill.described(),
        "files": [],
        "assertions": [f"this program runs without an error:\n{test.code.strip()}" for test in skill.tests],
    }
    return json.dumps({"skill_name": name, "evals": [case]}, indent=2) + "\n"
