"""What an OpenAI-compatible server can do, found out by asking it: three requests of a few tokens each.

A server may refuse a feature, or take the request and ignore it; only the reply tells.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from memory.records import Usage
from policies.errors import PolicyUnavailable
from policies.features import ServerFeatures
from policies.openai_transport import BadRequest
from policies.openai_wire import Offers, narrow, reply, request, tool_schema
from policies.protocols import Message, SamplingParams, ToolSpec

Call = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]

QUESTION = (Message(role="user", content="Say hello."),)
SCHEMA = {
    "title": "probe",
    "type": "object",
    "properties": {"ready": {"type": "boolean"}},
    "required": ["ready"],
    "additionalProperties": False,
}
"""Nobody answers the question by an object unasked."""
TOOL = ToolSpec(name="wave", description="Wave a hand.")
TOKENS = 8


async def probe(call: Call, model: str, offers: Offers, known: ServerFeatures) -> tuple[ServerFeatures, Offers]:
    """Return `known` completed by what the server can do, and `offers` without what it cannot.

    Features that `offers` has not are not tried. Raises what `call` raises for a request without any of them.
    """
    usage = Usage()

    async def counted(path: str, body: dict[str, Any]) -> dict[str, Any]:
        nonlocal usage
        data = await call(path, body)
        usage += reply(data, "").usage
        return data

    schema, offers = await _schema(counted, model, offers)
    plain = request(model, QUESTION, SamplingParams(max_tokens=TOKENS), offers.model_copy(update={"token_ids": False}))
    tokens: dict[str, bool] = {}
    if offers.token_ids:
        tokens = await _tokens(counted, plain)
        offers = offers.model_copy(update={"token_ids": tokens["token_ids"]})
    found = {"json_schema": schema, "tools": await _tools(counted, plain), **tokens}
    return known.model_copy(update={**found, "usage": usage}), offers


async def _schema(call: Call, model: str, offers: Offers) -> tuple[bool, Offers]:
    """Ask for an object. An empty reply, of a model that thinks first, tells nothing: the offer stands."""
    params = SamplingParams(max_tokens=TOKENS, response_schema=SCHEMA)
    while True:
        body = request(model, QUESTION, params, offers.model_copy(update={"token_ids": False}))
        try:
            text = _text(await call("/chat/completions", body))
        except BadRequest as refusal:
            narrowed = narrow(offers, body, str(refusal))
            if narrowed is None:
                raise
            offers = narrowed[0]
            continue
        kept = offers.json_schema and (not text or text.startswith("{"))
        return kept, offers.model_copy(update={"json_schema": kept})


async def _tokens(call: Call, plain: Mapping[str, Any]) -> dict[str, bool]:
    for asked in ({"logprobs": True, "return_token_ids": True}, {"logprobs": True}):
        try:
            made = reply(await call("/chat/completions", {**plain, **asked}), "")
        except BadRequest:
            continue
        return {"logprobs": made.logprobs is not None, "token_ids": bool(made.token_ids and made.logprobs)}
    return {"logprobs": False, "token_ids": False}


async def _tools(call: Call, plain: Mapping[str, Any]) -> bool:
    try:
        await call("/chat/completions", {**plain, "tools": [tool_schema(TOOL)]})
    except (BadRequest, PolicyUnavailable):  # some answer 500; one that died is met again by the next call
        return False
    return True


def _text(data: Mapping[str, Any]) -> str:
    return reply(data, "").text.strip()
