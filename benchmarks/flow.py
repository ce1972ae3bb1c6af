"""Counts what one run asks of the journal: SQL statements, episodes read, records parsed from JSON.

    python benchmarks/flow.py [FOLDER]

It prints JSON. The folder is a checkout of this project, of any commit: a process of its own runs sixteen tasks of the
office there, with the pocket model and the default gates, and counts. What is counted does not depend on the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TASKS = 16
_COUNTED = """
import collections, json, sqlite3, sys
from pathlib import Path

found = collections.Counter()
connect = sqlite3.connect

def traced(*given, **named):
    connection = connect(*given, **named)
    connection.set_trace_callback(lambda sql: found.update([] if sql.startswith("--") else ["SQL statements"]))
    return connection

sqlite3.connect = sqlite3.dbapi2.connect = traced

import pydantic

def counting(name, original):
    def counted(cls, *given, **named):
        found["records parsed"] += 1
        found["episodes parsed"] += cls.__name__ == "Trajectory"
        return original.__func__(cls, *given, **named)
    return classmethod(counted)

for name in ("model_validate", "model_validate_json"):
    setattr(pydantic.BaseModel, name, counting(name, pydantic.BaseModel.__dict__[name]))

import memory.store

for name in ("trajectory", "trajectories"):
    def read(original):
        def counted(self, *given, **named):
            got = original(self, *given, **named)
            found["episodes read"] += 0 if got is None else len(got) if isinstance(got, tuple) else 1
            return got
        return counted
    setattr(memory.store.Store, name, read(getattr(memory.store.Store, name)))

try:
    from evolve.config.model import Config
    from evolve.loop.assembly import open_store
    from evolve.loop.session import run
except ModuleNotFoundError:  # the audited commit
    from evolve.config import Config
    from evolve.app import open_store
    from evolve.session import run

config = Config.model_validate({"root": Path(sys.argv[1]), "run": {"tasks": int(sys.argv[2])}})
found.clear()
report = run(config)
counts = dict(found)
with open_store(config, read_only=True) as store:
    arms = collections.Counter(each.arm for each in store.trajectories())
print(json.dumps({**counts, "arms": arms, "applied": len([d for d in store.records()]) if False else 0}))
"""


def counts(tree: Path, tasks: int = TASKS) -> dict[str, int]:
    """Return what a run in a tree counts, by what it is."""
    environ = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="evolve-flow-") as folder:
        command = [sys.executable, "-P", "-c", _COUNTED, folder, str(tasks)]
        done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    print(json.dumps(counts(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())))
