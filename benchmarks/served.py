"""The pocket model twice: computed in this process, and served by vLLM. Is it the same, token by token?

`office_prompts` are what a policy really reads in the office; `compare` asks both for the same; `learn` lets one
of them do a learning run and tells what came of it. Stores nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.office_arms import office
from benchmarks.table import ROOT
from evolve.config.model import Config, EnvironmentSection, MemorySection, PolicySection, RunSection
from evolve.episode.prompting import briefing
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, arun
from memory.records import Record
from playbooks.kinds.bullet import Bullet
from policies.local import LocalPolicy
from policies.local.local_policy import POCKET
from policies.openai_server import OpenAIPolicy, ServerOptions
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.scripted import ScriptedPolicy
from policies.vllm_server import vllm_server
from policies.wrapped import WrappedPolicy

MODEL = "pocket"
GREEDY = SamplingParams(max_tokens=120)

Prompt = tuple[Message, ...]


def vllm() -> Path:
    """Return where the `vllm` command is: in `EVOLVE_VLLM` (an environment), else in build/vllm. It may be absent."""
    return Path(os.environ.get("EVOLVE_VLLM") or ROOT / "build" / "vllm") / "bin" / "vllm"


def pocket() -> Path:
    """Return the directory of the model: `EVOLVE_POCKET`, else the shipped weights. It may be empty."""
    return Path(os.environ.get("EVOLVE_POCKET") or POCKET)


@asynccontextmanager
async def both(model: Path, log: Path) -> AsyncGenerator[tuple[LocalPolicy, OpenAIPolicy]]:
    """Give the model of a directory in process, and served by a server that is stopped afterwards."""
    local = LocalPolicy(model, name=MODEL, profile="compact")
    with vllm_server(model, executable=vllm(), log=log, name=MODEL) as base_url:
        served = served_policy(base_url, local)
        try:
            yield local, served
        finally:
            await served.aclose()
            await local.aclose()


def served_policy(base_url: str, local: LocalPolicy) -> OpenAIPolicy:
    """Return the served model as the in-process one describes itself: its dialect, its tokens, no schemas."""
    special = tuple(local.tokenizer.all_special_tokens)
    options = ServerOptions(profile="compact", supports_schema=False, special_tokens=special)
    return OpenAIPolicy(base_url, MODEL, options=options, counter=local.count_tokens)


async def office_prompts(count: int, deployment: int = 0) -> list[Prompt]:
    """Return what a policy reads at every step of gold episodes, until there are `count` different prompts.

    Every second task is done with the complete playbook, the others with none.
    """
    world = office(deployment)
    rules = tuple(
        Record(id=f"r{n}", kind="bullet", number=n, payload=Bullet(content=text))
        for n, text in enumerate(world.oracle, start=1)
    )
    acting = RolloutConfig(world=briefing(world, "compact"), max_steps=16)
    found: dict[Prompt, None] = {}
    for at, task in enumerate(world.tasks("test_normal")):
        expert = ScriptedPolicy([action.text for action in world.gold(task)], profile="compact")
        attempt = Attempt(id=task.id, task=task, seed=0, core=rules if at % 2 else ())
        trajectory = await rollout(world, expert, attempt, acting)
        if not trajectory.success:
            raise RuntimeError(f"the gold solution of {task.id} failed: {trajectory.error or trajectory.outcome}")
        found |= dict.fromkeys(expert.seen)
        if len(found) >= count:
            return list(found)[:count]
    raise RuntimeError(f"office {deployment} has only {len(found)} prompts in test_normal, {count} were asked for")


@dataclass(frozen=True)
class Pair:
    """Two replies to the same prompt."""

    local: Reply
    served: Reply

    @property
    def same_prompt(self) -> bool:
        """Both rendered the chat template to the same token ids."""
        return self.local.prompt_token_ids is not None and self.local.prompt_token_ids == self.served.prompt_token_ids

    @property
    def same_tokens(self) -> bool:
        """Both generated the same token ids, the end token included."""
        return self.local.token_ids is not None and self.local.token_ids == self.served.token_ids

    @property
    def same_text(self) -> bool:
        """Both said the same and ended for the same reason (vLLM leaves out special tokens and half characters)."""
        return (self.local.text, self.local.finish_reason) == (self.served.text, self.served.finish_reason)

    @property
    def gap(self) -> float:
        """Largest difference of a token's log-probability; infinite where they are missing."""
        one, other = self.local.logprobs, self.served.logprobs
        if one is None or other is None or len(one) != len(other):
            return float("inf")
        return max(abs(a - b) for a, b in zip(one, other, strict=True))


async def compare(
    local: Policy, served: Policy, prompts: Sequence[Prompt], params: SamplingParams = GREEDY
) -> list[Pair]:
    """Ask both everything, all at once, and pair the replies."""
    mine = await asyncio.gather(*(local.generate(prompt, params) for prompt in prompts))
    theirs = await asyncio.gather(*(served.generate(prompt, params) for prompt in prompts))
    return [Pair(one, other) for one, other in zip(mine, theirs, strict=True)]


class Witness(WrappedPolicy):
    """A policy that remembers what it answered to what."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.replies: dict[Prompt, Reply] = {}

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the policy's reply and remember it."""
        reply = await super().generate(messages, params)
        self.replies[tuple(messages)] = reply
        return reply


@dataclass(frozen=True)
class Learned:
    """What a learning run left: replies by prompt, what was done in every episode, and the playbook's texts."""

    replies: dict[Prompt, tuple[int, ...] | None]
    episodes: dict[str, tuple[tuple[str, str], ...]]
    playbook: tuple[str, ...]


async def learn(policy: Policy, root: Path, tasks: int, max_steps: int = 16) -> Learned:
    """Do the online run of the office's first tasks under `root`, with the policy in all three roles."""
    config = Config(
        root=root,
        run=RunSection(tasks=tasks, batch_size=4, concurrency=8),
        policy=PolicySection(name="pocket", max_tokens=120),
        environment=EnvironmentSection(name="office", max_steps=max_steps),
        memory=MemorySection(index="exact", recall_k=40),
    )
    witness = Witness(policy)
    result = await arun(config, parts=Parts(policy=witness, environment=office(0)))
    with open_store(config, policy.count_tokens, read_only=True) as store:
        trajectories = store.trajectories(run_id=result.run_id)
        records = store.view(config.memory.namespace).records()
    return Learned(
        {prompt: reply.token_ids for prompt, reply in witness.replies.items()},
        {t.task.id: tuple((step.action, step.observation) for step in t.steps) for t in trajectories},
        tuple(sorted(record.payload.content for record in records if isinstance(record.payload, Bullet))),
    )
