"""Gate `held_out`: tasks that no knowledge was written from, run with and without the change on the same seeds.

What is accepted: `evolve.gates.held_out_rules`; what of it mattered: `evolve.gates.ablation`. Each look has a seed of
its own, for both arms: were the base run once and kept, its bad luck would speak for every candidate that follows.
Never run on the report split.

A practical look goes in stages: `first` tasks, then twice as many, up to all, until the answer is plain; all stages of
all looks at a change spend of one small error (`evolve.statistics.spending`). Nothing is accepted before all tasks of
the protected slices were run. A/A runs only where the answer hangs on it; where it flips nothing, the base with a text
that says nothing runs besides, since a greedy policy answers another prompt in another way. What the looks before this
one spent of the error of a change, and of episodes, is read back from their evidence.

The good ops among many are found with few looks: all at once first, halves where good and bad are mixed (group
testing). Every group is tested on top of what was admitted before it, and what of an accepted one is not missed when it
is left out is not admitted. Each of k bad ops among N costs about log2(N) looks more. What cannot be afforded waits,
and so does what looks good and is too little to tell: it is tested again when more has come to it, at most `patience`
times in all, so that nothing waits for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolve.config.model import Config
from evolve.episode.trust import text_of
from evolve.gates.ablation import Ablated, Ablation, Seen
from evolve.gates.batch_screen import BatchScreen
from evolve.gates.call_budget import OutOfCalls
from evolve.gates.canary import SLICE, Canary, canary_tasks
from evolve.gates.context import GateContext
from evolve.gates.decisions import Round, ablated_of, evidence_of, rounds_of, verdict_of
from evolve.gates.gate_events import told, verdicts
from evolve.gates.held_out_rules import (
    NAME,
    HeldOutTrial,
    Options,
    Rules,
    decide,
    floor,
    look_of,
    looks,
    options_of,
    replay,
    strict_looks,
)
from evolve.gates.splits import select_tasks, slices
from evolve.seeds import seed_for
from evolve.statistics.alpha import Look
from evolve.statistics.decision import Decision, Evaluate, apart, changes, differing, drawn_by
from evolve.statistics.paired import Passed, p_better, pair
from evolve.statistics.partial_progress import Marks, further, reaches
from evolve.statistics.spending import level_of, stages
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Op, Status, Task, Trajectory, Verdict
from playbooks.similarity import exact_key
from skills.record import Skill

PATIENCE = 3
"""Looks after which a change that seems good, and is not seen to be, is refused."""
PLACEBO = DeltaOp(
    op=Op.ADD, op_id="placebo", payload={"content": "This line says nothing."}, status=Status.ACTIVE, pinned=True
)
"""A text that is in every prompt and says nothing."""
HALF = 0.5
"""Share of the episodes from which skills wait while a text waits for calls."""


class HeldOut:
    """Runs the select split with and without the ops; `tasks` in an order of which any prefix is a fair sample."""

    name = NAME

    def __init__(
        self,
        evaluate: Evaluate,
        tasks: Sequence[Task],
        seed: int,
        *,
        rules: Rules | None = None,
        slices: Mapping[str, Sequence[str]] | None = None,
        past: Callable[[], Sequence[Verdict]] = tuple,
    ) -> None:
        self._evaluate, self.tasks, self._seed = evaluate, tuple(tasks), seed
        self._rules, self._past = rules or Rules(), past
        self.told: Callable[[], Mapping[str, str]] = dict
        """Returns op id -> what it says, of every change that was proposed before (`gate_events.told`)."""
        self._slices = {name: tuple(ids) for name, ids in (slices or {}).items()}
        protected = {task for ids in self._slices.values() for task in ids}
        self._guarded = max((at for at, task in enumerate(self.tasks, 1) if task.id in protected), default=0)

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict on each change, texts first; while one waits for calls, skills have half of what is run.

        Counters spend no look, nor do changes that were all looked at together.
        """
        past, rounds, ablated, waiting = self._past(), list[Round](), list[Round](), dict[str, str]()
        seen = [each for v in past if v.gate == self.name for each in rounds_of(v)]
        proved = [op_id for v in past if v.gate == BatchScreen.name for op_id in v.accepted if _missed(v, op_id)]
        ablation = Ablation(
            self._evaluate, view, trajectories, floor=self._rules.trust, first=self._rules.first, proved=proved
        )
        short: OutOfCalls | None = None
        for group in apart(changes(ops), Skill.kind):
            if short is not None and share_of_code([*seen, *map(evidence_of, rounds)]) >= HALF:
                waiting |= dict.fromkeys((op.op_id for op in group), f"{short}; texts come first")
                continue
            found = await self._search(group, past, rounds, ablation)
            rounds, ablated = [*rounds, *found.rounds], [*ablated, *found.ablated]
            waiting, short = waiting | found.waiting, found.short
        return verdict_of(self.name, ops, rounds, waiting, ablated)

    async def look(
        self, group: Sequence[DeltaOp], seen: Sequence[Evidence]
    ) -> tuple[Decision | None, OutOfCalls | None]:
        """Return what one look says of a group as a whole, its parts unasked; `seen` is what earlier such looks found.

        With the reason where not all of its runs can be afforded, and then what the first of them say, or None.
        """
        if self._rules.mode == "strict":
            return await self._strict((), group, strict_looks(seen))
        return await self._practical((), group, seen)

    def finished(self, evidence: Evidence) -> bool:
        """Tell whether a look at a group as a whole has said all that it could."""
        return self._whole(evidence) or self._plain(replay(evidence), many=len(evidence["ops"]) > 1)

    async def _search(
        self, changed: Sequence[DeltaOp], past: Sequence[Verdict], earlier: Sequence[Round], ablation: Ablation
    ) -> Found:
        """Return what `search` does about some changes, given what was decided before.

        What a look accepted before, without calls for its parts, is taken up first and by itself: that look is known.
        """
        seen = [each for v in past if v.gate == self.name for each in rounds_of(v)]
        ids = [op.op_id for op in changed]
        same = [each for each in seen if sorted(each["ops"]) == sorted(ids) and self._whole(each)]
        if any(not replay(each).accepted for each in same):
            text = "waits for more: looked at, and nothing new since"
            return Found(waiting=dict.fromkeys(ids, text))
        asked = [op_id for v in past if v.gate == self.name for each in ablated_of(v) for op_id in each["ops"]]
        first = {op_id for each in seen if replay(each).accepted for op_id in each["ops"]} - set(asked)
        known = self._as_now(seen, changed)

        async def look(
            before: Sequence[DeltaOp], group: Sequence[DeltaOp], rounds: Sequence[Round]
        ) -> tuple[Decision | None, OutOfCalls | None]:
            now = [*earlier, *rounds]
            if self._rules.mode == "strict":
                return await self._strict(before, group, (*looks(past), *(look_of(each.decision) for each in now)))
            return await self._practical(before, group, [*known, *map(evidence_of, now)])

        def tried(op_id: str) -> int:
            return sum(op_id in each["ops"] and self._ended(each) for each in known) + asked.count(op_id)

        async def ablate(before: Sequence[DeltaOp], group: Sequence[DeltaOp], decision: Decision) -> Ablated:
            trial = HeldOutTrial.model_validate(decision.evidence["trial"])
            tasks = tuple(task for task in self.tasks if task.id in trial.cohort)
            moved = Seen(tasks, *(further(trial.cohort, trial.base, trial.candidate, trial.reach)))
            return await ablation.judge(before, group, moved, self._seed_of(group))

        groups = [[op for op in changed if (op.op_id in first) is begun_before] for begun_before in (True, False)]
        return await search(groups, look, ablate, tried=tried, patience=PATIENCE)

    def _whole(self, evidence: Evidence) -> bool:
        return len(evidence["trial"]["cohort"]) == len(self.tasks)

    def _ended(self, evidence: Evidence) -> bool:
        """Tell whether a look has said all that it could: at all tasks, or of one change what more would not alter."""
        alone = self._rules.mode == "practical" and len(evidence["ops"]) == 1
        return self._whole(evidence) or (alone and self._plain(replay(evidence), many=False))

    def _as_now(self, seen: Sequence[Evidence], ops: Sequence[DeltaOp]) -> list[Evidence]:
        """Return earlier looks under the ids of today: a text that was drawn again has no new error to spend."""
        now = {exact_key(text): op.op_id for op in ops if (text := text_of(op))} if seen else {}
        ids = {old: now[text] for old, text in self.told().items() if text in now} if now else {}
        return [{**each, "ops": [ids.get(key, key) for key in each["ops"]]} for each in seen]

    async def _strict(
        self, before: Sequence[DeltaOp], group: Sequence[DeltaOp], past: Sequence[Look]
    ) -> tuple[Decision | None, OutOfCalls | None]:
        try:
            base, candidate = await self._arms(before, group, differing(self._evaluate, before, group, self.tasks))
        except OutOfCalls as short:
            return None, short
        return decide(
            self._trial(self.tasks, base, candidate).model_copy(update={"past": tuple(past)}), self._rules
        ), None

    async def _practical(
        self, before: Sequence[DeltaOp], group: Sequence[DeltaOp], looked: Sequence[Evidence]
    ) -> tuple[Decision | None, OutOfCalls | None]:
        """Decide from as few tasks as will do. Out of calls, it gives what the stages before had to say."""
        rules = self._rules
        decision: Decision | None = None
        for size in stages(len(self.tasks), rules.first):
            tasks = self.tasks[:size]
            try:
                some = differing(self._evaluate, before, group, tasks)
                base, candidate = await self._arms(before, group, some)
                trial = self._trial(tasks, base, candidate)
                now = {"ops": [op.op_id for op in group], "trial": trial.model_dump(mode="json")}
                left = left_of(looked, now, rules.error)
                trial = trial.model_copy(update={"left": left, "guarded": self._guarded})
                if len(pair(trial.cohort, base, candidate).lost) / size > rules.cap + 1e-9:
                    seed = self._seed_of(group)
                    again = await self._evaluate(before or None, some, seed_for(seed, "A/A"))
                    trial = trial.model_copy(update={"again": dict(again)})
                    if floor(trial) == 0:
                        empty = await self._evaluate([*before, PLACEBO], some, seed)
                        trial = trial.model_copy(update={"placebo": dict(empty)})
            except OutOfCalls as short:
                return decision, short
            decision = decide(trial, rules)
            if decision.accepted or self._plain(decision, many=len(group) > 1):
                break
        return decision, None

    def _plain(self, decision: Decision, *, many: bool) -> bool:
        """Tell whether more tasks would not change the answer: it is seen to harm, or what is lost is no noise."""
        statistics = decision.evidence["statistics"]
        ahead, behind, lost = statistics["ahead"], statistics["behind"], len(statistics["lost"])
        if p_better(behind, ahead) <= level_of(self._rules.error):
            return True
        return statistics["floor"] == 0 and (many or lost > self._rules.cap * len(self.tasks) + 1e-9)

    async def _arms(
        self, before: Sequence[DeltaOp], group: Sequence[DeltaOp], tasks: Sequence[Task]
    ) -> tuple[Passed, Passed]:
        seed = self._seed_of(group)
        base = await self._evaluate(before or None, tasks, seed)
        return base, await self._evaluate([*before, *group], tasks, seed)

    def _seed_of(self, group: Sequence[DeltaOp]) -> int:
        return seed_for(self._seed, self.name, *drawn_by(group))

    def _trial(self, tasks: Sequence[Task], base: Passed, candidate: Passed) -> HeldOutTrial:
        cohort = tuple(task.id for task in tasks)
        inside = {name: tuple(key for key in ids if key in cohort) for name, ids in self._slices.items()}
        return HeldOutTrial(
            cohort=cohort,
            base=dict(base),
            candidate=dict(candidate),
            reach=reaches(base, candidate) if self._rules.progress else {},
            thrift=isinstance(candidate, Marks) and candidate.thrift,
            slices={name: ids for name, ids in inside.items() if ids},
        )


