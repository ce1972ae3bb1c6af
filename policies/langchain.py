"""Any LangChain chat model as a policy: an instance, or `"provider:name"` through `init_chat_model`.

Retries are the chat model's own (`max_retries`): one layer only. Sampling parameters are set on the fields that the
model class has; what it has no field for is announced once, as is a refused schema. Token ids do not pass LangChain.
Models own their connections, and most tie them to the event loop of the first call: use one loop per process.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any, cast

import httpx
from langchain_core.exceptions import ModelError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage
from pydantic import Field

from memory.records import Frozen
from policies.errors import PolicyRefused
from policies.langchain_wire import cut_off, quotable, sdk_errors, to_langchain, to_reply, told, translated
from policies.openai_wire import Offers, narrow, tool_schema
from policies.price import Price
from policies.protocols import Message, Profile, Reply, SamplingParams
from policies.tokens import estimate_prompt, estimate_tokens

log = logging.getLogger(__name__)

_FIELDS: dict[str, tuple[str, ...]] = {
    "temperature": ("temperature",),
    "max_tokens": ("max_tokens", "max_output_tokens", "num_predict"),
    "top_p": ("top_p",),
    "seed": ("seed",),
}
"""Our parameter -> the names chat model classes give it."""


class LangChainOptions(Frozen):
    """What is known about a model beforehand."""

    name: str | None = None
    profile: Profile = "full"
    supports_schema: bool | None = None
    """None = what the model's LangChain profile says about `structured_output`."""
    timeout_s: float | None = Field(default=300.0, gt=0)
    """Seconds a call may take, the model's own retries included."""
    price: Price | None = None


