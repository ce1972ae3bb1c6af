"""A policy over an engine of adapters: ids in, ids out. Text is made from ids for people, and never back.

The prompt is encoded here, with the tokenizer that `LocalPolicy` uses and in the same way, so that a conversation goes
on from the ids that were sampled; a chat endpoint would tokenise the text again.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.records import Usage
from policies.encoding import ChatEncoder
from policies.errors import PolicyRefused
from policies.generations.engine import AdapterEngine
from policies.protocols import Message, Profile, Reply, SamplingParams


class TokenPolicy:
    """One version on an engine (None: its base model). Replies carry prompt ids, ids and log-probabilities.

    No native tool calls, no schema-constrained decoding. It closes the engine.
    """

    supports_schema = False

    def __init__(
        self,
        engine: AdapterEngine,
        encoder: ChatEncoder,
        *,
        name: str = "served",
        profile: Profile = "full",
        generation: str | None = None,
    ) -> None:
        self.engine = engine
        self.encoder = encoder
        self.name = name
        self.profile: Profile = profile
        self._generation = generation

    @property
    def version(self) -> str:
        """The version that answers; the policy's name for the base."""
        return self._generation or self.name

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return one completion. Raises `PolicyRefused` for tools, for a prompt without room, for an unloaded version;
        `PolicyUnavailable` where the engine does not answer."""
        return await self.answer(messages, params, self._generation, self.version)

    async def answer(
        self, messages: Sequence[Message], params: SamplingParams, generation: str | None, version: str
    ) -> Reply:
        """Return the completion of `generation`, under the name `version`."""
        if params.tools:
            raise PolicyRefused(f"{self.name!r} takes no native tool calls; describe the tools in the prompt")
        prompt = self.encoder.encode(messages)
        context = await self.engine.context()
        if len(prompt) >= context:
            raise PolicyRefused(f"the prompt has {len(prompt)} tokens, {self.name!r} takes {context}; shorten it")
        fitting = params.model_copy(update={"max_tokens": min(params.max_tokens, context - len(prompt))})
        done = await self.engine.sample(prompt, fitting, generation)
        return Reply(
            text=self.encoder.said(done.token_ids, params.stop),
            finish_reason=done.finish_reason,
            prompt_token_ids=prompt,
            token_ids=done.token_ids,
            logprobs=done.logprobs,
            usage=Usage(
                prompt_tokens=len(prompt),
                completion_tokens=len(done.token_ids),
                cached_tokens=done.cached,
                calls=1,
            ),
            policy_version=version,
        )

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text on its own."""
        return len(self.encoder.tokens(text))

    async def aclose(self) -> None:
        """Close the engine."""
        await self.engine.aclose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, engine={self.engine!r})"
