"""Claim gates_3: how often gates err. False accepts and power of the default stack, strict looks, online A/B, replay.

Changes and groups are taken through the gates as runs take them, in worlds whose truth is known; looks and streams are
simulated with the gates' own `decide`, or summed exactly. A target of 5 % is the level of an error: gates that accept
nothing keep it too. How many good changes the same gates accept stands beside it, for the default stack and `online_ab`
without a target. Of strict looks it has one. The last rows are of real runs (the office's scripted worker), whose
decisions are made again from their journals. The exact form of the reference's table of chances is a test
(`test_statistics_paired`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from statistics import mean, median

from benchmarks.claim import Row, Target, at_least, at_most, begin, exactly
from benchmarks.gate_replay import replayed
from benchmarks.gate_trials import Live, Truth, arms, beside_others, power, stream, useless
from benchmarks.gate_worlds import USELESS, Effect, Life, World, lives, share
from evolve.episode.metrics import interval
from evolve.gates import batch_screen, held_out_rules, online_ab, utility
from evolve.statistics.alpha import ALPHA, Look, level
from evolve.statistics.clusters import t_interval
from evolve.statistics.evalues import Exposure, first_reached, wealth
from evolve.statistics.paired import minimum_wins

SEED = 3
NOISE = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25)
"""Share of tasks that flip in each direction without any change; 0.25 is a coin."""
SHAKY = (World(0.05, 1), World(0.25, 0), World(0.25, 1))
LOOKS = 4
"""Batches: each brings another useless change, with which the first is looked at again while it waits."""
GOOD = Truth(0.12, 0.04, 0.04)
EIGHT, NOISE_OF_GOOD = Effect(helps=0.088), 0.0436
"""12 % gained and 4 % lost: 8.8 % of the tasks are solved with it, beside what chance flips."""
HELP, HARM = Effect(helps=0.1, moves=0.1), Effect(harms=0.08)
STRICT = held_out_rules.Rules(mode="strict")
HIDE = online_ab.Rules().probability
MINIMUM_WINS = "5/5 6/6 7/7 7/8 8/9 9/10 9/11 10/12 10/13 11/14 12/15 12/16 13/17 13/18 14/19 15/20"
"""Reference, section 5.6: least wins of so many discordant tasks for one-sided exact p < 0.05."""


@dataclass(frozen=True)
class Size:
    """How many trials; a small sample leaves room for chance."""

    trials: int = 2000
    powers: int = 500
    groups: int = 200
    streams: int = 2000
    stream_tasks: int = 1000
    runs: int = 300
    replays: int = 1000
    run_tasks: int = 72
    live_runs: int = 3
    slack: float = 0.0


QUICK = Size(
    trials=40,
    powers=10,
    groups=12,
    streams=60,
    stream_tasks=150,
    runs=10,
    replays=40,
    run_tasks=72,
    live_runs=2,
    slack=0.05,
)


def rate(claim: str, hits: int, n: int, target: Target | None = None) -> Row:
    """Return the row of a share, in %, with its exact interval."""
    ends = interval(hits, n, "exact")
    return Row(claim, 100 * hits / n, target, n=n, ci=(100 * ends.low, 100 * ends.high), seed=SEED)


def change_rows(size: Size) -> list[Row]:
    """Return how often the default stack accepts a useless change, in all looks at it, and a good one at its first."""
    rows: list[Row] = []
    worlds = [World(noise, 0) for noise in NOISE] + [World(noise, 1) for noise in (0.0, 0.05, 0.25)]
    for n, some in ((16, worlds), (12, SHAKY), (24, SHAKY), (48, SHAKY), (72, SHAKY), (200, SHAKY)):
        for world in some:
            found = lives(SEED, size.trials, [[USELESS]] * LOOKS, n, world)
            hits = sum("0.0" in life.accepted for life in found)
            text = f"default stack, n = {n}: useless change ever accepted, {described(world)}, %"
            rows.append(rate(text, hits, size.trials, at_most(5 + 100 * size.slack)))
    for n in (16, 48, 72, 200):
        for world in (World(NOISE_OF_GOOD, 0), World(NOISE_OF_GOOD, 1)):
            found = lives(SEED, size.powers, [[EIGHT]], n, world, screen=False)
            hits = sum(bool(life.accepted) for life in found)
            text = f"held_out, n = {n}: +8 points accepted at the first look, {described(world)}, %"
            rows.append(rate(text, hits, size.powers))
            text = f"held_out, n = {n}: +8 points, {described(world)}: episodes of that look, mean"
            rows.append(Row(text, mean(life.episodes for life in found), n=size.powers, seed=SEED))
    return rows


def group_rows(size: Size) -> list[Row]:
    """Return what becomes of changes that come together: all useless; one harmful or useless among good ones."""
    rows: list[Row] = []
    for n, k in ((n, k) for n in (16, 72) for k in (1, 2, 4, 8, 16)):
        text, names = f"default stack, n = {n}, {k} at once:", [f"0.{place}" for place in range(k)]
        found = lives(SEED, size.groups, [[USELESS] * k], n)
        target = at_most(5 + 200 * size.slack)
        rows.append(spread(f"{text} useless, share of them accepted, %", found, names, target))
        rows.append(Row(f"{text} useless, episodes, mean", mean(life.episodes for life in found), n=len(found)))
        for kind, effect in (("harmful", HARM), ("useless", USELESS)) if k > 1 else ():
            found = lives(SEED, size.groups, [[HELP] * (k - 1) + [effect]], n)
            bad = at_most(5 + 400 * size.slack) if kind == "harmful" else None
            rows.append(spread(f"{text} one {kind}, {k - 1} good: the {kind} accepted, %", found, names[-1:], bad))
            if kind == "harmful":
                rows.append(spread(f"{text} one {kind}, {k - 1} good: good accepted, %", found, names[:-1]))
                rows.append(
                    Row(
                        f"{text} one {kind}, {k - 1} good: episodes, mean",
                        mean(x.episodes for x in found),
                        n=len(found),
                    )
                )
    return rows


def spread(claim: str, found: Sequence[Life], names: Sequence[str], target: Target | None = None) -> Row:
    """Return the row of the share of some changes that was accepted, in %, with its t interval over lives."""
    shares = [100 * share([life], *names) for life in found]
    ci = t_interval(shares) if len(set(shares)) > 1 else None
    return Row(claim, mean(shares), target, n=len(found), ci=ci, seed=SEED)


def described(world: World) -> str:
    """Return what chance does in a world."""
    return f"noise {100 * world.noise:g} % each way" + ", progress never the same" * (world.wavers > 0)


def strict_rows(size: Size) -> list[Row]:
    """Return the power at the first and the 20th look, exactly, and the useless share of what long runs accept."""
    pasts = [[Look(p=0.0, accepted=t in five) for t in range(1, 20)] for five in combinations(range(1, 20), 5)]
    levels = [level(past) for past in (pasts[:: max(1, len(pasts) // size.trials)] + pasts[:1])]
    known = {each: power(each) for each in set(levels)}
    found = [known[each] for each in levels]
    text = "strict, +8 points at n = 200: accepted at the"
    shares = [false_share(Random(SEED + at)) for at in range(size.runs)]
    expected = {int(flips): int(wins) for wins, flips in (pair.split("/") for pair in MINIMUM_WINS.split())}
    expected |= dict.fromkeys(range(5))
    wrong = sum(minimum_wins(flips) != wins for flips, wins in expected.items())
    return [
        Row("minimum wins for p < 0.05, 0 to 20 discordant tasks: differ from the table", wrong, exactly(0), n=21),
        Row(f"{text} first look, exact, %", 100 * power(level([])), at_least(75)),
        Row(f"{text} 20th after 5 acceptances, worst places, exact, %", 100 * min(found), at_least(50)),
        Row(f"{text} 20th after 5 acceptances, mean over places, %", 100 * mean(found), at_least(50), n=len(found)),
        Row(f"{text} 20th after none, exact, %", 100 * power(level([Look(p=1.0, accepted=False)] * 19))),
        Row(
            "strict, 40 looks of which 70 % at useless changes: useless among the accepted, %",
            100 * mean(shares),
            at_most(100 * (ALPHA + size.slack)),
            n=size.runs,
            seed=SEED,
        ),
    ]


def false_share(rng: Random) -> float:
    """Return the share of useless changes among those that 40 strict looks at n = 200 accept."""
    past: list[Look] = []
    bad = 0
    for _ in range(40):
        works = rng.random() < 0.3
        base, candidate, _ = arms(rng, 200, GOOD if works else useless(0.05))
        trial = held_out_rules.HeldOutTrial(cohort=tuple(base), base=base, candidate=candidate, past=tuple(past))
        decision = held_out_rules.decide(trial, STRICT)
        past.append(Look(p=decision.evidence["statistics"]["p_better"], accepted=decision.accepted))
        bad += decision.accepted and not works
    return bad / max(1, sum(look.accepted for look in past))


def same(*rates: float) -> Live:
    """Return a stream in which showing the item changes nothing; one rate per kind of task."""
    return Live(rates, rates, HIDE)


STREAMS = {
    "half of the tasks solved": (same(0.5),),
    "easy and hard kinds": (same(0.95, 0.5, 0.05),),
    "24 kinds": (same(*[0.9, 0.6, 0.3] * 8),),
    "getting better from 20 % to 80 %": (same(0.2), same(0.8)),
}
HELPS = {
    "solved 20 % without and 80 % with it": Live((0.8,), (0.2,), HIDE),
    "solved 40 % without and 70 % with it": Live((0.7,), (0.4,), HIDE),
    "solved 50 % without and 60 % with it": Live((0.6,), (0.5,), HIDE),
    "4 kinds of 24 solved 0 % without and 80 % with it, the others 80 %": Live(
        (0.8,) * 24, (0.0,) * 4 + (0.8,) * 20, HIDE
    ),
}


def online_rows(size: Size) -> list[Row]:
    """Return how often watching after every task ends in a wrong yes, and how soon what helps is found."""
    rows: list[Row] = []
    for text, parts in STREAMS.items():
        rng, part = Random(SEED), size.stream_tasks // len(parts)
        hits = sum(ever(streamed(rng, parts, part)) is not None for _ in range(size.streams))
        claim = f"online_ab, watched after every task, useless item, {text}: ever accepted, %"
        rows.append(rate(claim, hits, size.streams, at_most(5 + 100 * size.slack)))
    hits = sum(ever(beside_others(at, size.stream_tasks, HIDE)) is not None for at in range(size.streams))
    claim = "online_ab, useless item beside one that helps and one that harms, all under test: ever accepted, %"
    rows.append(rate(claim, hits, size.streams, at_most(5 + 100 * size.slack)))
    for text, live in HELPS.items():
        rng = Random(SEED)
        found = [ever(stream(rng, live, size.stream_tasks)) for _ in range(size.streams)]
        when = [at for at in found if at is not None]
        claim = f"online_ab, {text}:"
        rows.append(rate(f"{claim} accepted within {size.stream_tasks} tasks, %", len(when), size.streams))
        rows.append(Row(f"{claim} tasks until then, median", median(when) if when else None, n=len(when), seed=SEED))
    return rows


def streamed(rng: Random, lives: Sequence[Live], tasks: int) -> list[Exposure]:
    """Return the exposures of streams that follow each other."""
    return [each for live in lives for each in stream(rng, live, tasks)]


def ever(exposures: Sequence[Exposure]) -> int | None:
    """Return after how many tasks the bets first say yes; None if never."""
    return first_reached(wealth(exposures), 1 / online_ab.Rules().alpha)


def replay_row(size: Size) -> Row:
    """Return how many decisions of every gate come out differently when made again from their evidence."""
    rng, differ = Random(SEED), 0
    for _ in range(size.replays):
        base, candidate, again = arms(rng, 60, Truth(0.2, 0.05))
        ids = tuple(base)
        held = held_out_rules.HeldOutTrial(cohort=ids, base=base, candidate=candidate, again=again)
        fresh = utility.UtilityTrial(cohort=ids, without=(base, again), with_change=(candidate, candidate))
        shown = online_ab.OnlineTrial(exposures=stream(rng, Live((0.7,), (0.3,)), 60))
        made = (
            (
                batch_screen.replay,
                batch_screen.decide(batch_screen.ScreenTrial(cohort=ids, base=base, candidate=candidate)),
            ),
            (held_out_rules.replay, held_out_rules.decide(held)),
            (held_out_rules.replay, held_out_rules.decide(held, STRICT)),
            (utility.replay, utility.decide(fresh)),
            (online_ab.replay, online_ab.decide(shown)),
        )
        differ += sum(replay(json.loads(json.dumps(each.evidence))) != each for replay, each in made)
    return Row(
        "decisions of five kinds that come out differently from their evidence", differ, exactly(0), n=5 * size.replays
    )


def run_rows(size: Size) -> list[Row]:
    """Return, gate by gate, how many decisions of real runs come out differently when made again from the journal.

    A gate that came to no decision is not measured, and its target not met.
    """
    made, differ = replayed(size.run_tasks, size.live_runs)
    text = "decisions in the journals of scripted runs that come out differently:"
    gates = ("batch_screen", "held_out", "utility", "online_ab", "e-values")
    return [Row(f"{text} {gate}", differ[gate] if made[gate] else None, exactly(0), n=made[gate]) for gate in gates]


def measure(size: Size) -> list[Row]:
    """Return all figures."""
    return [
        *change_rows(size),
        *group_rows(size),
        *strict_rows(size),
        *online_rows(size),
        replay_row(size),
        *run_rows(size),
    ]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("gates_3_false_accepts", __doc__)
    rows = measure(QUICK if claim.quick else Size())
    claim.conclude(rows)


if __name__ == "__main__":
    main()
