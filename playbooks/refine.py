"""Grow and refine: the deltas that keep a playbook small. Pure: each function proposes, the store applies.

Candidates wait for a gate and are not merged. Nothing is lost: a merge supersedes its parents and a removal retires a
record; both stay in the journal and can be restored. The same records always give the same ops with the same op ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from memory.operations import op_id, removal
from memory.records import RECALLABLE, DeltaOp, Op, Provenance, Record, Trust
from playbooks.ranking import rank_key
from playbooks.similarity import THRESHOLD, exact_key, similar_pairs
from playbooks.token_budget import fill
from policies.protocols import Profile

AUTHOR = "refine"


def merge_duplicates(records: Sequence[Record[Any]], threshold: float = THRESHOLD) -> tuple[DeltaOp, ...]:
    """Return MERGEs after which no two records are exact duplicates or have TF-IDF cosine >= `threshold`.

    Greedy and not transitive: the best-ranked record takes everything near it. Repeated on the survivors until none is
    left, because fewer texts have other term weights.
    """
    groups = [group for kind in sorted({r.kind for r in records}) for group in _groups(records, kind, threshold)]
    return tuple(_merge(group, f"TF-IDF cosine >= {threshold}") for group in groups if len(group) > 1)


def enforce_budget(
    records: Sequence[Record[Any]], budget: int, count_tokens: Callable[[str], int], *, profile: Profile = "full"
) -> tuple[DeltaOp, ...]:
    """Return REMOVEs after which the rendered records take at most `budget` tokens, the most useful kept.

    Raises `BadInput` when the pinned records alone are over the budget.
    """
    kept = {record.id for record in fill(records, budget, count_tokens, profile)}
    gone = sorted((record for record in records if record.id not in kept), key=rank_key)
    return tuple(_remove(record, f"over the budget of {budget} tokens") for record in gone)


def _live(records: Sequence[Record[Any]]) -> list[Record[Any]]:
    return sorted((record for record in records if record.status in RECALLABLE), key=rank_key)


def _groups(records: Sequence[Record[Any]], kind: str, threshold: float) -> list[list[Record[Any]]]:
    groups: dict[str, list[Record[Any]]] = {}
    for record in (r for r in _live(records) if r.kind == kind):
        groups.setdefault(exact_key(record.payload.text()), []).append(record)
    survivors = list(groups.values())
    while True:
        taken: set[int] = set()
        pairs = similar_pairs([group[0].payload.text() for group in survivors], threshold)
        for first, second, _ in sorted(pairs):
            if first not in taken and second not in taken:
                survivors[first].extend(survivors[second])
                taken.add(second)
        if not taken:
            return survivors
        survivors = [group for at, group in enumerate(survivors) if at not in taken]


def _merge(group: Sequence[Record[Any]], reason: str) -> DeltaOp:
    best = group[0]
    versions = [f"{record.id}@{record.version}" for record in group]
    return DeltaOp(
        op=Op.MERGE,
        op_id=op_id("merge", *sorted(versions)),
        kind=best.kind,
        parent_ids=tuple(record.id for record in group),
        parent_versions=tuple(record.version for record in group),
        payload=best.payload.model_dump(mode="json"),
        status=best.status,
        pinned=any(record.pinned for record in group),
        provenance=Provenance(
            trust=best.provenance.trust,
            trajectory_ids=_union(record.provenance.trajectory_ids for record in group),
            task_ids=_union(record.provenance.task_ids for record in group),
            author=AUTHOR,
            source=", ".join(record.label for record in group),
        ),
        reason=reason,
    )


def _remove(record: Record[Any], reason: str) -> DeltaOp:
    key = op_id("remove", f"{record.id}@{record.version}", reason)
    return removal(record, key, reason, Provenance(trust=Trust.SELF_JUDGED, author=AUTHOR))


def _union(lists: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for items in lists for item in items))
