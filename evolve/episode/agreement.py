"""Agreement among attempts (self-consistency, arXiv 2203.11171): where nobody grades, what several samples answered.

Samples that are right give the same answer more often than samples that are wrong, since there are many ways to be
wrong. What an answer is the environment says (`HasAnswers`): the last observation alone is the same for right and wrong
where it only says that something was done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.protocols import Environment, HasAnswers
from evolve.usercode import ask
from memory.records import Trajectory

AGREEMENT = "agreement"
"""Value of `run.judge`."""


def check(config: Config, environment: Environment) -> None:
    """Raise `ConfigError` where answers are to be compared and the environment does not say what one is."""
    if config.run.judge == AGREEMENT and not isinstance(environment, HasAnswers):
        raise ConfigError(
            f"run.judge = 'agreement' compares what attempts answered, and environment {environment.name!r} does not "
            "say what an answer is: give it `answer(episode)`, or name another judge"
        )


def answers(environment: Environment, attempts: Sequence[Trajectory]) -> list[str | None]:
    """Return the answer of each attempt, as the environment reads it; it is shown no grade.

    Raises `UserCodeError` for a bug in the environment.
    """
    plain = (each.model_copy(update={"outcome": None}) for each in attempts)
    return [ask(environment, "answer", str | None, each) for each in plain]


def commonest(given: Sequence[str | None]) -> str | None:
    """Return the answer that was given most often: what self-consistency answers with. Of equals it is the earliest;
    None where no attempt gave one."""
    often = Counter(answer for answer in given if answer is not None).most_common(1)
    return often[0][0] if often else None


def agreed(given: Sequence[str | None]) -> str | None:
    """Return the answer that at least half of the attempts gave, and no other as often; None where there is none.

    One attempt alone agrees with nobody.
    """
    often = Counter(answer for answer in given if answer is not None).most_common(2)
    if not often or often[0][1] < 2 or 2 * often[0][1] < len(given):
        return None
    return None if len(often) > 1 and often[1][1] == often[0][1] else often[0][0]