def _missed(verdict: Verdict, op_id: str) -> bool:
    """Tell whether the tasks that a change was written from were seen to miss it when it alone is not there."""
    return any(each["trial"].get("missed") for each in rounds_of(verdict) if op_id in each["ops"])


Evidence = Mapping[str, Any]


def left_of(looks: Sequence[Evidence], now: Evidence, error: float) -> float:
    """Return what is left to the change in `now["ops"]` that has least of it.

    A look that ended for want of calls and is taken up again sees the same runs as far as it came. It is one look: it
    pays once, as far as it came in the end.
    """
    paid: list[Evidence] = []
    for look in (each for each in looks if "left" in each["statistics"]):
        paid = [*(each for each in paid if not _same(each, look)), look]
    left: dict[str, float] = dict.fromkeys(now["ops"], error)
    for look in (each for each in paid if not _same(each, now)):
        for op_id in set(look["ops"]) & set(left):
            left[op_id] -= look["trial"]["left"] - look["statistics"]["left"]
    return min(left.values())


def share_of_code(looks: Sequence[Evidence]) -> float:
    """Return which share of the episodes of some looks was for changes that are code alone; 0 without looks."""
    runs = [
        (look["trial"].get("thrift", False), len(look["trial"]["base"]) + len(look["trial"]["candidate"]))
        for look in looks
    ]
    return sum(count for code, count in runs if code) / max(1, sum(count for _, count in runs))


