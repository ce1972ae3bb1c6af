"""Score records: by their evidence in the journal, and by what gate `utility` measured. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evolve.config.sections import ForgetSection
from evolve.episode.journal_evidence import evidence_of
from evolve.gates.decisions import rounds_of
from evolve.gates.gate_events import VERDICT
from evolve.gates.utility import Utility as UtilityGate
from evolve.statistics.evalues import mean_bound
from memory.records import Record, Verdict
from memory.store import Store
from memory.utility import Case, Measured, utility


def cases(store: Store, settings: ForgetSection, records: Sequence[Record[Any]]) -> tuple[Case, ...]:
    """Return what is known of the worth of records of one namespace now, in their order."""
    found = evidence_of(store, settings, records)
    gauged = measured(store, records[0].namespace) if records else {}
    return tuple(
        Case(
            record=record,
            evidence=found[record.id],
            utility=utility(found[record.id], settings.half_life),
            measured=gauged.get((record.id, record.content_hash)),
        )
        for record in records
    )


def measured(store: Store, namespace: str) -> dict[tuple[str, str], Measured]:
    """Return (record id, content hash) -> the marginal utility that the latest verdict of gate `utility` gives.

    Only what was measured of a single change that was applied as it was measured: what several are worth together says
    little of one of them.
    """
    found: dict[tuple[str, str], Measured] = {}
    for data in store.event_data(type=VERDICT, namespace=namespace, key="gate", value=UtilityGate.name):
        verdict = Verdict.model_validate(data)
        for each in rounds_of(verdict):
            ops = tuple(each.get("ops", verdict.accepted))
            applied = len(ops) == 1 and ops[0] in verdict.accepted and ops[0] not in verdict.cut
            if written := store.written_by(ops) if applied else ():
                found[written[0]] = _measured(tuple(each["statistics"]["tasks"].values()), each["rules"]["alpha"])
    return found


def _measured(worth: tuple[float, ...], alpha: float) -> Measured:
    mean = sum(worth) / len(worth)
    return Measured(
        mean=mean, lower=mean_bound(worth, alpha), upper=-mean_bound(tuple(-value for value in worth), alpha)
    )
