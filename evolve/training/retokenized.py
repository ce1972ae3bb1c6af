"""Turns of episodes whose token ids nobody kept, since their server tells none (llama.cpp, most hosted ones).

The prompts are made again and proved by the keys of the replies, then written in the chat template of the weights that
are trained: the ids that the server itself made of the same messages. What was said is tokenised as it stands, and
closed as the template closes a turn. How likely a token was when it was sampled is not known (0 stands for it in every
token): such turns suit `sft` alone. The world's own solution answers no prompt; it is written under the one
that the agent would have had with nothing to show.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evolve.config.file import stored_config
from evolve.episode.arms import GOLD
from evolve.episode.injection import shown_again
from evolve.episode.prompting import step_messages
from evolve.episode.world_texts import kept
from evolve.errors import ConfigError
from evolve.loop.prompt_replay import opening, proved
from evolve.training.turns import Replies, begins_turn
from memory.records import Step, Trajectory
from memory.store import Store
from policies.encoding import ChatEncoder
from policies.protocols import Message, Reply
from policies.rl.rows import Turn


@dataclass(frozen=True)
class Saying:
    """Reads what was said alone, without the prompts: for readers that write these anew."""

    encoder: ChatEncoder

    def __call__(self, trajectory: Trajectory, replies: Replies) -> tuple[Turn, ...] | None:
        """Return the turns of an episode with empty prompts; None where a reply was not kept."""
        turns = [self.turn(trajectory, step, replies, ()) for step in trajectory.steps if begins_turn(trajectory, step)]
        return tuple(turn for turn in turns if turn) if turns and all(turns) else None

    def turn(self, trajectory: Trajectory, step: Step, replies: Replies, prompt: tuple[int, ...]) -> Turn | None:
        """Return what one step said; None where its reply was not kept, or called tools."""
        if trajectory.arm == GOLD:
            reply = Reply(text=step.reply or step.action, tool_calls=step.tool_calls)
        else:
            found = replies(step.reply_key) if step.reply_key else None
            reply = Reply.model_validate(found["reply"]) if found else None
        if reply is None or reply.tool_calls:
            return None
        cut = reply.finish_reason == "length"
        ids = (*self.encoder.tokens(reply.text), *(() if cut else self.encoder.closing()))
        return Turn(
            step=step.index,
            prompt_ids=prompt,
            token_ids=ids,
            logprobs=(0.0,) * len(ids),
            policy_version="",
            truncated=cut,
        )


@dataclass(frozen=True)
class Retelling:
    """Reads whole turns, prompts made again: a reader like `turns_of`."""

    saying: Saying
    store: Store
    root: Path
    """The folder that settings of runs are relative to."""

    def __call__(self, trajectory: Trajectory, replies: Replies) -> tuple[Turn, ...] | None:
        """Return the turns of an episode; None where a prompt cannot be made again as it was, or offered tools.

        That is so where something that was shown was forgotten since, the conversation was shortened, or the agent
        searched, was advised or called tools.
        """
        words, run = kept(self.store, trajectory.run_id), self.store.get_run(trajectory.run_id)
        if words is None or run is None or words.offered(trajectory.tools):
            return None
        try:
            config = stored_config(run.get("config", {}), self.root)
        except ConfigError:  # of an earlier version
            return None
        if trajectory.arm == GOLD and (trajectory.forgotten or config.policy.teacher.plan_review):
            return None  # no agent would have read what can be made again, or it would have planned first
        messages: list[Message] = opening(config, trajectory, shown_again(self.store, trajectory.injected), words)
        turns: list[Turn] = []
        for at, step in enumerate(trajectory.steps):
            if begins_turn(trajectory, step):
                if trajectory.arm != GOLD and not proved(config, trajectory, at, messages, words):
                    return None
                prompt = self.saying.encoder.encode(messages)
                if (turn := self.saying.turn(trajectory, step, replies, prompt)) is None:
                    return None
                turns.append(turn)
            messages += step_messages(step)
        return tuple(turns) or None
