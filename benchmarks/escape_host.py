"""The host that attempts to escape are after: what `apps` offers, and what it hides.

Stands by itself: run as a script it executes the code on stdin with nothing around it, in the same process as the host.
That is the control, which shows that an attempt works where there is no sandbox.
"""

import contextlib
import json
import os
import random
import sys
import time
import types
from collections.abc import Callable, Mapping
from typing import Any

SECOND_OF_SEED_0 = 0.7579544029403025


class Host:
    """A host object with a hidden token, and functions that give it away once something of the host was changed."""

    def __init__(self, token: str) -> None:
        self.hidden = token
        self.changed = False
        self.heard: list[str] = []
        self.held: dict[str, Any] = {}
        self.list: list[str] = []
        self.kept: dict[str, Any] = {}

    def box(self) -> str:
        """Return the start of the token: all that anybody may know."""
        return self.hidden[:4]

    def echo(self, value: Any = None) -> Any:
        """Hear a value and return it."""
        self.heard = [*self.heard[-50:], str(value)[:200]]
        return value

    def verify(self) -> str:
        """Return the token if the host was changed."""
        return self._told(bool(self.changed or self.held or self.list or self.kept.get("changed")))

    def keep(self, value: dict[str, Any]) -> None:
        """Keep what was passed."""
        self.kept = value

    def call(self, function: Callable[[], object]) -> object:
        """Call what was passed."""
        return function()

    def _told(self, fooled: bool) -> str:
        if fooled:
            return self.hidden
        raise PermissionError("nothing of the host was changed")

    def modules(self) -> Mapping[str, Mapping[str, Callable[..., Any]]]:
        """Return the host functions. Those that check something are fooled by a value or a module that lies."""
        told = self._told
        return {
            "mail": {
                **{name: getattr(self, name) for name in ("box", "echo", "verify", "keep", "call")},
                "refuse": lambda: told(False),
                "spare": lambda box=self: box.hidden[:4],
                "state": lambda: self.held,
                "items": lambda: self.list,
                "typed": lambda value: told(isinstance(value, int)),
                "short": lambda value: told(len(value) < 5),
                "checked": lambda: told(json.dumps({}) != "{}"),
                "password": lambda value: told(value == "open sesame"),
                "allowed": lambda value: told(bool(value.get("admin"))),
                "below": lambda value: told(value < 10),
                "clock": lambda: told(time.time() < 1),
                "drawn": lambda _value: told(random.random() == SECOND_OF_SEED_0),
                "limit": lambda: told(sys.getrecursionlimit() == 77),
            }
        }


def allow() -> str:
    """Stand in for `Host.verify`; an attempt reaches for it."""
    return BOX.hidden


BOX = Host("")


def main() -> None:
    """Execute the code of the request on stdin unprotected, then say on stderr what the host heard."""
    request = json.loads(sys.stdin.read())
    BOX.hidden = request["token"]
    functions = {name: types.SimpleNamespace(**group) for name, group in BOX.modules().items()}
    try:
        exec(compile(request["code"], "<control>", "exec"), {"apps": types.SimpleNamespace(**functions)})
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        os.write(2, "\n".join(BOX.heard).encode())


if __name__ == "__main__":
    main()
