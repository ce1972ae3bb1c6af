"""A model server of one's own on this machine, for as long as it is needed: started, waited for, stopped altogether."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from policies.errors import PolicyUnavailable

HOST = "127.0.0.1"
PATIENCE_S = ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0))
QUOTED_LINES = 12
GUARD = Path(__file__).with_name("server_guard.py")


@contextmanager
def server_process(
    name: str,
    command: Sequence[str],
    port: int,
    log: Path,
    *,
    settings: Mapping[str, str] | None = None,
    ready_within_s: float = 300.0,
) -> Generator[str]:
    """Run a command that serves an OpenAI-compatible API on `port` of this machine; yield its base URL (`.../v1`).

    What it prints goes to `log`; `settings` are added to its environment. It is ready when `/health` answers. On
    leaving, it and every process it started are stopped; so are they where this process is killed. Raises
    `PolicyUnavailable` where the port is taken, or the command is no program, ends by itself or does not answer within
    `ready_within_s`.
    """
    _refuse_taken(name, port)
    if shutil.which(command[0]) is None:
        raise PolicyUnavailable(f"cannot start {name}: {command[0]!r} is not a program that this user may run")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-I", str(GUARD), str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(settings or {})},
            start_new_session=True,
        )
    try:
        _wait(name, process, f"http://{HOST}:{port}/health", log, ready_within_s)
        yield f"http://{HOST}:{port}/v1"
    finally:
        _stop(process)


def free_port() -> int:
    """Return a port of this machine that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def _refuse_taken(name: str, port: int) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that was just closed is free
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise PolicyUnavailable(
                f"{name} cannot listen on port {port} of {HOST} ({error.strerror}); stop what does, or give another "
                "with --port"
            ) from error


def _wait(name: str, process: subprocess.Popen[bytes], health: str, log: Path, ready_within_s: float) -> None:
    deadline = time.monotonic() + ready_within_s
    with httpx.Client(trust_env=False, timeout=5.0) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise PolicyUnavailable(f"{name} ended with status {process.returncode} while starting; {_end_of(log)}")
            try:
                if client.get(health).is_success:
                    return
            except httpx.TransportError:
                pass  # not listening yet
            time.sleep(0.2)
    raise PolicyUnavailable(f"{name} did not answer {health} within {ready_within_s:g} s; {_end_of(log)}")


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