class LangChainPolicy:
    """A LangChain chat model. `fallbacks` lists in words what the model could not do."""

    def __init__(self, model: BaseChatModel | str, *, options: LangChainOptions | None = None) -> None:
        """Take or make the model. Raises `PolicyRefused` for an unknown provider, a missing package or key."""
        self.model = _init(model) if isinstance(model, str) else model
        self.options = options or LangChainOptions()
        self.name = self.options.name or (model if isinstance(model, str) else _name(model))
        self.fallbacks: list[str] = []
        configured = self.options.supports_schema
        self._schema = bool((self.model.profile or {}).get("structured_output")) if configured is None else configured
        self._set: dict[str, BaseChatModel] = {}
        self._offers = Offers(json_schema=False, bounds=False)
        """What of our settings the provider has not refused yet; a schema is `_schema`'s."""

    @property
    def version(self) -> str:
        """The configured name; a reply's `policy_version` is the name that the provider answered with."""
        return self.name

    @property
    def profile(self) -> Profile:
        return self.options.profile

    @property
    def supports_schema(self) -> bool:
        return self._schema

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return one completion. Raises `PolicyUnavailable` or `PolicyRefused`."""
        prompt = [to_langchain(message) for message in messages]
        kwargs: dict[str, Any] = {"stop": list(params.stop)} if params.stop else {}
        while True:
            offers = self._offers
            try:
                async with asyncio.timeout(self.options.timeout_s):
                    message = await self._ask(self._with_settings(params), prompt, params, kwargs)
                break
            except (ModelError, OSError, httpx.HTTPError, json.JSONDecodeError, *sdk_errors()) as error:
                if not self._narrowed(error, params, offers):
                    raise translated(self.name, error) from None
            except ValueError as error:
                if not told(error):
                    raise
                raise translated(self.name, error) from None
        made = to_reply(message, self.version)
        usage = made.usage
        if not usage.prompt_tokens:
            tokens = {"prompt_tokens": estimate_prompt(messages), "completion_tokens": estimate_tokens(made.text)}
            usage = usage.model_copy(update=tokens)
        if self.options.price:
            usage = usage.model_copy(update={"cost_usd": self.options.price.cost(usage)})
        return made.model_copy(update={"usage": usage})

    def count_tokens(self, text: str) -> int:
        """Return the estimate of `policies.tokens`: most LangChain counters download a vocabulary."""
        return estimate_tokens(text)

    async def aclose(self) -> None:
        """Nothing to release: LangChain models own their connections."""

    async def _ask(
        self, model: BaseChatModel, prompt: list[AnyMessage], params: SamplingParams, kwargs: dict[str, Any]
    ) -> AIMessage:
        if params.response_schema is not None and self._schema and not params.tools:
            answer = await self._constrained(model, prompt, params.response_schema, kwargs)
            if answer is not None:
                return answer
        if not params.tools:
            return await model.ainvoke(prompt, **kwargs)
        try:
            bound = model.bind_tools([tool_schema(tool) for tool in params.tools])
        except NotImplementedError:
            raise PolicyRefused(
                f"{self.name} has no native tool calls; use an environment whose actions are text or code"
            ) from None
        return await bound.ainvoke(prompt, **kwargs)

    async def _constrained(
        self, model: BaseChatModel, prompt: list[AnyMessage], schema: dict[str, Any], kwargs: dict[str, Any]
    ) -> AIMessage | None:
        """Ask with the schema; None when this model turns out to have no schema-constrained output."""
        try:
            constrained = model.with_structured_output(schema, method="json_schema", include_raw=True)
        except (NotImplementedError, ValueError, TypeError) as error:
            return self._give_up_schema(error)
        try:
            return cast(dict[str, AIMessage], await constrained.ainvoke(prompt, **kwargs))["raw"]
        except sdk_errors() as error:
            if (cut := cut_off(error)) is not None:
                return cut
            if narrow(Offers(), {"response_format": schema}, str(error)) is None:
                raise
            return self._give_up_schema(error)

    def _narrowed(self, error: Exception, params: SamplingParams, offers: Offers) -> bool:
        """Leave out the setting that an HTTP 400 says is not supported; return whether there was one in the request,
        which had `offers`: calls beside it may have been told the same before."""
        asked = {"temperature": params.temperature, **({} if params.seed is None else {"seed": params.seed})}
        if getattr(error, "status_code", None) not in (400, 422):
            return False
        narrowed = narrow(offers, asked, str(error))
        if narrowed is None:
            return False
        self._offers, meaning = narrowed
        self._announce(meaning)
        return True

    def _give_up_schema(self, error: Exception) -> None:
        self._schema = False
        self._announce(f"free text: the model refuses a JSON schema ({quotable(error)})")

    def _with_settings(self, params: SamplingParams) -> BaseChatModel:
        """Return the model with the parameters set on its fields; copies are kept, a fake may count its calls."""
        update: dict[str, Any] = {}
        for parameter, names in _FIELDS.items():
            value = getattr(params, parameter)
            if value is None or (parameter == "top_p" and value == 1.0):
                continue
            if not (self._offers.seed if parameter == "seed" else self._offers.sampling or parameter == "max_tokens"):
                continue
            field = next((name for name in names if name in type(self.model).model_fields), None)
            if field is None:
                self._announce(f"the model's own {parameter}: {type(self.model).__name__} has no such setting")
            else:
                update[field] = value
        if not update:
            return self.model
        if "seed" in update:  # another one for each call
            return self.model.model_copy(update=update)
        key = json.dumps(update, sort_keys=True)
        if key not in self._set:
            self._set[key] = self.model.model_copy(update=update)
        return self._set[key]

    def _announce(self, meaning: str) -> None:
        if meaning not in self.fallbacks:
            self.fallbacks.append(meaning)
            log.warning("%s goes on with %s", self.name, meaning)

    def __repr__(self) -> str:
        return f"LangChainPolicy({self.name!r})"


def _init(name: str) -> BaseChatModel:
    try:
        from langchain.chat_models import init_chat_model

        return init_chat_model(name)
    except (ImportError, ValueError, *sdk_errors()) as error:
        raise PolicyRefused(
            f"LangChain could not make the model {name!r} ({quotable(error)}); write provider:model, install the "
            "provider's package and set its key's environment variable"
        ) from None


def _name(model: BaseChatModel) -> str:
    for field in ("model_name", "model"):
        if isinstance(value := getattr(model, field, None), str) and value:
            return value
    return type(model).__name__