def _same(one: Evidence, other: Evidence) -> bool:
    """Tell whether two looks are one: the same changes, and the same runs as far as both came."""
    both = min(len(each["trial"]["cohort"]) for each in (one, other))
    return _runs(one, both) == _runs(other, both)


def _runs(look: Evidence, first: int) -> tuple[object, ...]:
    """Return the changes of a look, and how both arms did on the first tasks."""
    trial = look["trial"]
    marks = [
        (task, trial["base"].get(task), trial["candidate"].get(task), *trial["reach"].get(task, ()))
        for task in trial["cohort"][:first]
    ]
    return (*look["ops"], *marks)


def make(context: GateContext, options: Options, rules: Rules | None = None) -> HeldOut:
    """Return the gate; where `canary` is named too, its tasks are a protected slice. `rules`: other than configured.

    Raises as `GateContext.bench_of`, `select_tasks` and `canary_tasks`.
    """
    config, bench = context.config, context.bench_of(HeldOut.name)
    evaluator, store, namespace = bench.evaluator, bench.evaluator.store, config.memory.namespace
    tasks = select_tasks(config, evaluator.environment, bench.stream)
    canaries = canary_tasks(evaluator.environment) if Canary.name in config.gate.names else ()
    protected = dict(slices(config, tasks)) | ({SLICE: tuple(task.id for task in canaries)} if canaries else {})
    gate = HeldOut(
        evaluator,
        (*tasks, *canaries),
        config.run.seed,
        rules=rules or rules_of(config, options),
        slices=protected,
        past=lambda: verdicts(store, namespace),
    )
    gate.told = lambda: told(store, namespace)
    return gate


