"""Fixtures shared by every folder of tests, and one law: no test may reach a model hub or send telemetry."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.update(HF_HUB_OFFLINE="1", ANONYMIZED_TELEMETRY="False", LANGSMITH_TRACING="false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

PACKAGES = ("evolve", "memory", "skills", "policies", "playbooks")


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the repository's root folder."""
    return Path(__file__).resolve().parents[1]
