"""A pytest plugin that writes the outcome of every test to the file EVOLVE_OUTCOMES, as JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_FOUND: dict[str, str] = {}
_IMPORTED: list[bool] = []


def pytest_collectreport(report: Any) -> None:
    """Note whether a file could be imported."""
    _IMPORTED.append(report.passed)


def pytest_runtest_logreport(report: Any) -> None:
    """Note the outcome; an error while a test is set up or torn down is a failure."""
    if report.when == "call" or not report.passed:
        _FOUND[report.nodeid] = "failed" if _FOUND.get(report.nodeid) == "failed" else report.outcome


def pytest_sessionfinish() -> None:
    """Write what was noted."""
    read = {"tests": _FOUND, "imported": all(_IMPORTED)}
    Path(os.environ["EVOLVE_OUTCOMES"]).write_text(json.dumps(read), encoding="utf-8")
