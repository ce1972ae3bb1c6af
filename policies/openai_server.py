"""Any OpenAI-compatible server through the raw async client: vLLM first, llama.cpp, Ollama, OpenAI itself.

Against vLLM a reply carries token ids and log-probabilities. A feature that the server refuses is given up with a
warning and an entry in `fallbacks`, never silently. `server_features` asks beforehand.

What an OpenAI-compatible server can do, found out by asking it: three requests of a few tokens each.

A server may refuse a feature, or take the request and ignore it; only the reply tells.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from memory.records import Frozen, Usage
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.features import ServerFeatures
from policies.llama_adapters import Adapted, require_adapter
from policies.openai_transport import BadRequest, Connection, NoSuchRoute, Transport
from policies.openai_wire import Offers, defused, narrow, reply, request, tool_schema
from policies.price import Price
from policies.protocols import Message, Profile, Reply, SamplingParams, ToolSpec
from policies.tokens import estimate_prompt, estimate_tokens

log = logging.getLogger(__name__)


class ServerOptions(Frozen):
    """What is known about a server beforehand. The defaults find out by asking it."""

    profile: Profile = "full"
    supports_schema: bool | None = None
    """Schema-constrained decoding; None = yes until the server refuses it."""
    token_ids: bool | None = None
    """Token ids and log-probabilities; None = when the server says that it is vLLM."""
    price: Price | None = None
    special_tokens: tuple[str, ...] = ()
    """Special tokens of the served model. Inside a message they are broken up: the text is data, and a server such as
    vLLM reads them as its own, so that an observation could open a turn."""
    adapted: Adapted | None = None
    """What a llama.cpp server has to compute with, asked before the first reply; None = whatever it serves."""


class OpenAIPolicy:
    """A model on a server. `generate` raises `PolicyUnavailable` or `PolicyRefused`, each with the fix.

    `base_url` may be a `Connection` (timeout, attempts, name of the key's variable). `count_tokens` is an estimate
    unless `counter` is given (the served model's tokenizer).
    """

    def __init__(
        self,
        base_url: str | Connection,
        model: str,
        api_key: str | None = None,
        *,
        options: ServerOptions | None = None,
        counter: Callable[[str], int] = estimate_tokens,
    ) -> None:
        """Connect to nothing yet. Raises `BadInput` for a URL that is not plain http(s)."""
        self.connection = Connection(base_url=base_url) if isinstance(base_url, str) else base_url
        self.name = model
        self.options = options or ServerOptions()
        self.fallbacks: list[str] = []
        """Features the server refused, in words."""
        self._transport = Transport(self.connection, api_key)
        self._offers = Offers(
            json_schema=self.options.supports_schema is not False, token_ids=self.options.token_ids is True
        )
        self._served: tuple[str, ...] | None = None
        self._features = ServerFeatures(base_url=self.connection.base_url, model=model)
        self._probed = False
        self._lost = 0
        """Lost requests after which the server's adapter was looked at."""
        self._counter = counter

    @property
    def version(self) -> str:
        """The served model or adapter name; a reply's `policy_version` is the name that the server answered with."""
        adapter = self.options.adapted.file if self.options.adapted else ""
        return f"{self.name}/{adapter}" if adapter else self.name

    @property
    def generation(self) -> str | None:
        """What its adapter is called in a registry of generations, where it has one."""
        adapted = self.options.adapted
        return adapted.generation if adapted and adapted.file else None

    @property
    def profile(self) -> Profile:
        return self.options.profile

    @property
    def supports_schema(self) -> bool:
        """True until the server has refused a schema."""
        return self._offers.json_schema

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return one completion with usage, and cost where a price is set."""
        if self._served is None:
            await self._look()
        messages = defused(messages, self.options.special_tokens)
        while True:
            offers = self._offers
            body = request(self.name, messages, params, offers)
            try:
                data = await self._transport.call("/chat/completions", body)
            except BadRequest as refusal:
                narrowed = narrow(offers, body, str(refusal))
                if narrowed is None:
                    raise
                self._give_up(*narrowed)
            except NoSuchRoute as refusal:
                raise self._unknown_model(refusal) from None
            else:
                await self._see_adapter()
                return self._finished(data, messages)

    async def _see_adapter(self) -> None:
        """Look again after a lost request: the server may have been started anew, with another adapter."""
        if self.options.adapted is not None and self._lost != self._transport.lost:
            await require_adapter(self._transport, self.connection.base_url, self.options.adapted)
            self._lost = self._transport.lost

    async def server_features(self, known: Sequence[ServerFeatures] = ()) -> ServerFeatures:
        """Return what the server can do. It is asked once, by three requests of a few tokens, and from then on only for
        what it has; not at all where one of `known` is about the same server and model. Raises as `generate`."""
        if self._probed:
            return self._features.model_copy(update={"usage": Usage()})
        if self._served is None:
            await self._look()
        if remembered := self._remembered(known):
            return remembered
        before = self._offers
        asked = before.model_copy(update={"token_ids": self.options.token_ids is not False})
        try:
            self._features, offers = await probe(self._transport.call, self.name, asked, self._features)
        except NoSuchRoute as refusal:
            raise self._unknown_model(refusal) from None
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._no_completion(error) from error
        self._offers, self._probed = offers, True
        if before.json_schema and not offers.json_schema:
            self._announce("free text")
        if before.token_ids and not offers.token_ids:
            self._announce("no token ids and log-probabilities")
        if self.options.price:
            paid = {"cost_usd": self.options.price.cost(self._features.usage)}
            self._features = self._features.model_copy(update={"usage": self._features.usage.model_copy(update=paid)})
        return self._features

    def _remembered(self, known: Sequence[ServerFeatures]) -> ServerFeatures | None:
        """Take over what is known of this server, unless the options rule something out."""
        if self.options.supports_schema is not None or self.options.token_ids is not None:
            return None
        here = self._features
        for each in known:
            if (each.base_url, each.model, each.server) == (here.base_url, here.model, here.server):
                has = {"json_schema": each.json_schema, "token_ids": each.token_ids}
                self._offers, self._probed = self._offers.model_copy(update=has), True
                self._features = each.model_copy(update={"usage": Usage()})
                return self._features
        return None

    def count_tokens(self, text: str) -> int:
        return self._counter(text)

    async def aclose(self) -> None:
        """Close the connections; a later call opens new ones."""
        await self._transport.aclose()

    async def _look(self) -> None:
        """Ask once what is served and whether the server is vLLM. A server without a model list is taken as it is.

        Raises `PolicyRefused` for one that computes with another adapter than it should.
        """
        if self.options.adapted is not None:
            await require_adapter(self._transport, self.connection.base_url, self.options.adapted)
        try:
            listing = await self._transport.call("/models")
        except PolicyRefused:  # no list, none in this form, or not for this key: the first request will tell
            self._served = ()
            return
        models = [entry for entry in listing.get("data") or () if isinstance(entry, dict)]
        self._served = tuple(str(entry.get("id")) for entry in models)
        owners = {str(entry.get("owned_by") or "") for entry in models if entry.get("id") == self.name}
        self._features = self._features.model_copy(update={"server": owners.pop() if owners else ""})
        if self.options.token_ids is None and any(entry.get("owned_by") == "vllm" for entry in models):
            self._offers = self._offers.model_copy(update={"token_ids": True})

    def _give_up(self, offers: Offers, meaning: str) -> None:
        self._offers = offers
        self._announce(meaning)

    def _announce(self, meaning: str) -> None:
        if meaning not in self.fallbacks:
            self.fallbacks.append(meaning)
            log.warning("%s at %s goes on with %s", self.name, self.connection.base_url, meaning)

    def _unknown_model(self, refusal: NoSuchRoute) -> PolicyRefused:
        if not self._served:
            return PolicyRefused(
                f"{refusal}; check the model {self.name!r} and that base_url ends as the API's does (/v1)"
            )
        near = difflib.get_close_matches(self.name, self._served, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it serves {', '.join(map(repr, self._served[:8]))}"
        return PolicyRefused(f"{self.connection.base_url} does not serve {self.name!r}; {hint}")

    def _no_completion(self, error: Exception) -> PolicyRefused:
        return PolicyRefused(
            f"{self.connection.base_url} answered no chat completion ({type(error).__name__}: {error}); it must be an "
            "OpenAI-compatible API"
        )

    def _finished(self, data: Mapping[str, Any], messages: Sequence[Message]) -> Reply:
        try:
            made = reply(data, self.version)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._no_completion(error) from error
        if self._offers.token_ids and (made.token_ids is None or made.logprobs is None):
            self._announce("replies without matching token ids and log-probabilities")
        usage = made.usage
        if not usage.prompt_tokens:
            tokens = {"prompt_tokens": estimate_prompt(messages), "completion_tokens": self.count_tokens(made.text)}
            usage = usage.model_copy(update=tokens)
        if self.options.price:
            usage = usage.model_copy(update={"cost_usd": self.options.price.cost(usage)})
        answered = {"policy_version": self.version} if self.options.adapted else {}
        return made.model_copy(update={"usage": usage, **answered})

    def __repr__(self) -> str:
        return f"OpenAIPolicy(base_url={self.connection.base_url!r}, model={self.name!r})"


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
        except PolicyRefused:  # also HTTP 403: OpenAI's for models that tell none; the key was good a request ago
            continue
        return {"logprobs": made.logprobs is not None, "token_ids": bool(made.token_ids and made.logprobs)}
    return {"logprobs": False, "token_ids": False}


async def _tools(call: Call, plain: Mapping[str, Any]) -> bool:
    try:
        await call("/chat/completions", {**plain, "tools": [tool_schema(TOOL)]})
    except (PolicyRefused, PolicyUnavailable):  # some answer 500; one that died is met again by the next call
        return False
    return True


def _text(data: Mapping[str, Any]) -> str:
    return reply(data, "").text.strip()
