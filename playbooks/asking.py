"""One structured question to a policy that may refuse it: a refusal is an answer that could not be used."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel

from policies.errors import PolicyRefused
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.structured import Structured, generate_structured

log = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)


async def ask(policy: Policy, messages: Sequence[Message], model_cls: type[M], params: SamplingParams) -> Structured[M]:
    """Return what `generate_structured` returns; a prompt that the policy refuses gives no value and says so in `raw`.

    Raises every other `PolicyError`: a backend that is away is no answer.
    """
    try:
        return await generate_structured(policy, messages, model_cls, params)
    except PolicyRefused as refused:
        log.warning("%s refused to answer for %s: %s", policy.name, model_cls.__name__, refused)
        return Structured(None, Reply(text=""), f"refused: {refused}")
