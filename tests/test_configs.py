"""Every TOML file that is shipped parses, and every one that configures evolve is accepted by `Config`.

The presets are held by tests/evolve/config/test_presets.py.
"""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from evolve.config.file import load_config
from evolve.errors import ConfigError

ROOT = Path(__file__).resolve().parents[1]
LISTING = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard", "*.toml"], cwd=ROOT, check=True, capture_output=True, text=True
)
FILES = sorted(LISTING.stdout.split())
OTHER = ("pyproject.toml", "evolve/config/presets/", "benchmarks/data/", "evolve/inspector/glossary.toml")
OURS = [name for name in FILES if not name.startswith(OTHER)]


@pytest.mark.parametrize("name", FILES)
def test_it_is_toml(name: str) -> None:
    assert tomllib.loads((ROOT / name).read_text())


@pytest.mark.parametrize("name", OURS)
def test_it_is_a_configuration(name: str) -> None:
    assert load_config(ROOT / name).root == (ROOT / name).parent


def test_there_is_something_to_check() -> None:
    assert OURS


def test_a_misspelt_key_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text("[run]\nbatchsize = 4\n")
    with pytest.raises(ConfigError, match="batch_size"):
        load_config(tmp_path / "evolve.toml")
