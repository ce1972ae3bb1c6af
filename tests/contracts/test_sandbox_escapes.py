"""Attempts to get out of every sandbox. Each must fail, and the host must live and go on working.

A snippet prints `ESCAPED` (or changes the host) when it got out; an error is the expected answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skills.protocols import Limits, Sandbox
from skills.sandbox.monty import MontySandbox
from skills.sandbox.process import ProcessSandbox

SANDBOXES = {"monty": MontySandbox, "process": ProcessSandbox}
SECRET = "host-secret-9124"


@pytest.fixture(scope="module", params=sorted(SANDBOXES))
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    os.environ["EVOLVE_TEST_SECRET"] = SECRET
    made = SANDBOXES[request.param]()
    yield made
    made.close()
    del os.environ["EVOLVE_TEST_SECRET"]


class _Box:
    """A host object with something to hide."""

    hidden = SECRET


def _modules() -> dict[str, dict[str, object]]:
    box = _Box()
    return {"mail": {"echo": lambda value=None: value, "box": lambda: box.hidden[:4]}}


WALK = """
seen = [().__class__]
for kind in ().__class__.__base__.__subclasses__():
    init = getattr(kind, '__init__', None)
    world = getattr(init, '__globals__', {})
    for name in ('system', 'popen', 'open', 'socket', 'Popen'):
        if name in world:
            {use}
"""

ATTEMPTS = {
    "read a file": "print('ESCAPED', open('/etc/hostname').read())",
    "read a file by path": "from pathlib import Path\nprint('ESCAPED', Path('/etc/hostname').read_text())",
    "read a file by number": "import os\nfd = os.open('/etc/hostname', 0)\nprint('ESCAPED', os.read(fd, 9))",
    "write a file": "open('{tmp}/escaped', 'w').write('x')\nprint('ESCAPED')",
    "make a directory": "import os\nos.mkdir('{tmp}/escaped')\nprint('ESCAPED')",
    "list a directory": "import os\nprint('ESCAPED', os.listdir('/'))",
    "environment": "import os\nassert os.environ['EVOLVE_TEST_SECRET']\nprint('ESCAPED')",
    "shell": "import os\nif os.system('true') == 0: print('ESCAPED')",
    "subprocess": "import subprocess\nsubprocess.run(['/bin/true'], check=True)\nprint('ESCAPED')",
    "fork": "import os\nif os.fork() == 0:\n    os._exit(0)\nprint('ESCAPED')",
    "kill the host": "import os\nos.kill({pid}, 9)\nprint('ESCAPED')",
    "network": "import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)\nprint('ESCAPED')",
    "network by C module": "import _socket\ns = _socket.socket()\nprint('ESCAPED')",
    "http": "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:{port}')\nprint('ESCAPED')",
    "ctypes": "import ctypes\nctypes.CDLL(None)\nprint('ESCAPED')",
    "host package": "import memory.records\nprint('ESCAPED')",
    "third party": "import pydantic\nprint('ESCAPED')",
    "import by name": "__import__('subprocess')\nprint('ESCAPED')",
    "import machinery": "import importlib\nimportlib.import_module('socket')\nprint('ESCAPED')",
    "loader": "print('ESCAPED', __loader__.get_data('/etc/hostname'))",
    "raise the limits": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))\nprint('ESCAPED')",
    "unseat the guard": "import sys\nsys.addaudithook(lambda *a: print('ESCAPED'))\nexec('1')",
    "walk to a function's globals": "print('ESCAPED', apps.mail.echo.__globals__['os'].listdir('/'))",
    "walk to the closure": "print('ESCAPED', apps.mail.box.__closure__[0].cell_contents.hidden)",
    "walk to system": WALK.replace("{use}", "if name == 'system' and world[name]('true') == 0: print('ESCAPED')"),
    "walk to popen": WALK.replace("{use}", "if name == 'popen': print('ESCAPED', world[name]('id'))"),
    "walk to open": WALK.replace("{use}", "if name == 'open': print('ESCAPED', world[name]('/etc/passwd'))"),
    "frame walk": "import sys\nprint('ESCAPED', sys._getframe().f_back.f_back.f_back.f_globals['os'].listdir('/'))",
    "ask eval": "eval(\"__import__('os').listdir('/')\")\nprint('ESCAPED')",
    "a private function": "print('ESCAPED', apps.mail._private())",
    "a function of no module": "print('ESCAPED', apps.nothing.echo())",
    "garbage collector": "import gc\nprint('ESCAPED', len(gc.get_objects()))",
    "breakpoint": "breakpoint()\nprint('ESCAPED')",
    "standard input": "print('ESCAPED', input())",
}


@pytest.mark.parametrize("name", sorted(ATTEMPTS))
def test_no_escape(sandbox: Sandbox, name: str, tmp_path: Path, unused_tcp_port: int) -> None:
    tmp_path.chmod(0o777)
    code = ATTEMPTS[name].replace("{tmp}", str(tmp_path)).replace("{pid}", str(os.getpid()))
    session = sandbox.session(_modules())
    result = session.run(code.replace("{port}", str(unused_tcp_port)))
    assert "ESCAPED" not in result.stdout, result
    assert SECRET not in result.stdout + (result.error or "")
    assert list(tmp_path.iterdir()) == []
    session.close()
    assert sandbox.session(_modules()).run("print(apps.mail.echo(1))").stdout == "1\n"


MAY_END_WELL = {"regular expression", "deep argument"}
BOMBS = {
    "time": "while True: pass",
    "time, caught": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "memory, doubling": "x = 'ab'\nwhile True: x += x",
    "memory, list": "x = []\nwhile True: x.append([0] * 1000)",
    "memory, number": "x = 10 ** 10 ** 9",
    "recursion": "def f(): return f()\nf()",
    "recursion, caught": "def f():\n    try:\n        return f()\n    except BaseException:\n        return f()\nf()",
    "nesting": "x = " + "(" * 20_000 + ")" * 20_000,
    "host calls": "while True: apps.mail.echo()",
    "host calls, caught": "while True:\n    try: apps.mail.echo()\n    except BaseException: pass",
    "output": "while True: print('x' * 1000)",
    "big argument": "while True: apps.mail.echo('x' * 5_000_000)",
    "regular expression": "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
    "sleep": "import time\nwhile True: time.sleep(100)",
    "deep argument": "x = []\nfor i in range(100_000): x = [x]\napps.mail.echo(x)",
}


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_no_bomb_reaches_the_host(sandbox: Sandbox, name: str) -> None:
    session = sandbox.session(_modules(), Limits(seconds_per_run=0.5, host_calls=200))
    started = time.monotonic()
    result = session.run(BOMBS[name])
    assert time.monotonic() - started < 5
    assert result.error is not None or name in MAY_END_WELL
    assert len(result.stdout) < 5_000
    session.close()
    assert sandbox.session(_modules()).run("print(apps.mail.echo(1))").stdout == "1\n"
