"""A full-profile policy that plays the agent and every writer of the presets, in the world of the doors."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy

_TOLD = re.compile(r"the (\w+) door wants the word (\w+)")


def role(messages: Sequence[Message]) -> str:
    """Return which prompt this is, by its first words."""
    first = messages[0].content
    roles = {
        "You draw lessons": "reasoningbank",
        "You distil one principle": "evolver",
        "Do these two principles": "same",
        "You keep a cheat sheet": "cheatsheet",
        "You review the work": "reflect",
        "You keep a playbook": "curate",
        "You keep a notebook": "note",
        "Decide whether an agent": "judge",
        "You watch an agent": "critic",
        "You prepare one release": "release",
        "You teach an agent": "coach",
        "You check an answer": "paired",
    }
    return next((name for words, name in roles.items() if first.startswith(words)), "act")


def told(text: str) -> list[str]:
    """Return the passwords that a text tells, each as the rule it is."""
    return list(dict.fromkeys(f"the {color} door wants the word {word}" for color, word in _TOLD.findall(text)))


def replies(messages: Sequence[Message], params: SamplingParams) -> str:
    """Answer from the messages alone."""
    text = next((each.content for each in reversed(messages) if "BEGIN " in each.content), messages[0].content)
    if role(messages) == "act":
        return _act(messages)
    said = told(text)
    first = said[0] if said else "a door that is asked politely opens"
    sections = {"section": "shr"}
    answers = {
        "reasoningbank": {"items": [{"title": "Doors", "description": "at a door", "content": f"{first}."}]},
        "evolver": {"description": first, "structure": [["door", "wants", "word"]]},
        "same": {"same": True},
        "cheatsheet": {"items": [{"description": rule} for rule in said]},
        "reflect": {"insights": [{"content": rule, **sections} for rule in said], "bullet_tags": []},
        "curate": {"operations": [{"type": "ADD", "lesson": 1, "content": first, **sections}]},
        "judge": {"verdict": "incorrect" if said else "correct"},
        "critic": {"symptom": "door refused"},
        "release": {"intent": "say the word", "changes": [{"content": rule} for rule in said]},
        "coach": {"guidance": said},
        "paired": {"guidance": said[:1]},
        "note": {
            "subject": f"opening the {first.split()[1]} door",
            "corrected_examples": [f"open without the word; {first}"],
            "correct_approach": "; ".join(said) or first,
            "mistake_summary": "the door was opened without its word",
            "strategy": "Say the word of the door.",
            "anti_patterns": ["another door"],
        },
    }
    return json.dumps(answers[role(messages)])


def player() -> ScriptedPolicy:
    """Return the policy."""
    return ScriptedPolicy(replies, name="player")


def _act(messages: Sequence[Message]) -> str:
    """Open the door with what the prompt or the last answer tells; search first where that is offered."""
    color = messages[1].content.split()[2]
    answers = [message.content for message in messages[3::2]]
    if "<search_experience>" in messages[0].content and not answers:
        return f"<search_experience>the word of the {color} door</search_experience>"
    known = re.search(rf"the {color} door wants the word (\w+)", "\n".join([messages[0].content, *answers]))
    return f"```python\nopen {color} {known[1]}\n```" if known else f"```python\nopen {color}\n```"
