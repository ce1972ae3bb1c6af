"""Features of a model's server: said in the first lines of a run."""

from __future__ import annotations

from collections.abc import Sequence

from memory.records import Frozen, Usage
from policies.protocols import Policy


class ServerFeatures(Frozen):
    """What a server was found to do with a model."""

    base_url: str
    model: str
    server: str = ""
    """What it calls itself in its list of models: `vllm`, `llamacpp` ..."""
    json_schema: bool = False
    """Replies that must follow a schema do."""
    logprobs: bool = False
    token_ids: bool = False
    """Ids of the prompt's and the reply's tokens: what training on its replies needs."""
    tools: bool = False
    """Requests that offer tools are taken."""
    usage: Usage = Usage()
    """What finding out took; nothing where it was known."""
    since: str = ""
    """When it was found out, where it was known."""

    @property
    def sentence(self) -> str:
        """Say it in one line."""
        found = {
            "replies by JSON schema": self.json_schema,
            "tools": self.tools,
            "log-probabilities": self.logprobs,
            "token ids": self.token_ids,
        }
        named = f" ({self.server})" if self.server else ""
        at = f"{self.model} at {self.base_url}{named}"
        tokens = self.usage.prompt_tokens + self.usage.completion_tokens
        took = f"; asked by {self.usage.calls} calls, {tokens} tokens, which count" if self.usage.calls else ""
        known = f"; as found {self.since}, not asked again" if self.since else ""
        return f"{at}: {', '.join(f'{what} {_yes(has)}' for what, has in found.items())}{took}{known}"


def _yes(has: bool) -> str:
    return "yes" if has else "no"


async def features_of(policy: Policy, known: Sequence[ServerFeatures] = ()) -> ServerFeatures | None:
    """Return what the policy's server can do, None for a policy without one. Raises as its `generate`.

    The first of `known` that is about this server and model is believed without asking.
    """
    find = getattr(policy, "server_features", None)
    return await find(known) if find is not None else None
