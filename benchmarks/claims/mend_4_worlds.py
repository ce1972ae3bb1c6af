"""Claim mend_4: reflector `rules` learns in worlds that others write: a text game, a database, a desk with tools.

Each world's rules are drawn from a seed; ten seeds, train tasks online under the default gates, then held-out tasks.
Controls of the same run: the same held-out tasks without memory, the frozen memory again (A/A), and the whole life with
reflector `none`, under which nothing can be learned. Intervals are over seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from benchmarks.claim import Row, Target, at_least, begin
from benchmarks.foreign_worlds import WORLDS, Life, live
from evolve.statistics.clusters import Pairing, compare

SEEDS, QUICK_SEEDS = 10, 3
LOWER = "lower end of that interval"


def rows(name: str, lives: Sequence[Life], control: Sequence[Life]) -> list[Row]:
    """Return the figures of one world."""
    found = compare([each.memory for each in lives])
    n = found.n
    with_memory, without = (100 * mean(getattr(each, arm) for each in lives) for arm in ("with_memory", "without"))
    return [
        _difference(
            f"{name}: held-out with memory minus without, points", [each.memory for each in lives], at_least(20)
        ),
        Row(f"{name}: {LOWER}, points", 100 * found.low, Target("> 0", lambda low: low > 0), n=n),
        Row(f"{name}: solved with memory, %", with_memory, n=n),
        Row(f"{name}: solved without memory, % (control)", without, n=n),
        _difference(f"{name}: the frozen memory again, points (A/A)", [each.again for each in lives]),
        Row(f"{name}: changes applied in a life", mean(each.applied for each in lives), n=len(lives)),
        _difference(f"{name}: reflector none, points (control)", [each.memory for each in control]),
    ]


def _difference(title: str, pairings: Sequence[Pairing], target: Target | None = None) -> Row:
    found = compare(pairings)
    return Row(title, 100 * found.delta, target, n=found.n, ci=(100 * found.low, 100 * found.high))


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed; three seeds give no interval."""
    claim = begin("mend_4_worlds", __doc__)
    found: list[Row] = []
    for name in WORLDS:
        lives, control = list[Life](), list[Life]()
        for seed in range(QUICK_SEEDS if claim.quick else SEEDS):
            lives.append(live(name, seed))
            control.append(live(name, seed, reflector="none"))
            print(name, seed, lives[-1].with_memory, lives[-1].without, lives[-1].applied, flush=True)
        found += rows(name, lives, control)
    claim.conclude([row for row in found if not claim.quick or LOWER not in row.claim])


if __name__ == "__main__":
    main()
