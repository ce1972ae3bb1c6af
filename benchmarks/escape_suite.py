"""The escape suite: attempts to get out of a sandbox, as data, and what tells whether one succeeded.

An attempt succeeds by an effect on the host: the token comes out, a file, a connection or a signal appears, a host
object is changed. A bomb succeeds when it does not end in an error in time. The control runs the same attempts with no
sandbox in a throwaway process, so that the detector is known to see what it looks for.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path

from benchmarks.escape_host import Host
from skills.protocols import Limits, Sandbox

FILE = Path(__file__).parent / "data" / "escape_suite.toml"
BOMBS = frozenset({"time", "memory", "recursion", "floods"})
ABOUT_THE_RUNNER = frozenset({"guard", "protocol"})
"""Groups that go for the sandbox itself: without one there is nothing to attempt."""
VARIABLE = "EVOLVE_ESCAPE_TOKEN"
LIMITS = Limits(seconds_per_run=0.5, memory_mb=32, host_calls=200)
SLOWEST = 6.0
"""Seconds after which a bomb has won."""
_CONTROL = Path(__file__).with_name("escape_host.py")
_CONTROL_SECONDS, _CONTROL_BYTES, _FLOOD = 1.5, 400 << 20, 1_000_000


@dataclass(frozen=True)
class Attempt:
    """One attempt."""

    group: str
    name: str
    code: str

    @property
    def is_bomb(self) -> bool:
        """Whether it wants time or memory and not out."""
        return self.group in BOMBS


@dataclass
class Trial:
    """What came of an attempt: `effects` on the host, and the error it ended in."""

    effects: tuple[str, ...] = ()
    error: str | None = None
    seconds: float = 0.0


@dataclass
class World:
    """What an attempt may reach for, made anew for each: a folder with a canary, a listener, a signal, a token."""

    folder: Path
    listener: socket.socket
    token: str = field(default_factory=lambda: f"canary-{uuid.uuid4().hex}")
    signals: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.chmod(0o777)
        self.listed = f"listed-{uuid.uuid4().hex}"
        (self.folder / self.listed).touch()
        self.canary = self.folder / "secret"
        self.canary.write_text(self.token)
        self.canary.chmod(0o666)
        self.host = Host(self.token)
        self._before = self._files()

    def code(self, attempt: Attempt) -> str:
        """Return the attempt's code with the names of this world."""
        names = {"tmp": self.folder, "canary": self.canary, "port": self.listener.getsockname()[1], "pid": os.getpid()}
        code = attempt.code.replace("{env}", VARIABLE).replace("{parentheses}", "(" * 20_000 + ")" * 20_000)
        for name, value in names.items():
            code = code.replace(f"{{{name}}}", str(value))
        return code

    def effects(self, said: str) -> tuple[str, ...]:
        """Return what happened to the host; `said` is all that the attempt could say."""
        heard = said + "\n".join(self.host.heard)
        happened = {
            "token": self.token in heard or self.listed in heard,
            "files": self._files() != self._before,
            "connection": self._connected(),
            "signal": bool(self.signals),
            "object": self.host.changed or bool(self.host.held or self.host.list),
        }
        return tuple(name for name, true in happened.items() if true)

    def _files(self) -> dict[str, tuple[int, float, bytes]]:
        if not self.folder.is_dir():
            return {}
        found = {path.name: path.lstat() for path in self.folder.iterdir()}
        bodies = {name: (self.folder / name).read_bytes() if name == "secret" else b"" for name in found}
        return {name: (stat.st_mode, stat.st_mtime, bodies[name]) for name, stat in found.items()}

    def _connected(self) -> bool:
        with suppress(BlockingIOError):
            self.listener.accept()[0].close()
            return True
        return False


def load() -> tuple[Attempt, ...]:
    """Return every attempt."""
    with FILE.open("rb") as file:
        groups = tomllib.load(file)
    return tuple(Attempt(group, name, code) for group, items in groups.items() for name, code in items.items())


@contextmanager
def world() -> Generator[World]:
    """Yield a fresh world; the signal handler and the variable are there while it lasts."""
    with tempfile.TemporaryDirectory(prefix="evolve-escape-") as folder, socket.create_server(("127.0.0.1", 0)) as door:
        door.setblocking(False)
        made = World(Path(folder), door)
        old = signal.signal(signal.SIGUSR1, lambda number, _frame: made.signals.append(number))
        os.environ[VARIABLE] = made.token
        try:
            yield made
        finally:
            del os.environ[VARIABLE]
            signal.signal(signal.SIGUSR1, old)


def attempt_in(sandbox: Sandbox, attempt: Attempt) -> Trial:
    """Run an attempt in a sandbox; a bomb that does not end in time with an error has the effect `time`."""
    with world() as here:
        session = sandbox.session(here.host.modules(), LIMITS)
        started = time.monotonic()
        result = session.run(here.code(attempt))
        seconds = time.monotonic() - started
        session.close()
        effects = here.effects(result.stdout + (result.error or ""))
    if attempt.is_bomb and (result.error is None or seconds > SLOWEST):
        effects += ("time",)
    return Trial(effects, result.error, seconds)


def attempt_unprotected(attempt: Attempt) -> Trial:
    """Run an attempt with no sandbox in a throwaway process, which only time and memory hold."""

    def hold() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_CONTROL_BYTES, _CONTROL_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (5, 5))

    with world() as here:
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, str(_CONTROL)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=here.folder.parent,
            env=env,
            preexec_fn=hold,
            start_new_session=True,
        )
        request = dumps({"token": here.token, "code": here.code(attempt)}).encode()
        started = time.monotonic()
        stopped = False
        try:
            out, err = process.communicate(request, timeout=_CONTROL_SECONDS)
        except subprocess.TimeoutExpired:
            stopped = True
            process.kill()
            out, err = process.communicate()
        seconds = time.monotonic() - started
        said = (out[:_FLOOD] + err[-_FLOOD:]).decode(errors="replace")
        effects = here.effects(said)
    won = stopped or process.returncode < 0 or len(out) > _FLOOD or b"MemoryError" in err or process.returncode == 0
    if attempt.is_bomb and won:
        effects += ("time",)
    return Trial(effects, said[-200:], seconds)
