"""Fixtures shared by every folder of tests, and two laws: no test may reach a model hub or send telemetry, and none
depends on the machine's speed. The suite ends with what it skipped, by reason.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

os.environ.update(HF_HUB_OFFLINE="1", ANONYMIZED_TELEMETRY="False", LANGSMITH_TRACING="false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

LONGEST = ("test_first_hour.py", "test_docs.py")
"""The README's own run takes minutes, the guides' together as well: whoever begins one last is waited for."""
HELP = "leave out the files that tests/slow_files.txt lists, but for what tests/fast_tests.txt names of them"
PACKAGES = ("evolve", "memory", "skills", "policies", "playbooks", "contrib")


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the repository's root folder."""
    return Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--fast`."""
    parser.addoption("--fast", action="store_true", help=HELP)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--fast`, do not even import a slow file of which no test is named as fast."""
    if not config.getoption("--fast"):
        return None
    left_out = {*listed(config.rootpath, "slow_files")} - {
        name.partition("::")[0] for name in listed(config.rootpath, "fast_tests")
    }
    return True if collection_path.relative_to(config.rootpath).as_posix() in left_out else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest files; the others keep their order. With `--fast`, leave out the rest of slow files."""
    items.sort(key=lambda item: item.path.name not in LONGEST)
    if config.getoption("--fast"):
        slow, fast = ({*listed(config.rootpath, name)} for name in ("slow_files", "fast_tests"))
        items[:] = [
            item
            for item in items
            if item.nodeid.partition("::")[0] not in slow or item.nodeid.partition("[")[0] in fast
        ]


@cache
def listed(root: Path, name: str) -> list[str]:
    """Return the lines of `tests/slow_files.txt` (files) or `tests/fast_tests.txt` (tests of those)."""
    return (root / "tests" / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many tests were skipped, and the reasons, the most frequent first."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", ()):
        told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[told.removeprefix("Skipped: ").strip()] += 1
    if reasons:
        terminalreporter.section(f"{reasons.total()} skipped", sep="-")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:5}  {reason}")
