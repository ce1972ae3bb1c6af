"""No test here sends anywhere or captures anything because of the shell it was started from."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_otel_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
