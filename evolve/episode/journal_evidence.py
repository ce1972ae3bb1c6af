"""Read the evidence for and against records from the journal, as far back as the settings ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evolve.config.sections import ForgetSection
from memory.evidence import Evidence, evidence
from memory.records import Record
from memory.store import Store
from memory.utility import HORIZON


def horizon(settings: ForgetSection) -> int:
    """Return how many tasks back evidence is read: until it weighs nothing and no rule looks further."""
    fading = 10**9 if settings.half_life is None else int(HORIZON * settings.half_life)
    return max(fading, settings.harmful.window, settings.unused.tasks if "unused" in settings.rules else 0)


def evidence_of(
    store: Store, settings: ForgetSection, records: Sequence[Record[Any]], *, until: int | None = None
) -> Mapping[str, Evidence]:
    """Return the evidence of records of one namespace by id, as it stood after event `until` (default: now)."""
    if not records:
        return {}
    return evidence(store.journal, records[0].namespace, records, horizon=horizon(settings), until=until)
