"""A model's server in a thread, which says what it is told: real HTTP, no weights."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Say = Callable[[dict[str, Any]], str]
CallTool = Callable[[dict[str, Any]], tuple[str, dict[str, Any]] | None]


class ModelServer:
    """Answers chat completions with the call that `call_tool` returns for the request, else with what `say` does.

    What it was asked is kept.
    """

    def __init__(self) -> None:
        self.say: Say = lambda request: "```python\nprint(1)\n```"
        self.call_tool: CallTool = lambda request: None
        self.asked: list[dict[str, Any]] = []
        self.status = 200
        self.url = ""
        self.together = threading.Event()
        self.together.set()


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """Serve until the test ends."""
    state = ModelServer()

    def answered(request: dict[str, Any]) -> dict[str, Any]:
        called = state.call_tool(request)
        if called is None:
            return {"message": {"role": "assistant", "content": state.say(request)}, "finish_reason": "stop"}
        function = {"name": called[0], "arguments": json.dumps(called[1])}
        call = {"id": f"call-{len(state.asked)}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return {"message": message, "finish_reason": "tool_calls"}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, "application/json", json.dumps({"data": [{"id": "tiny"}]}).encode())

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.asked.append({"path": self.path, "headers": dict(self.headers), **request})
            state.together.wait(30)
            if state.status == 0:
                self.close_connection = True
                return
            if state.status != 200:
                self._send(state.status, "application/json", b'{"error": {"message": "no"}}')
                return
            usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
            if request.get("stream"):
                events = [{"choices": [{"delta": {"content": "hi"}}]}, {"choices": [], "usage": usage}]
                lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
                self._send(200, "text/event-stream", lines.encode())
                return
            choice = {"index": 0, **answered(request)}
            whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice]}
            self._send(200, "application/json", json.dumps({**whole, "usage": usage}).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _send(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    yield state
    state.together.set()
    server.shutdown()
    server.server_close()
    thread.join()
