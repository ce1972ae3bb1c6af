"""vLLM's HTTP interface on loopback over the in-process engine: its answers are computed, its faults are settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from policies.generations.local_engine import LocalEngine
from policies.protocols import SamplingParams

MODEL = "policy-v0"


@dataclass
class VllmLike:
    """A server; tests change its settings between calls. `requests` are the completions it was asked for."""

    engine: LocalEngine
    model: str = MODEL
    """Its name for the base."""
    ignores_adapters: bool = False
    """Answers from the base whatever adapter is asked for."""
    refuses_to_load: bool = False
    run_time_lora: bool = True
    key: str | None = None
    dev_mode: bool = True
    """Tells how it was started, and can be paused."""
    started: dict[str, Any] = field(
        default_factory=lambda: {
            "lora_config": {"max_lora_rank": 16, "max_loras": 4},
            "parallel_config": {"data_parallel_size": 1},
        }
    )
    slots: int | None = None
    """Requests that it computes at once, and says so; more wait. None = it says nothing, and computes all."""
    most: int = 0
    """Requests that were there at once."""
    gone: int = 0
    """So many requests from now on are answered as if the server were not there, and its adapters are lost."""
    breaks: set[int] = field(default_factory=set)
    """Numbers of completions, in order of arrival, of which it cannot say how likely they were."""
    statuses: dict[str, int] = field(default_factory=dict)
    """HTTP status by path of what a proxy answers in its place."""
    silent: bool = False
    """Takes every request and answers none, until this is false."""
    drops_a_token: bool = False
    """Answers with one id less than log-probabilities."""
    delay_s: float = 0.0
    held: set[str] = field(default_factory=set)
    """Names whose completions wait until they are taken out."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    authorizations: set[str] = field(default_factory=set)
    """What it was shown in place of a key."""
    adapters: dict[str, str] = field(default_factory=dict)
    url: str = ""
    _inside: int = 0

    def app(self) -> FastAPI:
        app = FastAPI()
        app.middleware("http")(self._entered)

        @app.get("/v1/models")
        async def models() -> JSONResponse:
            base = {"id": self.model, "parent": None, "root": "/base", "max_model_len": await self.engine.context()}
            loras = [{"id": name, "parent": self.model, "root": path} for name, path in self.adapters.items()]
            return JSONResponse({"object": "list", "data": [base, *loras]})

        @app.post("/v1/completions")
        async def completions(request: Request) -> JSONResponse:
            return await self._complete(await request.json())

        @app.get("/health")
        async def health() -> PlainTextResponse:
            return PlainTextResponse("")

        if self.dev_mode:
            app.get("/server_info", response_model=None)(self._told)
            app.post("/pause", response_model=None)(health)
            app.post("/resume", response_model=None)(health)
        if self.run_time_lora:
            app.post("/v1/load_lora_adapter", response_model=None)(self._load)
            app.post("/v1/unload_lora_adapter", response_model=None)(self._unload)
        return app

    async def _entered(self, request: Request, enter: Callable[[Request], Awaitable[Response]]) -> Response:
        shown = request.headers.get("authorization", "")
        self.authorizations.add(shown)
        while self.silent:
            await asyncio.sleep(0.01)
        if status := self.statuses.get(request.url.path):
            return _error(status, "the proxy reaches no server")
        return _error(401, "Unauthorized") if self.key and shown != f"Bearer {self.key}" else await enter(request)

    async def _told(self) -> JSONResponse:
        own = {"scheduler_config": {"max_num_seqs": self.slots}} if self.slots else {}
        return JSONResponse({"vllm_config": {**self.started, **own}})

    async def _load(self, request: Request) -> Response:
        body = await request.json()
        name, path = body["lora_name"], body["lora_path"]
        assert body["load_inplace"] is False
        assert Path(path).is_absolute()
        if name in self.adapters:
            return _error(400, f"The lora adapter '{name}' has already been loaded.")
        if self.refuses_to_load:
            return _error(500, "LoRA rank 64 is greater than max_lora_rank 16.")
        if name not in await self.engine.loaded():
            await self.engine.load(name, Path(path))
        self.adapters[name] = path
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    async def _unload(self, request: Request) -> Response:
        name = (await request.json())["lora_name"]
        if self.adapters.pop(name, None) is None:
            return _error(404, f"The lora adapter '{name}' cannot be found.")
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    async def _complete(self, body: dict[str, Any]) -> JSONResponse:
        self._inside += 1
        self.most = max(self.most, self._inside)
        try:
            return await self._answer(body)
        finally:
            self._inside -= 1

    async def _answer(self, body: dict[str, Any]) -> JSONResponse:
        name, prompt = body["model"], body["prompt"]
        if self.gone:
            self.gone -= 1
            self.adapters.clear()
            return _error(503, "the server is starting")
        if name != self.model and name not in self.adapters:
            return _error(404, f"The model `{name}` does not exist.")
        broken = len(self.requests) in self.breaks
        self.requests.append(body)
        version = None if name == self.model or self.ignores_adapters else name
        wanted = {"max_tokens", "temperature", "top_p", "seed", "stop"} & set(body)
        params = SamplingParams.model_validate({name: body[name] for name in wanted})
        done = await self.engine.sample(prompt, params, version)
        await asyncio.sleep(self.delay_s)
        while name in self.held:
            await asyncio.sleep(0.01)
        choice = {
            "index": 0,
            "text": "",
            "finish_reason": done.finish_reason,
            "prompt_token_ids": prompt,
            "token_ids": list(done.token_ids)[self.drops_a_token :],
            "logprobs": {"token_logprobs": [None if broken else each for each in done.logprobs]},
        }
        return JSONResponse({"id": "cmpl-1", "object": "text_completion", "model": name, "choices": [choice]})


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "invalid", "code": status}}, status_code=status)
