"""Checks what `make test-fast` runs: tests of every package and room, and of slow files only what is named as fast."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.slow_files import seconds_by_file
from tests.conftest import PACKAGES, listed


def test_what_is_listed_is_there(root: Path) -> None:
    assert [file for file in listed(root, "slow_files") if not (root / file).is_file()] == []
    tests = [name.split("::") for name in listed(root, "fast_tests")]
    assert [test for file, test in tests if f"def {test}(" not in (root / file).read_text()] == []
    assert {file for file, _ in tests} <= set(listed(root, "slow_files"))


def test_every_package_and_every_room_of_evolve_keeps_fast_tests(root: Path) -> None:
    files = {file.relative_to(root).as_posix() for file in (root / "tests").rglob("test_*.py")}
    fast = files - set(listed(root, "slow_files")) | set(listed(root, "fast_tests"))
    rooms = [f"evolve/{file.parent.name}" for file in (root / "evolve").glob("*/__init__.py")]
    assert len(rooms) > 10
    without = [name for name in (*PACKAGES, *rooms, "labs") if not any(f.startswith(f"tests/{name}/") for f in fast)]
    assert without == []


def test_of_a_slow_file_those_tests_alone_are_taken_that_are_named(root: Path) -> None:
    collected, named = collected_in(root, "tests/evolve/workspace"), listed(root, "fast_tests")
    assert collected == {name for name in named if name.startswith("tests/evolve/workspace/")} != set()


def test_a_slow_file_is_left_out(root: Path) -> None:
    folder = "tests/skills"
    collected = {name.partition("::")[0] for name in collected_in(root, folder)}
    assert collected
    assert collected & set(listed(root, "slow_files")) == set()
    assert any(file.startswith(folder) for file in listed(root, "slow_files"))


def collected_in(root: Path, folder: str) -> set[str]:
    """Return the tests that `--fast` takes in a folder."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "--fast", "-p", "no:cacheprovider", folder]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return {line for line in said.splitlines() if "::" in line}


def test_the_seconds_of_a_file_are_added_up(tmp_path: Path) -> None:
    report = tmp_path / "tests.xml"
    cases = [("tests.memory.test_a", "1.5"), ("tests.memory.test_a", "0.75"), ("tests.skills.test_b", "0.1")]
    told = "".join(f'<testcase classname="{name}" name="t" time="{time}"/>' for name, time in cases)
    report.write_text(f"<testsuites><testsuite>{told}</testsuite></testsuites>")
    assert seconds_by_file(report) == {"tests/memory/test_a.py": 2.25, "tests/skills/test_b.py": 0.1}
