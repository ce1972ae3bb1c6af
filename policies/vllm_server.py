"""Runs a vLLM server of one's own for as long as it is needed: starts it, waits until it answers, stops all of it.

For tests, benchmarks and training on this machine. It installs nothing (`scripts/install_vllm_cpu.sh` does) and says
nothing to the server but `/health`; `policies.openai_server.OpenAIPolicy` talks to it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from policies.errors import PolicyUnavailable

SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "TORCHDYNAMO_DISABLE": "1",  # else the first request waits half a minute for a C++ compiler
}
ARGUMENTS = (
    *("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "32", "--logprobs-mode", "processed_logprobs"),
    *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
)
"""Computed as `LocalPolicy` does; log-probabilities are those of the sampling policy, as `Reply` wants them. Replies by
a schema hold no blanks between tokens: a small model would write nothing else until its limit."""
LORA = ("--enable-lora", "--max-loras", "4", "--max-cpu-loras", "8")
"""Room for the live generation, the one before it, and one that is looked at. Such a server loads adapters at run time
from any path of this machine: for loopback only."""
RUN_TIME_LORA = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}

PATIENCE_S = ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0))
QUOTED_LINES = 12


@contextmanager
def vllm_server(
    model: Path,
    *,
    executable: Path,
    log: Path,
    name: str = "served",
    arguments: Sequence[str] = ARGUMENTS,
    ready_within_s: float = 300.0,
) -> Generator[str]:
    """Serve the model directory on this machine under `name`; yield the API's base URL (`.../v1`).

    The port is a free one, unless the arguments name it (`--port`).

    What the server prints goes to `log`. On leaving, it and every process it started are stopped. Raises
    `PolicyUnavailable` where the executable is absent, ends by itself or does not answer within `ready_within_s`.
    """
    port = arguments[arguments.index("--port") + 1] if "--port" in arguments else str(_free_port())
    serve = (str(executable), "serve", str(model), "--served-model-name", name)
    command = [*serve, "--host", "127.0.0.1", "--port", port, *arguments]
    settings = SETTINGS | (RUN_TIME_LORA if "--enable-lora" in arguments else {})
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **settings},
                start_new_session=True,
            )
        except OSError as error:
            raise PolicyUnavailable(
                f"cannot start vLLM as {str(executable)!r} ({error.strerror}); scripts/install_vllm_cpu.sh installs it"
            ) from error
    try:
        _wait(process, f"http://127.0.0.1:{port}/health", log, ready_within_s)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        _stop(process)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait(process: subprocess.Popen[bytes], health: str, log: Path, ready_within_s: float) -> None:
    deadline = time.monotonic() + ready_within_s
    with httpx.Client(trust_env=False, timeout=5.0) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise PolicyUnavailable(f"vLLM ended with status {process.returncode} while starting; {_end_of(log)}")
            try:
                if client.get(health).is_success:
                    return
            except httpx.TransportError:
                pass  # not listening yet
            time.sleep(0.2)
    raise PolicyUnavailable(f"vLLM did not answer {health} within {ready_within_s:g} s; {_end_of(log)}")


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-QUOTED_LINES:]
    return "\n".join([f"the end of {log} says:", *lines])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the whole process group to end, wait, and kill what is left of it."""
    for sign, seconds in PATIENCE_S:
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and _alive(process):
            time.sleep(0.05)
    process.wait()


def _alive(process: subprocess.Popen[bytes]) -> bool:
    """Tell whether any process of the group runs; reaps the first one."""
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True
