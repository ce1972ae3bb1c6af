"""Distilled notes: the reflections of the journal from which came what a gate measured to help, as rows for `sft`.

An agent that writes better notes learns faster; which notes were good is known only after a gate tried them. A
reflection counts where a text that was written from its episode is active now, so that it was measured and still holds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evolve.training.logs import trainable
from evolve.training.supervised import Examples
from evolve.training.turns import turn_of
from memory.records import Reflection, Status
from memory.store import Store
from policies.rl.rows import TrainRow, rows_of
from skills.record import Skill


def proven(store: Store, namespace: str) -> Iterator[Reflection]:
    """Yield the reflections on graded work of train tasks that led to a text which is active now, in order."""
    records = [each for each in store.records(namespace) if each.status is Status.ACTIVE and each.kind != Skill.kind]
    sources = {episode for record in records for episode in record.provenance.trajectory_ids}
    for reflection in store.reflections(parsed=True):
        episode = store.trajectory(reflection.trajectory_id) if reflection.trajectory_id in sources else None
        if episode is not None and reflection.insights and trainable(episode):
            yield reflection


def reflection_examples(store: Store, namespace: str) -> Examples:
    """Return what proven reflections said, with advantage 1; those whose tokens are not known are left out."""
    found = Examples([], [])
    for reflection in proven(store, namespace):
        turn = turn_of(reflection.reply_key, store.get_reply)
        if turn is None or turn.truncated:
            continue
        empty = TrainRow(
            trajectory_id=reflection.id,
            task_id=reflection.task_id,
            rewards={"reflection": 1.0},
            prompt_ids=(),
            completion_ids=(),
            sampling_logprobs=(),
            spans=(),
        )
        found.rows.extend(rows_of([turn], empty))
        found.advantages.append(np.ones(1))
    return found
