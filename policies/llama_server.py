"""Runs llama.cpp's server on a GGUF file for as long as it is needed: no GPU, no compiler, no other environment.

The server comes with the package xllamacpp (extra `llama`) and runs in a process of its own. It speaks the OpenAI API,
constrains decoding by a JSON schema, answers several requests at once, and keeps the prefixes of earlier prompts.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from memory.errors import BadInput
from memory.records import Frozen
from policies.errors import PolicyUnavailable
from policies.gguf_file import inspect
from policies.server_process import HOST, free_port, server_process

MISSING = "llama.cpp's server needs the packages xllamacpp and gguf: pip install 'evolve-agents[llama]'"
CACHE_MIB = 2048
"""Memory for prefixes of prompts that no slot holds any more."""


class LlamaOptions(Frozen):
    """How llama.cpp serves."""

    slots: int = 4
    """Requests that are answered at the same time."""
    context: int = 4096
    """Tokens of prompt and reply together, for each request."""
    threads: int | None = None
    """None = one for each core this process may use. They spin: beside other work on the same cores it starves."""
    port: int | None = None
    """None = one that is free."""
    adapter: Path | None = None
    """A LoRA adapter in GGUF, for every request; it stays beside the base (`policies.generations.gguf_adapter`)."""


@contextmanager
def llama_server(
    model: Path, *, log: Path, name: str, options: LlamaOptions | None = None, ready_within_s: float = 300.0
) -> Generator[str]:
    """Serve a GGUF file on this machine under `name`; yield the API's base URL (`.../v1`).

    What the server prints goes to `log`. Raises `BadInput` for a file that is missing, damaged or without a chat
    template, for more context than the model has, and for an adapter of another model; `PolicyUnavailable` without the
    extra `llama`, and as `server_process`.
    """
    options = options or LlamaOptions()
    if any(importlib.util.find_spec(package) is None for package in ("xllamacpp", "gguf")):
        raise PolicyUnavailable(MISSING)
    check(model, options)
    port = free_port() if options.port is None else options.port
    threads = options.threads or len(os.sched_getaffinity(0))
    sizes = (options.slots, options.context * options.slots, threads, CACHE_MIB)
    worker = str(Path(__file__).with_name("llama_worker.py"))
    adapter = str(options.adapter or "")
    command = [sys.executable, "-P", worker, str(model), adapter, name, HOST, str(port), *map(str, sizes)]
    with server_process("llama.cpp", command, port, log, ready_within_s=ready_within_s) as url:
        yield url


def check(model: Path, options: LlamaOptions) -> None:
    """Raise `BadInput` unless the file is whole, has a chat template, was trained for the context asked for, and has
    the modules that the adapter adapts."""
    found = inspect(model)
    if not found.chat_template:
        raise BadInput(
            f"{str(model)!r} ({found.architecture}) has no chat template, so it knows no turns of a conversation; "
            "expected an instruct model"
        )
    if found.context and options.context > found.context:
        raise BadInput(
            f"{str(model)!r} was trained for {found.context} tokens of context, got {options.context}; give --ctx "
            f"{found.context}, or less"
        )
    if options.adapter is not None:
        from policies.generations.gguf_adapter import check_fits

        check_fits(options.adapter, model)
