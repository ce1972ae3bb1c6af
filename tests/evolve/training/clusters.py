"""The servers of a framework that trains, as the office's scripted worker answers on them: ids in, ids out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.episode.rollout import RolloutConfig
from evolve.training.chain_tasks import chains
from evolve.training.cluster_rollouts import ClusterRollouts
from evolve.training.rollouts import ChainSpec, Sampling
from policies.encoding import ChatEncoder
from policies.local.loading import load_encoder
from policies.local.local_policy import POCKET
from policies.protocols import Message, SamplingParams

OFFICE = Office(OfficeConfig(deployment=3))
ACTING = RolloutConfig(world="", max_steps=16, max_tokens=400, skills=True, temperature=1.3)
SAMPLING = Sampling(seed=3)
LOGPROB = -0.5
TURN = re.compile(r"<\|(user|assistant)\|>(.*?)<\|end\|>", re.DOTALL)
GIVES_UP = "apps.task.done()"


def specs(split: str, number: int, length: int = 2) -> list[ChainSpec]:
    return [ChainSpec(each, OFFICE) for each in chains(OFFICE.tasks(split), length, seed=0)[:number]]


def rollouts(settings: list[ChainSpec], encoder: ChatEncoder, acting: RolloutConfig = ACTING) -> ClusterRollouts:
    return ClusterRollouts(settings, encoder, "compact", acting, SAMPLING)


class Servers:
    """What both frameworks ask of. By the seed of the request the worker does its task or gives up at once."""

    def __init__(self) -> None:
        self.encoder = load_encoder(str(POCKET))
        self.asked: list[dict[str, Any]] = []
        self.finished: list[str] = []
        self._worker = make_worker(OFFICE)

    async def _answer(self, ids: list[int], told: Mapping[str, Any], session: str, model: str | None) -> list[int]:
        self.asked.append({"ids": ids, "told": dict(told), "session": session, "model": model})
        said = TURN.findall(self.encoder.tokenizer.decode(ids))
        messages = [Message.model_validate({"role": role, "content": text}) for role, text in said]
        gives_up = told["temperature"] and told["seed"] % 10 == 0
        text = GIVES_UP if gives_up else (await self._worker.generate(messages, SamplingParams())).text
        return [*self.encoder.tokens(text), *self.encoder.ends][: told["max_tokens"]]


class SkyrlClient(Servers):
    """SkyRL's `InferenceEngineInterface`."""

    async def generate(self, input_batch: Mapping[str, Any], model: str | None = None) -> Mapping[str, Any]:
        (ids,), (session,) = input_batch["prompt_token_ids"], input_batch["session_ids"]
        done = await self._answer(ids, input_batch["sampling_params"], session, model)
        return {"response_ids": [done], "stop_reasons": ["stop"], "response_logprobs": [[LOGPROB] * len(done)]}

    async def finish_session(self, session_id: str) -> None:
        self.finished.append(session_id)


class VerlServer(Servers):
    """verl's `LLMServerClient`, whose weights move with each request."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        done = await self._answer(prompt_ids, sampling_params, request_id, None)
        step = len(self.asked)
        return SimpleNamespace(
            token_ids=done,
            log_probs=[LOGPROB] * len(done),
            stop_reason="completed",
            extra_fields={"min_global_steps": step, "max_global_steps": step},
        )
