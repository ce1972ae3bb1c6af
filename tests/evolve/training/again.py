"""A world to retry in: an office, its scripted worker answering in tokens, and the batch that a training would make."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.episode.rollout import RolloutConfig
from evolve.training.batches import Prepared, ScoredEpisode, episodes_of, prepared
from evolve.training.chain_tasks import chains
from evolve.training.pivot import PivotFinder
from evolve.training.pivots.rules import rules
from evolve.training.retries import Retrying
from evolve.training.rollouts import ChainSpec, Sampling, roll
from evolve.training.state_replay import Calls
from policies.cache import CachedPolicy
from policies.local.loading import load_encoder
from policies.local.local_policy import POCKET
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.recordings import Recordings
from policies.rl.protocols import Retry, TrajectoryTransform
from policies.rl.rows import TrainRow
from policies.rl.tracker import BetaTracker
from policies.rl.transforms.r3l import r3l
from policies.wrapped import WrappedPolicy

_GUESS = re.compile(r"^(- .+) \[\?\]$", re.MULTILINE)
ENCODER = load_encoder(str(POCKET))
(END,) = ENCODER.ends


class Tokened(WrappedPolicy):
    """Says in tokens what the inner policy says in text; `encode` makes them of a prompt."""

    def __init__(self, policy: Policy, encode: Callable[[Sequence[Message]], tuple[int, ...]]) -> None:
        super().__init__(policy)
        self._encode = encode

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        reply = await super().generate(messages, params)
        ids = (*ENCODER.tokens(reply.text), END)
        prompt = self._encode(messages)
        return reply.model_copy(
            update={"prompt_token_ids": prompt, "token_ids": ids, "logprobs": tuple(-0.5 for _ in ids)}
        )


class Heeding(WrappedPolicy):
    """Lets the worker, which knows numbered rules alone, read guidance."""

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        first = messages[0].model_copy(update={"content": _GUESS.sub(r"\1 [1]", messages[0].content)})
        return await super().generate([first, *messages[1:]], params)


def heeding(office: Office) -> Policy:
    """Return the office's worker, heeding guidance."""
    return Heeding(make_worker(office))


@dataclass
class Noted:
    """A transform, which keeps what it was given."""

    transform: TrajectoryTransform
    given: list[Retry] = field(default_factory=list)

    def __call__(self, retries: Sequence[Retry]) -> tuple[TrainRow, ...]:
        self.given += retries
        return self.transform(retries)


@dataclass(frozen=True)
class Tried:
    """What came of a batch with retries."""

    plain: Prepared
    """The batch without them."""
    whole: Prepared
    episodes: list[ScoredEpisode]
    retries: list[Retry]
    policy: Policy


async def tried(
    replies: Recordings,
    *,
    office: Office | None = None,
    policy: Callable[[Office], Policy] = heeding,
    finder: PivotFinder = rules,
    transform: TrajectoryTransform = r3l,
    wrapped: Callable[[Policy], Policy] = lambda inner: inner,
    encode: Callable[[Sequence[Message]], tuple[int, ...]] = ENCODER.encode,
) -> Tried:
    """Roll out eight tasks twice each, and retry what failed; `wrapped` stands before the policy in the retries."""
    world = office or Office(OfficeConfig(deployment=3))
    inner = policy(world)
    answers = CachedPolicy(Tokened(inner, encode), replies)
    settings = [ChainSpec(chain, world) for chain in chains(world.tasks("train"), 1, seed=0)[:8]]
    acting = RolloutConfig(world=world.describe(inner.profile), max_steps=16, temperature=1.0)
    rollouts = await roll(settings, answers, acting, Sampling(rollouts=2, skills=False), 0)
    episodes = episodes_of(rollouts, BetaTracker())
    plain = prepared(episodes, replies.get_reply)
    noted = Noted(transform)
    calls = Calls(wrapped(answers), acting, replies.get_reply)
    whole = await Retrying(finder, noted).added(plain, episodes, settings, calls)
    return Tried(plain, whole, episodes, noted.given, inner)
