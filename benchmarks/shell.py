"""The `evolve` command as a user meets it, for claims: workspaces on disk, processes, and a model server that can die.

Measures nothing. The office's scripted worker stands for a model; served over HTTP it is one that can be switched off.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import make_worker
from memory.errors import NotFound
from policies.protocols import Message, SamplingParams

ROOT = Path(__file__).resolve().parents[1]
DEPLOYMENT = 3
WORKER = "evolve.environments.office.worker:worker"
MODEL = "worker-1"
SETTINGS = """\
[run]
tasks = {tasks}
batch_size = 4
concurrency = {concurrency}

[policy]
{policy}

[environment]
name = "office"
deployment = {deployment}
max_steps = 16

[playbook]
{learner}
"""
SCRIPTED = f'name = "{WORKER}"\nmodel = "{DEPLOYMENT}"'
BY_RULES = 'reflector = "rules"\ncurator = "direct"'


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """Return the one line that tells the error; empty unless there is exactly one and nothing like a traceback."""
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        return lines[0].removeprefix("error: ") if len(lines) == 1 and "Traceback" not in self.err else ""

    @property
    def json(self) -> Any:
        """Return what was printed with `--json`."""
        return json.loads(self.out)


def settings(
    folder: Path, *, tasks: int, policy: str = SCRIPTED, learner: str = BY_RULES, deployment: int = DEPLOYMENT
) -> Path:
    """Write evolve.toml into `folder`, made when missing, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    concurrency = 32 if "pocket" in policy else 4
    text = SETTINGS.format(tasks=tasks, policy=policy, learner=learner, deployment=deployment, concurrency=concurrency)
    (folder / "evolve.toml").write_text(text)
    return folder


def evolve(folder: Path, *arguments: str, **more: Any) -> Ended:
    """Run the command in a process of its own, in `folder`. `more` goes to `subprocess.run`."""
    command = [sys.executable, "-P", "-m", "evolve.cli.main", *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, **more)
    return Ended(done.returncode, done.stdout, done.stderr)


def done(ended: Ended) -> Any:
    """Return a command's JSON. Ends here when it failed."""
    if ended.code:
        raise SystemExit(f"exit {ended.code}: {ended.out}{ended.err}")
    return ended.json


@contextmanager
def listening(folder: Path, verb: str, *options: str, env: Mapping[str, str] | None = None) -> Generator[str]:
    """Start a verb that serves (`ui`, `serve`) on a free port over a workspace; yield the URL that it prints.

    `env` is set on top. Raises `RuntimeError` where it ends before it is ready.
    """
    command = [sys.executable, "-m", "evolve.cli.main", "--config", str(folder / "evolve.toml"), verb]
    process = subprocess.Popen(
        [*command, "--port", "0", "--json", *options],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **(env or {})},
    )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.rstrip() == "}":
                break
        if not said:
            raise RuntimeError(f"`evolve {verb}` ended with exit code {process.wait()} before it was ready")
        yield json.loads(said)["url"]
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout:
            process.stdout.close()


@dataclass
class ModelServer:
    """A chat completions server on loopback whose model is the worker. It dies after `lives` answers."""

    lives: int | None = None
    key: str | None = None
    port: int = 0
    answered: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.policy = make_worker(Office(OfficeConfig(deployment=DEPLOYMENT)))

    @property
    def url(self) -> str:
        """Return the base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def settings(self) -> str:
        """Return the keys of `[policy]` that use this server."""
        return f'name = "openai"\nbase_url = "{self.url}"\nmodel = "{MODEL}"\nprofile = "compact"'

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a chat completion; what is no task of the office is answered politely."""
        messages = [Message(role=message["role"], content=message["content"]) for message in body["messages"]]
        try:
            text = asyncio.run(self.policy.generate(messages, SamplingParams())).text
        except NotFound:
            text = "Hello."
        message = {"role": "assistant", "content": text}
        return {"id": "1", "model": MODEL, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    def dead(self) -> bool:
        """Count one request and tell whether the server is out of lives."""
        with self.lock:
            self.answered += 1
            return self.lives is not None and self.answered > self.lives


@contextmanager
def serving(server: ModelServer) -> Generator[ModelServer]:
    """Serve until the block ends; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "here"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if server.key and self.headers["authorization"] != f"Bearer {server.key}":
                self._say(401, {"error": {"message": "no valid key"}})
            elif body["model"] != MODEL:
                self._say(404, {"error": {"message": f"no model {body['model']}"}})
            elif server.dead():
                self.close_connection = True  # and no answer: the peer sees a broken connection
            else:
                self._say(200, server.answer(body))

        def _say(self, status: int, data: dict[str, Any]) -> None:
            text = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

    web = ThreadingHTTPServer(("127.0.0.1", server.port), Handler)
    server.port = web.server_address[1]
    thread = threading.Thread(target=web.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        web.shutdown()
        web.server_close()
        thread.join()
