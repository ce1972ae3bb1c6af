"""A workspace in which the office's scripted worker has learned, made once and copied for each test."""

from __future__ import annotations

import shutil
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
