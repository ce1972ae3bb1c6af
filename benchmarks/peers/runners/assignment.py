"""Input and output of every runner. It runs inside a peer's own Python: the standard library alone.

    python RUNNER.py ASSIGNMENT.json

`phase` is `adapt` (learn from `train`, in this order; `validation` is there for whoever selects on it) or `answer`
(answer `held_out` with what was learned, no more). Between both lies the folder: what is learned goes there.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARENT_S = 1.0
"""Seconds between two looks for the parent process."""


@dataclass(frozen=True)
class Question:
    """One task; `answer` is empty where it is held out."""

    id: str
    question: str
    answer: str = ""


@dataclass(frozen=True)
class Assignment:
    """One phase of one arm."""

    phase: str
    folder: Path
    base_url: str
    """OpenAI-compatible, no key."""
    model: str
    max_tokens: int
    """Most tokens of a reply of the acting role."""
    context: int
    """Tokens of a prompt and its reply together that the server has room for."""
    seed: int
    description: str
    """The environment's own words on how a question is answered."""
    grader: str
    train: tuple[Question, ...]
    validation: tuple[Question, ...]
    held_out: tuple[Question, ...]
    options: dict[str, str]
    """Of one peer alone, such as the path of a checkout."""

    def grade(self, question: Question, reply: str) -> tuple[bool, str]:
        """Return whether the environment accepts a reply to a task to learn from, and what it says of it."""
        body = json.dumps({"task": question.id, "reply": reply}).encode()
        with _opener().open(urllib.request.Request(self.grader, body, method="POST"), timeout=120) as answer:
            found = json.load(answer)
        return found["success"], found["feedback"]

    def adapted(self, learned: int, **more: Any) -> None:
        """Say that adapting is done. `learned`: what was kept of it (rules, changed prompts); 0 = nothing."""
        self.must_be_alive()
        write(self.folder / "adapted.json", {"tasks": len(self.train), "learned": learned, **more})

    def must_be_alive(self) -> None:
        """End the runner where the server is gone: an outage is nobody's wrong answer."""
        try:
            _opener().open(f"{self.base_url}/models", timeout=120).close()
        except OSError as error:
            raise SystemExit(f"the server at {self.base_url} does not answer: {error}") from error

    def answer_all(self, ask: Callable[[Question], str], workers: int = 4) -> None:
        """Answer each held-out question into a file of its own. An error of the peer is its empty answer."""
        answers = self.folder / "answers"
        answers.mkdir()
        stop = threading.Event()

        def one(question: Question) -> None:
            file = answers / f"{hashlib.sha256(question.id.encode()).hexdigest()[:16]}.json"
            if stop.is_set():
                return
            try:
                reply, error = ask(question), ""
            except Exception as failed:
                self.must_be_alive()
                reply, error = "", f"{type(failed).__name__}: {failed}"[:2000]
            write(file, {"task": question.id, "reply": reply, "error": error})

        with ThreadPoolExecutor(workers) as pool:
            try:
                list(pool.map(one, self.held_out))
            except BaseException:
                stop.set()
                raise


def read() -> Assignment:
    """Return the assignment that the command line names. From then on the runner ends when its parent does."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    given = json.loads(Path(sys.argv[1]).read_text())
    for name in ("train", "validation", "held_out"):
        given[name] = tuple(Question(**each) for each in given[name])
    return Assignment(**{**given, "folder": Path(given["folder"])})


def _end_with(parent: int) -> None:
    """Leave at once when the parent is gone: a peer may go on asking a dead address for hours."""
    while os.getppid() == parent:
        time.sleep(PARENT_S)
    os._exit(3)


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def write(file: Path, content: dict[str, Any]) -> None:
    """Write whole or not at all."""
    half = file.with_name(file.name + f".{threading.get_ident()}.half")
    half.write_text(json.dumps(content, indent=2))
    half.replace(file)
