"""The scripted solver as a skill agent: it calls the skills it is shown, and writes the ones it misses.

One action does one intent: a call where the catalogue has a skill for it, else a function with its call. A skill that
fails is written anew under its name. What stands in a function is what the solver believes about the house rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.environments.office.entities import draw_names
from evolve.environments.office.families import Goal
from evolve.environments.office.house_rules import Rule, Values, seeded
from evolve.environments.office.intents import Fields, Intent
from evolve.environments.office.solver import DONE, Knowledge

SKILLS = "skills:"
"""The line of a compact prompt under which skills are listed."""
_MARK = "\0"


@dataclass(frozen=True)
class Listed:
    """A skill as the compact catalogue lists it: `- phrase: name(parameters)`."""

    phrase: str
    name: str
    parameters: tuple[str, ...]

    @classmethod
    def read(cls, line: str) -> Listed | None:
        """Return what a line of the catalogue lists; None when it is none."""
        phrase, colon, call = line.removeprefix("- ").rpartition(": ")
        name, bracket, rest = call.partition("(")
        if not (colon and bracket and rest.endswith(")")):
            return None
        return cls(phrase, name, tuple(part.strip() for part in rest[:-1].split(",") if part.strip()))


def parameters(intent: Intent) -> tuple[str, ...]:
    """Return the entities of an intent, in the order in which it names them."""
    return tuple(intent.fields(draw_names(seeded("parameters")), 0))


def phrases(intent: Intent) -> tuple[str, ...]:
    """Return how an intent is said, each entity replaced by its name."""
    return tuple(text.replace('"', "").format(**{each: each for each in parameters(intent)}) for text in intent.texts)


def written(intent: Intent, values: Values, name: str, order: Sequence[str], phrase: str) -> str:
    """Return the source of a skill that does an intent by the house rules in `values`."""
    marks: Fields = {each: f"{_MARK}{each}{_MARK}" for each in order}
    lines = [*intent.lookup(marks, values), *intent.write(marks, values)]
    body = "\n".join(f"    {line}" for line in lines if not line.startswith("print("))
    for each, mark in marks.items():
        body = body.replace(f'"{mark}"', each).replace(mark, each)
    typed = ", ".join(f"{each}: {'float' if each == 'amount' else 'str'}" for each in order)
    return f'def {name}({typed}) -> None:\n    """{phrase}"""\n{body}'


def called(name: str, order: Sequence[str], fields: Fields) -> str:
    """Return the call of a skill with the entities of a task."""
    given = (fields[each] if each == "amount" else f'"{fields[each]}"' for each in order)
    return f"{name}({', '.join(given)})"


def next_action(
    goal: Goal, knowledge: Knowledge, observations: Sequence[str], skills: Sequence[Listed], scenario: int = 0
) -> str:
    """Return the code to run after `observations`, one per action so far. Changes `knowledge` by what they say.

    `scenario` decides which of an intent's two phrases describes a new skill.
    """
    done, broken = 0, False
    for observation in observations:
        if done >= len(goal.intents):
            break
        error = observation.partition("error: ")[2]
        if error:
            intent = goal.intents[done][0]
            guessed = broken or find(intent, skills) is None
            knowledge.learn(error, rules(intent) if guessed else ())
            broken = True
        else:
            done, broken = done + 1, False
    if done >= len(goal.intents):
        return DONE
    intent, fields = goal.intents[done]
    header = [f"# {done + 1}"] if len(goal.intents) > 1 else []
    skill = find(intent, skills)
    if skill is not None and not broken:
        return "\n".join([*header, called(skill.name, skill.parameters, fields)])
    phrase = phrases(intent)[(scenario + done) % len(intent.texts)]
    new = skill or Listed(phrase, intent.id, parameters(intent))
    source = written(intent, knowledge.values, new.name, new.parameters, new.phrase)
    return "\n".join([*header, *knowledge.plan(rules(intent)), source, called(new.name, new.parameters, fields)])


def find(intent: Intent, skills: Sequence[Listed]) -> Listed | None:
    """Return the first skill that does an intent, by its description; one that takes other entities does not."""
    said, takes = phrases(intent), set(parameters(intent))
    return next((each for each in skills if each.phrase in said and set(each.parameters) == takes), None)


def rules(intent: Intent) -> tuple[Rule, ...]:
    """Return the house rules that an intent falls under."""
    return (*intent.lookup_rules, *intent.write_rules)
