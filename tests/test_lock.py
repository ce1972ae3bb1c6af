"""The lock of development holds what pyproject.toml asks for, within its ranges, each package with hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

UNLOCKED = {"torch"}
"""docs/decisions/022-locked-packages.md says why."""


@pytest.fixture(scope="module")
def locked(root: Path) -> dict[str, tuple[Version, int]]:
    """Name -> (version, number of hashes)."""
    found: dict[str, tuple[Version, int]] = {}
    text = (root / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if match := re.match(r"([A-Za-z0-9._-]+)==(\S+)", line):
            hashes = re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line)
            found[canonicalize_name(match[1])] = (Version(match[2]), len(hashes))
    return found


@pytest.fixture(scope="module")
def asked(root: Path) -> list[Requirement]:
    """What pyproject.toml asks for, with the extras that the Makefile installs."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = re.search(r"^EXTRAS := (.*)$", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert extras
    named = [line for extra in extras[1].split(",") for line in project["optional-dependencies"][extra]]
    return [Requirement(line) for line in (*project["dependencies"], *named)]


def test_what_is_asked_for_is_locked_within_its_range(
    asked: list[Requirement], locked: dict[str, tuple[Version, int]]
) -> None:
    for requirement in asked:
        name = canonicalize_name(requirement.name)
        if name not in UNLOCKED:
            assert name in locked, f"{requirement} is not locked"
            assert requirement.specifier.contains(locked[name][0]), f"{requirement}: locked is {locked[name][0]}"


def test_every_locked_package_has_a_hash(locked: dict[str, tuple[Version, int]]) -> None:
    assert len(locked) > 100
    assert [name for name, (_, hashes) in locked.items() if not hashes] == []
    assert not UNLOCKED & locked.keys()


@pytest.mark.parametrize(("name", "hole"), [("mcp", "1.22.0"), ("filelock", "3.20.2"), ("python-multipart", "0.0.21")])
def test_no_range_admits_a_version_with_a_known_hole(asked: list[Requirement], name: str, hole: str) -> None:
    assert not any(each.specifier.contains(hole) for each in asked if canonicalize_name(each.name) == name)
