"""Claim loop_2: it remembers. A second process, and the workspace carried elsewhere, start at the learned level.

One process works through a stream and learns. A second one evaluates the same workspace, frozen; the archive of
`evolve export --workspace` is taken up by `evolve init --from` in another folder and evaluated by a third. All three
evaluations must agree task by task. The next run there starts with what is known: it must solve more of its first tasks
than the first run, which knew nothing, solved of the same ones. Learners: the `rules` reflector with the scripted
worker always, and the pocket model's own reflection where its weights are installed.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.claim import Row, at_least, begin, exactly
from benchmarks.shell import BY_RULES, SCRIPTED, done, evolve, settings
from policies.local.local_policy import POCKET

NEXT = 12
"""Tasks of the run that starts anew from what is known."""


@dataclass(frozen=True)
class Learner:
    """Who learns, and on how many tasks it is evaluated."""

    name: str
    policy: str
    lessons: str
    deployment: int
    train: int
    test: int


@dataclass(frozen=True)
class Found:
    """Success in percent at each point, and how many tasks ended differently from the first evaluation."""

    cold: float
    same_process: float
    second: float
    elsewhere: float
    changed: int
    next_run: float
    first_tasks: float
    records_equal: bool


def learners(quick: bool) -> list[Learner]:
    """Return the learners that can run here."""
    size = {"train": 24, "test": 24} if quick else {"train": 60, "test": 102}
    found = [Learner("rules and worker", SCRIPTED, BY_RULES, 3, **size)]
    if POCKET.is_dir():
        pocket = {"train": 12, "test": 12} if quick else size
        found.append(Learner("pocket model", 'name = "pocket"', "", 3, **pocket))
    return found


def measure(learner: Learner, scratch: Path) -> Found:
    """Learn, evaluate, carry away, evaluate again; every step is a process of its own."""
    here, there = scratch / "here", scratch / "there"
    settings(here, tasks=learner.train, policy=learner.policy, learner=learner.lessons, deployment=learner.deployment)
    test = ("eval", "--limit", str(learner.test), "--json")
    cold = main_arm(done(evolve(here, *test, "--no-memory")))
    stream = done(evolve(here, "run", "--json"))
    first, second = (main_arm(done(evolve(here, *test))) for _ in range(2))
    exported = done(evolve(here, "export", "--workspace", str(scratch / "w.tar.gz"), "--json"))
    arrived = done(evolve(scratch, "init", "there", "--from", str(scratch / "w.tar.gz"), "--json"))
    elsewhere = main_arm(done(evolve(there, *test)))
    lists = [done(evolve(folder, "playbook", "list", "--all", "--json")) for folder in (here, there)]
    anew = done(evolve(there, "run", "--limit", str(NEXT), "--json"))
    return Found(
        cold=100 * cold["metrics"]["tgc"],
        same_process=100 * first["metrics"]["tgc"],
        second=100 * second["metrics"]["tgc"],
        elsewhere=100 * elsewhere["metrics"]["tgc"],
        changed=sum(
            first["passed"][task] != other["passed"][task] for other in (second, elsewhere) for task in first["passed"]
        ),
        next_run=100 * anew["whole"]["tgc"],
        first_tasks=100 * sum(stream["curve"][:NEXT]) / NEXT,
        records_equal=lists[0] == lists[1] and exported["sha256"] == arrived["sha256"],
    )


def main_arm(report: Any) -> Any:
    """Return the evaluation with memory, or the only one."""
    return next((e for e in report["evaluations"] if e["arm"] == "main"), report["evaluations"][0])


def rows(learner: Learner, found: Found) -> list[Row]:
    """Return the figures of one learner."""
    name, n = learner.name, learner.test
    return [
        Row(
            f"{name}: tasks that end differently in the second process or elsewhere", found.changed, exactly(0), n=2 * n
        ),
        Row(f"{name}: records and trust elsewhere equal (1 = yes)", float(found.records_equal), exactly(1)),
        Row(f"{name}: learned minus cold, points", found.second - found.cold, at_least(10), n=n),
        Row(
            f"{name}: first {NEXT} tasks of the next run minus those of the first, points",
            found.next_run - found.first_tasks,
            at_least(10),
            n=NEXT,
        ),
        Row(f"{name}: cold, %", found.cold, n=n),
        Row(f"{name}: after learning, %", found.same_process, n=n),
        Row(f"{name}: second process, %", found.second, n=n),
        Row(f"{name}: elsewhere, %", found.elsewhere, n=n),
    ]


def main() -> None:
    """Measure and record."""
    claim = begin("loop_2_remembers", __doc__)
    measured: list[Row] = []
    for learner in learners(claim.quick):
        with tempfile.TemporaryDirectory(prefix="evolve-remember-") as scratch:
            measured += rows(learner, measure(learner, Path(scratch)))
    if not POCKET.is_dir():
        print("pocket model: not measured, its weights are not installed (`make pocket`)")
    claim.record(measured)
    raise SystemExit(0 if all(row.ok is not False for row in measured) else 1)


if __name__ == "__main__":
    main()
