"""What stands in contrib is declared, and the core works without importing any of it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

CORE = """
import sys
import evolve, evolve.cli.main, evolve.training.training_session, evolve.training.workspace_rollouts
import policies.rl.trainer
from evolve.config.model import Config
from policies.rl import slots
for slot in slots.SLOTS:
    slots.names(slot)
train = Config().train
for key in ("advantages", "loss", "filter", "transform", "sampler", "allocator"):
    train.member(key)
print(sorted(name for name in sys.modules if name.partition(".")[0] == "contrib"))
"""


def test_the_core_imports_nothing_of_it() -> None:
    ran = subprocess.run([sys.executable, "-c", CORE], capture_output=True, text=True)
    assert (ran.stdout, ran.returncode) == ("[]\n", 0), ran.stderr


def test_each_file_is_declared_as_an_entry_point(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    declared = {
        f"{group.removeprefix('evolve.')}/{name}": place.partition(":")[0]
        for group, points in project["entry-points"].items()
        for name, place in points.items()
    }
    files = [path.relative_to(root / "contrib").with_suffix("") for path in (root / "contrib").rglob("*.py")]
    members = [file.as_posix() for file in files if file.name != "__init__"]
    assert declared == {file: f"contrib.{file.replace('/', '.')}" for file in members}
