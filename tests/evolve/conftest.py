"""A workspace in which the scripted worker has learned, made once and copied; a configuration file to write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evolve.command import evolve, settings


@pytest.fixture(scope="session")
def once_learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the original; do not write to it."""
    folder = settings(tmp_path_factory.mktemp("learned"))
    evolve(folder, "run")
    return folder


@pytest.fixture
def learned(once_learned: Path, tmp_path: Path) -> Path:
    """Return a folder with a copy of the workspace."""
    return Path(shutil.copytree(once_learned, tmp_path / "learned"))


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return a function that writes `evolve.toml` into the current folder, an empty one."""
    monkeypatch.chdir(tmp_path)

    def make(text: str) -> Path:
        path = tmp_path / "evolve.toml"
        path.write_text(text)
        return path

    return make
