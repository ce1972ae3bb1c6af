"""A local model that is asked for each greedy prompt once: many arms of a comparison ask the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from policies.local import LocalPolicy
from policies.protocols import Message, Reply, SamplingParams


class MemoPolicy(LocalPolicy):
    """Remembers greedy replies, their usage included: the same prompt gives the same reply, whatever the seed."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._known: dict[str, Reply] = {}

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the remembered reply, or ask. Samples are always asked for."""
        if params.temperature != 0:
            return await super().generate(messages, params)
        asked = [[message.model_dump(mode="json") for message in messages], params.model_dump(exclude={"seed"})]
        key = json.dumps(asked, sort_keys=True, default=str)
        if key not in self._known:
            self._known[key] = await super().generate(messages, params)
        return self._known[key]