def rules_of(config: Config, options: Options | None = None) -> Rules:
    """Return how the gate decides."""
    options = options or options_of(config)
    return Rules(mode=options.mode, alpha=options.alpha, first=options.first_stage, trust=config.gate.trust)


MEMBER = make


LookAt = Callable[
    [Sequence[DeltaOp], Sequence[DeltaOp], Sequence[Round]], Awaitable[tuple[Decision | None, OutOfCalls | None]]
]
"""Decides about ops on top of others, given the rounds so far; what it could not afford comes beside what it knows."""
Ablate = Callable[[Sequence[DeltaOp], Sequence[DeltaOp], Decision], Awaitable[Ablated]]
"""Asks what matters of ops that were accepted on top of others."""


@dataclass
class Found:
    """What a search came to."""

    rounds: list[Round] = field(default_factory=list[Round])
    ablated: list[Round] = field(default_factory=list[Round])
    """What was seen to matter of each op that a round accepted."""
    waiting: dict[str, str] = field(default_factory=dict[str, str])
    """Why the ops that are left undecided wait."""
    short: OutOfCalls | None = None
    """Set where some wait for calls."""


async def search(
    groups: Sequence[Sequence[DeltaOp]], look: LookAt, ablate: Ablate, *, tried: Callable[[str], int], patience: int
) -> Found:
    """Return what became of the ops of some groups, each looked at on top of what was admitted before it.

    `tried`: earlier looks at an op, by its id.
    """
    found = Found()
    rounds, waiting = found.rounds, found.waiting
    admitted: list[DeltaOp] = []
    left = deque(_by_origin(group) for group in groups if group)
    while left:
        group = left.popleft()
        ids = tuple(op.op_id for op in group)
        decision, short = await look(admitted, group, rounds)
        if decision is not None:
            rounds.append(Round(ids, decision))
        found.short = found.short or short
        if short is not None or decision is None:
            waiting |= dict.fromkeys(ids, str(short))
            continue
        ahead, behind = decision.evidence["statistics"]["ahead"], decision.evidence["statistics"]["behind"]
        if decision.accepted:
            parts = await ablate(admitted, group, decision)
            admitted += parts.admitted
            found.ablated += parts.rounds
            found.short = found.short or parts.short
            waiting |= {
                key: why for key, why in parts.waiting.items() if parts.short is not None or tried(key) + 1 < patience
            }
        elif len(group) > 1 and ahead and behind:
            half = (len(group) + 1) // 2
            left.extendleft((group[half:], group[:half]))
        elif ahead > behind:
            patient = [key for key in ids if tried(key) + 1 < patience]
            waiting |= dict.fromkeys(patient, f"waits for more: {decision.reason}")
    return found


def _by_origin(ops: Sequence[DeltaOp]) -> list[DeltaOp]:
    """Return the ops with those of the same tasks side by side, so that halves cut between tasks."""
    first: dict[tuple[str, ...], int] = {}
    for at, op in enumerate(ops):
        first.setdefault(op.provenance.task_ids, at)
    return sorted(ops, key=lambda op: first[op.provenance.task_ids])
