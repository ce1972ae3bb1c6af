"""The far side of `skills.sandbox.process`: a stand-alone script, never imported by the host.

Reads one JSON message per line from standard input and answers on standard output; see `process` for the messages. It
imports what agents may use, then closes the door behind itself (resource limits, unprivileged user, audit hook).
"""

import builtins
import json
import os
import random
import resource
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, cast

_MODULES = """
_strptime bisect calendar collections copy dataclasses datetime decimal enum fractions functools heapq itertools math
operator random re statistics string textwrap time typing
"""
for _name in _MODULES.split():
    __import__(_name)

_HARMLESS = frozenset({"exec", "compile", "builtins.id", "sys._getframe", "object.__getattr__", "object.__setattr__"})
_KILL = 9
_USERS = 2_000_000_000
"""Added to a process id: a user id beyond those that systems give."""
_KEPT = frozenset({"_exit", "fspath", "urandom"})
"""Functions of the operating system that stay: many others (mkfifo, uname, setpriority) are not audited."""
_LOADERS = ("create_builtin", "create_dynamic", "exec_builtin", "exec_dynamic", "get_frozen_object", "init_frozen")
"""Functions of `_imp` that would make a second, whole `posix`."""
_pipe_in, _pipe_out = sys.stdin.buffer, sys.stdout.buffer


def _send(message: dict[str, Any]) -> None:
    _pipe_out.write(json.dumps(message).encode() + b"\n")
    _pipe_out.flush()


def _receive() -> dict[str, Any]:
    line = _pipe_in.readline()
    if not line:
        os._exit(0)
    return json.loads(line)


class _Output:
    """Stands in for sys.stdout: what the code prints goes to the host, which cuts it."""

    def write(self, text: str) -> int:
        text = str(text)
        for start in range(0, len(text), 50_000):
            _send({"print": text[start : start + 50_000]})
        return len(text)

    def flush(self) -> None:
        pass


def _exception(name: str, message: str) -> BaseException:
    try:
        return getattr(builtins, name)(message)
    except TypeError:  # a type that wants more than a message, like UnicodeDecodeError
        return Exception(message)


def _host_function(module: str, name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            _send({"call": [module, name], "args": args, "kwargs": kwargs})
        except (TypeError, ValueError) as error:
            raise TypeError(f"apps.{module}.{name}: arguments must be plain data ({error})") from None
        reply = _receive()
        if "raise" in reply:
            raise _exception(reply["raise"], reply["message"])
        return reply["value"]

    call.__name__ = name
    return call


def _end_with_the_host() -> None:
    """Have the kernel kill this process once nobody can read its standard error: the host holds the other end."""
    import fcntl

    fcntl.fcntl(2, fcntl.F_SETSIG, _KILL)
    fcntl.fcntl(2, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(2, fcntl.F_SETFL, fcntl.fcntl(2, fcntl.F_GETFL) | os.O_ASYNC)
    del sys.modules["fcntl"]


def _close_the_door(memory_mb: int) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for limit, value in (
        (resource.RLIMIT_AS, used + (memory_mb << 20)),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    if os.geteuid() == 0:
        _become_nobody(_USERS + os.getpid())

    _take_away()
    _guard()


def _become_nobody(user: int) -> None:
    """Take a user id that no other process has, or that of nobody where a container maps few."""
    os.setgroups([])
    for each in (user, 65534):
        try:
            os.setgid(each)
            os.setuid(each)
        except OSError:
            continue
        return
    raise PermissionError("this container has no other user for the child")


def _take_away() -> None:
    """Remove what no audit hook sees, wherever a module holds it."""
    system, loaders = vars(sys.modules["posix"]), vars(sys.modules["_imp"])
    gone = [value for value in system.values() if callable(value) and not isinstance(value, type)]
    gone = [value for value in gone if value.__name__ not in _KEPT and not value.__name__.startswith("_path_")]
    gone += [loaders[name] for name in _LOADERS if name in loaders]
    taken = set(map(id, gone))
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if id(value) in taken:
                delattr(module, name)
    for name in ("supports_dir_fd", "supports_effective_ids", "supports_fd", "supports_follow_symlinks"):
        getattr(os, name).clear()


def _guard() -> None:
    """Refuse every audited operation but the harmless. The hook looks nothing up that code could replace, and runs none
    of its methods."""
    harmless, text, kind, missing, denied = _HARMLESS, str, type, ModuleNotFoundError, PermissionError

    def refuse(event: str, args: tuple[Any, ...]) -> None:
        if event == "import":
            name = args[0] if kind(args[0]) is text else "?"
            raise missing(f"No module named {name!r} in this sandbox")
        if event not in harmless:
            raise denied(f"{event} is not allowed in this sandbox")

    sys.addaudithook(refuse)


def _run(code: str, names: dict[str, Any]) -> dict[str, Any]:
    try:
        try:
            compiled = compile(code, "<agent>", "exec")
        except ValueError as error:
            raise SyntaxError(str(error)) from None
        exec(compiled, names)
    except BaseException as error:
        message = str(error)
        return {"done": f"{type(error).__name__}: {message}" if message else type(error).__name__}
    return {"done": None}


def _main() -> None:
    start = _receive()
    apps = types.SimpleNamespace(
        **{
            module: types.SimpleNamespace(**{name: _host_function(module, name) for name in functions})
            for module, functions in start["modules"].items()
        }
    )
    names = {"__name__": "__main__", "__builtins__": builtins, "apps": apps}
    random.seed(0)
    sys.stdout = sys.stderr = cast(TextIO, _Output())
    sys.stdin = cast(TextIO, None)
    sys.setrecursionlimit(start["recursion_depth"] + 30)
    _end_with_the_host()
    _close_the_door(start["memory_mb"])
    _send({"ready": True})
    while True:
        _send(_run(_receive()["run"], names))


if __name__ == "__main__":
    _main()
