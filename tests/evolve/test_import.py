"""What `import evolve` promises besides its names (`tests/test_surface.py`): clear misses, and strict checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import evolve
from evolve import surface


def test_an_unknown_name_is_told_with_those_that_are_like_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Agnet'; did you mean Agent"):
        _ = evolve.Agnet
    with pytest.raises(AttributeError, match=r"no attribute 'zzzz'; evolve\.__all__ lists what it offers"):
        _ = evolve.zzzz


def test_the_extra_that_brings_a_package_is_not_that_of_developers() -> None:
    assert surface.extra_with("trl") == "trl"
    assert surface.extra_with("pytest") is None


def test_checkpoints_are_read_strictly(root: Path) -> None:
    """Without the variable LangGraph only warns of foreign types in a checkpoint; the graph sets it in time."""
    code = (
        "import evolve.loop.graph\nfrom langgraph.checkpoint.serde import _msgpack\n"
        "print(_msgpack.STRICT_MSGPACK_ENABLED)"
    )
    env = {name: value for name, value in os.environ.items() if name != "LANGGRAPH_STRICT_MSGPACK"}
    ran = subprocess.run([sys.executable, "-c", code], cwd=root, env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "True"
