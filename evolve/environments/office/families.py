"""Task families, their splits, and how one task is drawn.

A family is a sequence of intents. `test_challenge` holds longer sequences that no other split contains; a scenario
(`<family>-<n>`) is three variants of the same goal with other entities, and belongs to one split only.
"""

from __future__ import annotations

from dataclasses import dataclass

from evolve.environments.office.entities import Names, draw_names
from evolve.environments.office.house_rules import seeded
from evolve.environments.office.intents import BY_INTENT, Fields, Intent
from memory.records import Task

VARIANTS = 3
BLOCK = 72
"""Train tasks of one block: every normal family in three variants."""
LATER = 100
"""Scenario number of the second block of train tasks; the third has the next one."""
SPLITS = ("train", "dev", "test_normal", "test_challenge", "control", "canary")

_SINGLES = ("pay", "request", "send_mail", "plan", "move", "assign", "forward", "save")
_PAIRS = (
    ("pay", "send_mail"),
    ("plan", "share"),
    ("request", "move"),
    ("assign", "forward"),
    ("save", "update_contact"),
    ("add_todo", "pay"),
    ("send_mail", "plan"),
    ("move", "complete"),
    ("share", "assign"),
    ("add_contact", "request"),
    ("archive", "plan"),
    ("share", "send_mail"),
    ("add_todo", "request"),
    ("complete", "pay"),
    ("add_contact", "assign"),
    ("update_contact", "move"),
)
LONG = (
    ("pay", "plan", "share"),
    ("request", "assign", "archive"),
    ("send_mail", "move", "save"),
    ("forward", "add_todo", "pay"),
    ("plan", "complete", "update_contact"),
    ("move", "request", "share", "send_mail"),
    ("assign", "pay", "add_contact", "plan"),
    ("send_mail", "add_todo", "move", "archive"),
)
CONTROL = "seal"
CANARIES = (("archive",), ("complete",), ("update_contact",))
"""Solved by whoever reads error messages: each rule of these is told, so no lesson is needed, and a loss means harm."""

NORMAL: tuple[tuple[str, ...], ...] = (*((intent,) for intent in _SINGLES), *_PAIRS)
COLORS = ("red", "green", "blue", "white")


@dataclass(frozen=True)
class Goal:
    """What one task really asks: its intents with their entities. The agent never sees it."""

    intents: tuple[tuple[Intent, Fields], ...]
    names: Names
    color: str = ""


def family_name(intents: tuple[str, ...]) -> str:
    """Return the family's name, e.g. `pay+send_mail`."""
    return "+".join(intents)


def scenarios(split: str) -> list[tuple[tuple[str, ...], int]]:
    """Return (family, scenario number) of a split; numbers never repeat across splits."""
    if split == "train":
        return [(family, 0) for family in NORMAL]
    if split == "dev":
        return [(family, 1) for family in NORMAL]
    if split == "test_normal":
        return [(family, 2) for family in NORMAL] + [(family, 3) for family in _PAIRS[:10]]
    if split == "test_challenge":
        return [(family, n) for n in (2, 3) for family in LONG] + [(LONG[0], 4)]
    if split == "canary":
        return [(family, n) for n in (20, 21) for family in CANARIES]
    return [((CONTROL,), n) for n in range(8)]


def draw_task(deployment: int, split: str, family: tuple[str, ...], scenario: int, variant: int) -> tuple[Task, Goal]:
    """Return a task and its goal, determined by the arguments alone."""
    name = family_name(family)
    rng = seeded("task", deployment, name, scenario, variant)
    names = draw_names(rng)
    goal = Goal((), names, rng.choice(COLORS)) if family == (CONTROL,) else Goal(_intents(family, names), names)
    task = Task(
        id=f"office-{deployment}/{name}-{scenario}_{variant}",
        instruction=_instruction(goal, scenario),
        environment="office",
        scenario=f"office-{deployment}/{name}-{scenario}",
        split=split,
        metadata={"family": name, "deployment": deployment},
    )
    return task, goal


def draw_split(deployment: int, split: str) -> list[tuple[Task, Goal]]:
    """Return the tasks of a split. Train tasks come shuffled, so that any prefix covers many families."""
    tasks = [
        draw_task(deployment, split, family, number, variant)
        for variant in range(1, VARIANTS + 1)
        for family, number in scenarios(split)
    ]
    if split == "train":
        seeded("order", deployment).shuffle(tasks)
    return tasks


def draw_train(deployment: int, count: int) -> list[tuple[Task, Goal]]:
    """Return a train split of `count` tasks: blocks of `BLOCK`, the first one the split as `draw_split` gives it.

    A longer split begins with the tasks of a shorter one.
    """
    tasks = draw_split(deployment, "train")
    for number in range(LATER, LATER + -(-count // BLOCK) - 1):
        block = [
            draw_task(deployment, "train", family, number, variant)
            for variant in range(1, VARIANTS + 1)
            for family in NORMAL
        ]
        seeded("order", deployment, number).shuffle(block)
        tasks += block
    return tasks[:count]


def _intents(family: tuple[str, ...], names: Names) -> tuple[tuple[Intent, Fields], ...]:
    return tuple((BY_INTENT[name], BY_INTENT[name].fields(names, i)) for i, name in enumerate(family))


def _instruction(goal: Goal, scenario: int) -> str:
    if goal.color:
        return f'seal the drawer "{goal.names.files[0]}" with its colour'
    said = [
        intent.texts[(scenario + i) % len(intent.texts)].format(**fields)
        for i, (intent, fields) in enumerate(goal.intents)
    ]
    return said[0] if len(said) == 1 else " ".join(f"{i}) {text}" for i, text in enumerate(said, 1))
