"""Turns of episodes whose token ids nobody kept, since their server tells none (llama.cpp, most hosted ones).

The prompts are made again and proved by the keys of the replies, then written in the chat template of the weights that
are trained: the ids that the server itself made of the same messages. What was said is tokenised as it stands, and
closed as the template closes a turn. How likely a token was when it was sampled is not known (0 stands for it): such
rows suit `sft` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evolve.config.file import stored_config
from evolve.episode.injection import shown_again
from evolve.episode.prompting import step_messages
from evolve.episode.world_texts import kept
from evolve.errors import ConfigError
from evolve.loop.prompt_replay import opening, proved
from evolve.training.turns import Replies
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
        turns = [self.turn(step.reply_key, replies, step.index, ()) for step in trajectory.steps if _asked(step)]
        return tuple(turn for turn in turns if turn) if turns and all(turns) else None

    def turn(self, key: str, replies: Replies, step: int, prompt: tuple[int, ...]) -> Turn | None:
        """Return one model call by the key of its reply; None where it was not kept, or called tools."""
        found = replies(key) if key else None
        reply = Reply.model_validate(found["reply"]) if found else None
        if reply is None or reply.tool_calls:
            return None
        cut = reply.finish_reason == "length"
        ids = (*self.encoder.tokens(reply.text), *(() if cut else self.encoder.closing()))
        return Turn(
            step=step,
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
        messages: list[Message] = opening(config, trajectory, shown_again(self.store, trajectory.injected), words)
        turns: list[Turn] = []
        for at, step in enumerate(trajectory.steps):
            if _asked(step):
                if not proved(config, trajectory, at, messages, words):
                    return None
                prompt = self.saying.encoder.encode(messages)
                if (turn := self.saying.turn(step.reply_key, replies, step.index, prompt)) is None:
                    return None
                turns.append(turn)
            messages += step_messages(step)
        return tuple(turns) or None


def _asked(step: Step) -> bool:
    """Tell whether a step began with a model call."""
    return bool(step.usage.calls or step.reply_key)
