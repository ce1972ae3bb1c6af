"""Account of the gates: their decisions, looks at the select split, and costs, read from the journal alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evolve.gates import batch_screen, canary, exemplars, held_out, held_out_rules, online_ab, replay, utility
from evolve.gates.decisions import Replay, rounds_of
from evolve.gates.evaluator import episodes_of
from evolve.gates.gate_events import PROPOSAL, journalled, verdicts
from evolve.gates.online_ab import OnlineAB
from evolve.gates.review import ReviewGate
from evolve.gates.review_queue import proposals
from evolve.statistics.alpha import Look, level
from evolve.statistics.paired import p_better
from memory import paging
from memory.records import Frozen, Op, Usage
from memory.store import Store

REPLAYS: Mapping[str, Replay] = {
    "batch_screen": batch_screen.replay,
    "held_out": held_out_rules.replay,
    "exemplars": held_out_rules.replay,
    "utility": utility.replay,
    "online_ab": online_ab.replay,
    "canary": canary.replay,
    "replay": replay.replay,
    "matched": utility.replay,
}
"""Gates that measure -> how one decision is made again from its evidence (`evolve.gates.decisions`)."""

_SELECT = frozenset({held_out.HeldOut.name, utility.Utility.name, exemplars.Exemplars.name})
"""Gates that run the select split."""


class Exposure(Frozen):
    """One look at the select split."""

    run_id: str
    batch: str
    """Subject of the verdict in the journal."""
    tasks: int
    p: float | None
    """None for `utility`, which decides by a bound."""
    level: float | None
    """What p had to reach; None in practical mode, where the p-value is one condition of several."""
    accepted: bool


class GateCount(Frozen):
    """What one gate decided in a run. Counters (TAG) are no changes."""

    gate: str
    accepted: int
    rejected: int
    deferred: int = 0
    """How often a change was put off; one that waits for three batches counts three times."""
    looks: int = 0
    """Decisions that rest on tasks that were run."""
    waiting: int = 0
    """Changes that a person has not answered yet."""


class GateAccount(Frozen):
    """The gates of one run."""

    counts: tuple[GateCount, ...] = ()
    """In the order in which the gates were asked."""
    episodes: int = 0
    usage: Usage = Usage()
    """What the gates' episodes cost; it is in no figure of the stream."""


def tested(statistics: Mapping[str, Any]) -> float | None:
    """Return the p-value that a look was decided by: of tasks that came further, where these count."""
    if "ahead" in statistics:
        return p_better(statistics["ahead"], statistics["behind"])
    return statistics.get("p_better")


def looks(store: Store, namespace: str) -> tuple[Look, ...]:
    """Return the strict looks of a namespace in order: the past of the next one."""
    return held_out_rules.looks(verdicts(store, namespace))


def exposures(store: Store, namespace: str) -> tuple[Exposure, ...]:
    """Return the ledger of the select split: each look of `held_out`, `utility` and `exemplars`, in order.

    A look with no verdict yet is none.
    """
    found: list[Exposure] = []
    for event, verdict in journalled(store, namespace=namespace):
        for evidence in rounds_of(verdict) if verdict.gate in _SELECT else ():
            statistics = evidence["statistics"]
            found.append(
                Exposure(
                    run_id=event.run_id,
                    batch=event.subject,
                    tasks=len(evidence["trial"]["cohort"]),
                    p=tested(statistics),
                    level=statistics.get("level"),
                    accepted=REPLAYS[verdict.gate](evidence).accepted,
                )
            )
    return tuple(found)


def next_level(store: Store, namespace: str, alpha: float) -> float:
    """Return the level that the next strict look has to reach, after all that were taken."""
    return level(looks(store, namespace), alpha)


def account(store: Store, run_id: str) -> GateAccount:
    """Return what the gates of a run decided and spent."""
    proposed = store.events(type=PROPOSAL, run_id=run_id)
    tags = {op["op_id"] for event in proposed for op in event.data.get("ops", ()) if op["op"] == Op.TAG}
    counts: dict[str, GateCount] = {}
    for _, verdict in journalled(store, run_id=run_id):
        if verdict.gate == ReviewGate.name or (verdict.gate == OnlineAB.name and "trial" not in verdict.evidence):
            continue  # held back for a person, or let in under test: no decision yet
        so_far = counts.get(verdict.gate, GateCount(gate=verdict.gate, accepted=0, rejected=0))
        counts[verdict.gate] = GateCount(
            gate=verdict.gate,
            accepted=so_far.accepted + len(set(verdict.accepted) - tags),
            rejected=so_far.rejected + len(verdict.rejected),
            deferred=so_far.deferred + len(verdict.deferred),
            looks=so_far.looks + len(rounds_of(verdict)),
        )
    answers = [each.decision for each in proposals(store, decided=True) if each.run_id == run_id]
    if answers:
        counts[ReviewGate.name] = GateCount(
            gate=ReviewGate.name,
            accepted=answers.count("accepted"),
            rejected=answers.count("rejected"),
            waiting=answers.count(""),
        )
    episodes, usage = paging.used(store.journal, episodes_of(run_id))
    return GateAccount(counts=tuple(counts.values()), episodes=episodes, usage=usage)


def lines(account: GateAccount) -> list[str]:
    """Return the account as text for people; empty where no gate was asked."""
    said = [
        f"gate {count.gate}: {count.accepted} changes accepted, {count.rejected} rejected"
        + (f", put off {count.deferred} times" if count.deferred else "")
        + (f", decided from runs {count.looks} times" if count.looks else "")
        + (f", {count.waiting} wait for `evolve review`" if count.waiting else "")
        for count in account.counts
    ]
    if account.episodes:
        usage = account.usage
        tokens = usage.prompt_tokens + usage.completion_tokens
        said.append(
            f"spent by gates, beside the stream: {account.episodes} episodes, {usage.calls} calls, {tokens} tokens"
        )
    return said
