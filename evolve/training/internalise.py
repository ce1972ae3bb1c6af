"""Context distillation: what was done with the playbook in the prompt becomes what is done without it.

The rows hold an episode as it would stand had nothing been shown: no knowledge in the prompt, references to it as
guesses, and steps that ended in an error left out with what they were answered (assumed: such a step changed nothing).
What is said is therefore not what was sampled, and is tokenised here: such rows suit `sft` alone.
Source: context distillation (Askell et al., arXiv 2112.00861; Snell et al., arXiv 2209.15189).

Distilled notes: the reflections of the journal from which came what a gate measured to help, as rows for `sft`.

An agent that writes better notes learns faster; which notes were good is known only after a gate tried them. A
reflection counts where a text that was written from its episode is active now, so that it was measured and still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from evolve.episode.exemplars.shown_exemplars import with_examples
from evolve.episode.injection import Shown
from evolve.episode.prompting import opening_messages, step_messages
from evolve.episode.search import asked
from evolve.protocols import Demonstration
from evolve.training.supervised import Examples
from evolve.training.training_data import trainable
from evolve.training.turns import Replies, TurnReader, turn_of, turns_of
from memory.records import Reflection, Status, Trajectory
from memory.store import Store
from playbooks.citations import uncited
from policies.encoding import ChatEncoder
from policies.protocols import Profile, Reply
from policies.rl.rows import TrainRow, Turn, rows_of
from skills.record import Skill


@dataclass(frozen=True)
class Internalising:
    """How episodes of one world are told again without knowledge: a reader of turns like `turns_of`."""

    encoder: ChatEncoder
    profile: Profile
    world: str
    """What `prompting.briefing` returns."""
    shown: Callable[[Trajectory], Shown]
    """What an episode was shown."""
    read: TurnReader = turns_of
    """How the replies of an episode are read."""
    demonstration: Demonstration | None = None
    """The example that an agent without exemplars reads (`prompting.demonstrated`)."""

    def __call__(self, trajectory: Trajectory, replies: Replies) -> tuple[Turn, ...] | None:
        """Return the turns of an episode; None where it rests on skills or native tool calls, or was cut off."""
        sampled = self.read(trajectory, replies)
        if not sampled or trajectory.prelude or any(step.tool_calls for step in trajectory.steps):
            return None
        if any(turn.truncated for turn in sampled):
            return None
        given = self.shown(trajectory)
        known = (*given.core, *given.recalled)
        ends = {turn.step: tuple(i for i in turn.token_ids[-1:] if i in self.encoder.ends) for turn in sampled}
        opening = opening_messages(trajectory.task.opened(trajectory.opening), "", self.profile, self.world)
        messages = with_examples(opening, (), self.demonstration)
        turns: list[Turn] = []
        for step in trajectory.steps:
            if step.error or asked(step.reply):
                continue
            said = uncited(step.reply or step.action, known)
            ids = (*self.encoder.tokens(said), *ends[step.index])
            prompt = self.encoder.encode(messages)
            logprobs = (0.0,) * len(ids)
            turns.append(Turn(step=step.index, prompt_ids=prompt, token_ids=ids, logprobs=logprobs, policy_version=""))
            own = step.model_copy(update={"reply": said})
            messages += step_messages(own, Reply(text=said, token_ids=ids))
        return tuple(turns)


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
        if turn is None or turn.truncated or turn.broken or not turn.token_ids:
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
