"""Single decisions under known truth: exact chances of acceptance, simulated arms, and streams with items under test.

Truth is a pair of rates: the share of all tasks that a change gains (F2P) and loses (P2F), noise included. A useless
change gains and loses as many as noise flips.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log
from random import Random

from evolve.gates.online_ab import draw, item_of
from evolve.statistics.evalues import Exposure
from evolve.statistics.paired import p_better
from memory.records import Record
from playbooks.kinds.bullet import Bullet

Arm = dict[str, bool | None]
_NOTHING = 1e-15


@dataclass(frozen=True)
class Truth:
    """What a change does to tasks, and what running them twice does (A/A)."""

    gains: float
    loses: float
    noise: float = 0.05
    """Share of tasks that flip in each direction when nothing changed; at most 1/4, that of a coin."""


def useless(noise: float = 0.05) -> Truth:
    """Return the truth of a change that does nothing."""
    return Truth(noise, noise, noise)


def acceptance(rule: Callable[[int, int], bool], n: int, gains: float, loses: float) -> float:
    """Return the exact chance that `rule(gained, lost)` holds at `n` tasks: a sum over the trinomial distribution."""
    total = 0.0
    for won in range(n + 1):
        for lost in range(n + 1 - won):
            same = n - won - lost
            ways = lgamma(n + 1) - lgamma(won + 1) - lgamma(lost + 1) - lgamma(same + 1)
            chance = exp(ways + won * log(gains) + lost * log(loses) + same * log(1 - gains - loses))
            if chance > _NOTHING and rule(won, lost):
                total += chance
    return total


def power(level: float, n: int = 200, gains: float = 0.12, loses: float = 0.04) -> float:
    """Return the exact chance that one-sided exact McNemar accepts at a level."""
    return acceptance(lambda won, lost: p_better(won, lost) <= level, n, gains, loses)


def arms(rng: Random, n: int, truth: Truth) -> tuple[Arm, Arm, Arm]:
    """Return base, candidate and base again over `n` tasks, half of which the base passes on average."""
    base: Arm = {f"t{at}": rng.random() < 0.5 for at in range(n)}
    return base, _flipped(rng, base, truth.gains, truth.loses), _flipped(rng, base, truth.noise, truth.noise)


def _flipped(rng: Random, base: Arm, gains: float, loses: float) -> Arm:
    return {task: bool(passed) ^ (rng.random() < 2 * (loses if passed else gains)) for task, passed in base.items()}


@dataclass(frozen=True)
class Live:
    """A stream of tasks with one item under test: success rates where it is shown and where it is hidden."""

    shown: Sequence[float]
    """One rate per kind of task; kinds come in turn."""
    hidden: Sequence[float]
    probability: float = 0.25


def stream(rng: Random, live: Live, tasks: int) -> tuple[Exposure, ...]:
    """Return the exposures of a stream."""
    found: list[Exposure] = []
    for at in range(tasks):
        kind, hidden = at % len(live.shown), rng.random() < live.probability
        passed = rng.random() < (live.hidden if hidden else live.shown)[kind]
        exposure = Exposure(
            task_id=f"t{at}", hidden=hidden, probability=live.probability, passed=passed, stratum=str(kind)
        )
        found.append(exposure)
    return tuple(found)


def beside_others(seed: int, tasks: int, probability: float) -> tuple[Exposure, ...]:
    """Return the exposures of a useless item beside one that helps and one that harms, with lots as runs draw them.

    Nothing else is known, so one of the three is shown in any case. A task is solved where the one that helps is shown
    and the one that harms is not, half of the others too.
    """
    rng = Random(seed)
    items = [Record[Bullet](id=f"r{n}", kind="bullet", number=n, payload=Bullet(content=f"{n}")) for n in range(3)]
    useless, helps, harms = map(item_of, items)
    found: list[Exposure] = []
    for at in range(tasks):
        lots = draw(items, str(at), seed, probability)
        passed = (not lots.get(helps, False) and lots.get(harms, False)) or rng.random() < 0.5
        if useless in lots:
            exposure = Exposure(task_id=f"t{at}", hidden=lots[useless], probability=probability, passed=passed)
            found.append(exposure)
    return tuple(found)
