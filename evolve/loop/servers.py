"""Features of the servers of a run's policies: asked once a day of each, kept in the journal, paid from the budget."""

from __future__ import annotations

from datetime import timedelta

from evolve.progress import Notice, Observers
from memory.base import now
from memory.records import Event, Usage
from memory.store import Store
from policies.budget import Budget
from policies.features import ServerFeatures, features_of
from policies.roles import Policies

EVENT = "run.server"
KEPT = timedelta(days=1)
"""How long an answer is believed: another server may come to answer at the same address."""


async def look(policies: Policies, store: Store, run_id: str, budget: Budget, observers: Observers) -> None:
    """Find out what the servers of the roles can do, where they have one; say it, journal it, and pay for it.

    Raises as the policies' `generate`.
    """
    for policy in policies.distinct:
        found = await features_of(policy, _known(store))
        if found is not None:
            data = found.model_dump(mode="json")
            store.append(Event(type=EVENT, run_id=run_id, subject=found.base_url, data=data))
            budget.charge(found.usage)
            observers.notify(Notice(run_id=run_id, text=found.sentence))


def used(store: Store, run_id: str) -> Usage:
    """Return what finding out took in a run."""
    found = [ServerFeatures.model_validate(event.data) for event in store.events(type=EVENT, run_id=run_id)]
    return sum((each.usage for each in found), Usage())


def _known(store: Store) -> list[ServerFeatures]:
    """Return what was found out of late by asking, the latest first."""
    recent = [event for event in store.events(type=EVENT) if now() - event.created_at < KEPT]
    found = [(ServerFeatures.model_validate(event.data), event.created_at) for event in reversed(recent)]
    return [each.model_copy(update={"since": f"{at:%Y-%m-%d %H:%M} UTC"}) for each, at in found if each.usage.calls]
