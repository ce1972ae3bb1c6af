"""A small real OpenAI-compatible server on loopback, for tests: it echoes, and fails in the ways real servers fail."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

MODEL = "echo-1"


def echo(body: dict[str, Any]) -> str:
    """What the model says: the last message, and `{"said": ...}` when it must follow a schema."""
    last = body["messages"][-1]["content"]
    return json.dumps({"said": last}) if "response_format" in body else f"echo: {last}"


@dataclass
class ModelServer:
    """How the server behaves; tests change it between calls. `requests` are the bodies it has answered."""

    answer: Callable[[dict[str, Any]], str | None] = echo
    tool_arguments: str | None = None
    """When set, a request with tools is answered by a call of the first tool with these arguments."""
    vllm: bool = False
    lists_models: bool = True
    listing: tuple[int, Any] | None = None
    """Status and body in place of the list of models."""
    adapter: str | None = None
    """The file of the adapter that it computes with, where it is a llama.cpp server."""
    adapter_failures: list[int] = field(default_factory=list)
    """HTTP status of the next answers about it."""
    key: str | None = None
    refuses: set[str] = field(default_factory=set)
    """Body keys that earn an HTTP 400."""
    forbids: set[str] = field(default_factory=set)
    """Body keys that earn an HTTP 403."""
    failures: list[tuple[int, dict[str, Any] | bytes, dict[str, str]]] = field(default_factory=list)
    """(status, body, headers) of the next answers, taken one by one."""
    delay_s: float = 0.0
    trickles_s: float = 0.0
    """Seconds for which one blank after another comes before the answer."""
    finish_reason: str = "stop"
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    attempts: int = 0
    url: str = ""

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/v1/models")
        async def models() -> JSONResponse:
            if not self.lists_models:
                return _error(404, "Not Found")
            if self.listing is not None:
                return JSONResponse(self.listing[1], status_code=self.listing[0])
            owner = "vllm" if self.vllm else "tests"
            return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": owner}]})

        @app.post("/v1/chat/completions")
        async def chat(request: Request) -> Response:
            self.headers.append(dict(request.headers))
            return await self._chat(await request.json(), request.headers.get("authorization", ""))

        @app.get("/lora-adapters")
        async def adapters(request: Request) -> JSONResponse:
            if self.key is not None and request.headers.get("authorization", "") != f"Bearer {self.key}":
                return _error(401, "no key")
            if self.adapter_failures:
                return _error(self.adapter_failures.pop(), "loading model")
            return JSONResponse([] if self.adapter is None else [{"id": 0, "path": self.adapter, "scale": 1.0}])

        return app

    async def _chat(self, body: dict[str, Any], authorization: str) -> Response:
        self.attempts += 1
        if self.key is not None and authorization != f"Bearer {self.key}":
            return _error(401, f"Incorrect API key provided: {authorization.removeprefix('Bearer ')}")
        if body["model"] != MODEL:
            return _error(404, f"The model `{body['model']}` does not exist.")
        if self.failures:
            status, data, headers = self.failures.pop(0)
            said = data if isinstance(data, bytes) else json.dumps(data)
            return Response(said, status_code=status, headers=headers, media_type="application/json")
        for name in self.forbids & set(body):
            return _error(403, f"You are not allowed to use '{name}' with this model.", param=name)
        for name in self.refuses & set(body):
            return _error(400, f"Unsupported parameter: '{name}' is not supported with this model.", param=name)
        self.requests.append(body)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.trickles_s:
            return StreamingResponse(self._trickle(body), media_type="application/json")
        return JSONResponse(self._completion(body))

    async def _trickle(self, body: dict[str, Any]) -> AsyncIterator[bytes]:
        until = time.monotonic() + self.trickles_s
        while time.monotonic() < until:
            yield b" "
            await asyncio.sleep(0.02)
        yield json.dumps(self._completion(body)).encode()

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        text = self.answer(body)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if body.get("tools") and self.tool_arguments is not None:
            function = {"name": body["tools"][0]["function"]["name"], "arguments": self.tool_arguments}
            message |= {"content": None, "tool_calls": [{"id": "call_a", "type": "function", "function": function}]}
        ids = [ord(c) % 97 for c in text or ""]
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        prompt = sum(len(m["content"] or "") for m in body["messages"])
        completion: dict[str, Any] = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": MODEL,
            "choices": [choice],
            "usage": {"prompt_tokens": prompt, "completion_tokens": len(ids), "total_tokens": prompt + len(ids)},
        }
        if body.get("return_token_ids"):
            choice |= {
                "token_ids": ids,
                "logprobs": {"content": [{"token": "x", "logprob": -0.5, "top_logprobs": []} for _ in ids]},
            }
            completion["prompt_token_ids"] = list(range(prompt))
        return completion


@contextmanager
def serving(server: ModelServer | None = None) -> Iterator[ModelServer]:
    """Serve on a free loopback port until the block ends."""
    server = server or ModelServer()
    config = uvicorn.Config(server.app(), host="127.0.0.1", port=0, log_level="critical", ws="none", lifespan="off")
    uvicorn_server = uvicorn.Server(config)
    thread = threading.Thread(target=uvicorn_server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 600
    while not uvicorn_server.started:
        assert thread.is_alive(), "the test server did not start"
        assert time.monotonic() < deadline, "the test server did not start in ten minutes"
        time.sleep(0.01)
    port = uvicorn_server.servers[0].sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{port}/v1"
    try:
        yield server
    finally:
        uvicorn_server.should_exit = True
        thread.join(timeout=10)


def _error(status: int, message: str, param: str | None = None) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "invalid", "param": param}}, status_code=status)
