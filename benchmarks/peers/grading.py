"""The environment's own grader, over HTTP on this machine: peers run in Pythons of their own, which lack it.

`POST /` with `{"task": id, "reply": text}` gives `{"success": true, "feedback": "..."}`. One reading of a reply serves
every arm that answers once: its code blocks are run, and a reply without any is taken as it stands (a bare number is an
answer too). Only tasks that an arm may learn from can be asked about, else a peer could look up what it is examined on.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from evolve.environments.formula import last_number
from evolve.episode.prompting import actions_of
from evolve.protocols import Action, Environment
from memory.records import Frozen, Task
from policies.protocols import Reply

HOST = "127.0.0.1"
RIGHT = "right"
"""Feedback on a reply that needs none."""


class Grade(Frozen):
    """What a reply was worth."""

    success: bool
    feedback: str
    """What the environment observed, and what its checks say is wrong."""


async def grade(environment: Environment, task: Task, reply: str) -> Grade:
    """Do what a reply says in a fresh episode of the task, and grade it. A bug of the environment flies."""
    actions = actions_of(Reply(text=reply), environment.action_format, "full") or (Action(text=reply),)
    episode, seen = environment.start(task), list[str]()
    try:
        for action in actions:
            result = await episode.step(action)
            seen.append(result.observation)
            if result.done:
                break
        outcome = await episode.grade()
    finally:
        await episode.close()
    wrong = [f"{check.name}: {check.detail}" for check in outcome.checks if not check.passed]
    return Grade(success=outcome.success, feedback="\n".join([*seen, *wrong]).strip() or RIGHT)


async def grade_generously(environment: Environment, task: Task, reply: str) -> Grade:
    """Grade a reply as `grade` does, but read one without code as the last number in it.

    Small models write prose where they were asked for code; a person would still find the answer in it.
    """
    number = last_number(reply)
    coded = actions_of(Reply(text=reply), environment.action_format, "full")
    return await grade(environment, task, reply if coded or number is None else repr(number))


async def right_answer(environment: Environment, task: Task) -> str:
    """Return what the environment observes of its own right actions: the answer, for peers that are told it."""
    episode, seen = environment.start(task), list[str]()
    try:
        for action in environment.gold(task):  # type: ignore[attr-defined]
            seen.append((await episode.step(action)).observation)
    finally:
        await episode.close()
    return "\n".join(seen).strip()


@contextmanager
def grading(environment: Environment, tasks: Sequence[Task]) -> Generator[str]:
    """Grade replies to these tasks until the block ends; yield the URL. It listens on this machine only."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="grader", daemon=True)
    known = {task.id: task for task in tasks}

    def graded(asked: Any) -> Grade:
        work = grade(environment, known[asked["task"]], str(asked["reply"]))
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    handler = type("Handler", (_Handler,), {"graded": staticmethod(graded)})
    server = ThreadingHTTPServer((HOST, 0), handler)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, name="grading", daemon=True)
    thread.start()
    serving.start()
    try:
        yield f"http://{HOST}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Handler(BaseHTTPRequestHandler):
    """One question to the grader."""

    graded: Any

    def do_POST(self) -> None:
        """Grade one reply; 400 for a question of another shape or a task that may not be asked about."""
        try:
            asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            status, answer = 200, self.graded(asked).model_dump_json()
        except (ValueError, KeyError, TypeError) as error:
            status, answer = 400, json.dumps({"error": f"expected a task to learn from and a reply: {error!r}"})
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer.encode())))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing to the terminal."""
