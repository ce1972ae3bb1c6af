"""Any policy of ours as a LangChain chat model that keeps token ids: for LangGraph agents whose turns are trained on.

LangChain's own OpenAI client drops them. Here each `AIMessage` carries `prompt_token_ids`, `token_ids`, `logprobs` and
`policy_version` in its `response_metadata`, and a conversation that goes on hands the ids back to the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ConfigDict

from memory.errors import BadInput
from policies.protocols import Message, MessageRole, Reply, SamplingParams

try:
    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
    from langchain_core.messages.ai import UsageMetadata
    from langchain_core.outputs import ChatGeneration, ChatResult
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "TokenChatModel needs the package langchain-core: pip install 'evolve-agents[langchain]'", name=missing.name
    ) from missing

ROLES: dict[str, MessageRole] = {"system": "system", "human": "user", "ai": "assistant", "tool": "tool"}
IDS = ("prompt_token_ids", "token_ids", "logprobs", "policy_version")
"""What of a reply stands in `response_metadata`, as lists."""


class TokenChatModel(BaseChatModel):
    """A chat model over a `Policy`, for event loops: `ainvoke`, of the model and of the graph it is in."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    policy: Any
    """The `Policy` that answers; whoever made it closes it."""
    params: SamplingParams = SamplingParams()

    @property
    def _llm_type(self) -> str:
        return "evolve-tokens"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"policy": self.policy.name, "version": self.policy.version, **self.params.model_dump(mode="json")}

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        params = self.params.model_copy(update={"stop": tuple(stop)}) if stop else self.params
        reply = await self.policy.generate(to_messages(messages), params)
        return ChatResult(generations=[ChatGeneration(message=to_ai_message(reply))])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise BadInput("TokenChatModel answers in an event loop only; use ainvoke() of the model and of the graph")


def to_messages(messages: Sequence[BaseMessage]) -> tuple[Message, ...]:
    """Return LangChain messages as ours, with the ids that they were sampled as. Raises `BadInput` for other roles."""
    return tuple(_message(message) for message in messages)


def _message(message: BaseMessage) -> Message:
    if message.type not in ROLES:
        raise BadInput(f"got a message of type {message.type!r}, expected one of {', '.join(ROLES)}")
    if isinstance(message, AIMessage) and message.tool_calls:
        raise BadInput("got an AIMessage with tool calls; a policy of ids has none: let it write them as text")
    ids = message.response_metadata.get("token_ids") if isinstance(message, AIMessage) else None
    return Message(
        role=ROLES[message.type],
        content=str(message.text),
        tool_call_id=message.tool_call_id if isinstance(message, ToolMessage) else None,
        token_ids=tuple(ids) if ids else None,
    )


def to_ai_message(reply: Reply) -> AIMessage:
    """Return a reply as a LangChain message, ids included."""
    data = reply.model_dump(mode="json")
    usage = reply.usage
    return AIMessage(
        reply.text,
        response_metadata={
            **{name: data[name] for name in IDS},
            "finish_reason": reply.finish_reason,
            "model_name": reply.policy_version,
        },
        usage_metadata=UsageMetadata(
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
        ),
    )
