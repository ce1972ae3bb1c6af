"""What `make test-fast` runs: some tests of every package, none of a file that is listed as slow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.slow_files import seconds_by_file
from tests.conftest import PACKAGES


def listed(root: Path) -> list[str]:
    return (root / "tests" / "slow_files.txt").read_text().splitlines()


def test_what_is_listed_is_there(root: Path) -> None:
    assert [file for file in listed(root) if not (root / file).is_file()] == []


def test_every_package_keeps_fast_tests(root: Path) -> None:
    files = {file.relative_to(root).as_posix() for file in (root / "tests").rglob("test_*.py")} - set(listed(root))
    assert {name: any(file.startswith(f"tests/{name}/") for file in files) for name in PACKAGES} == dict.fromkeys(
        PACKAGES, True
    )


def test_a_slow_file_is_left_out(root: Path) -> None:
    folder = "tests/skills"
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "--fast", "-p", "no:cacheprovider", folder]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    collected = {line.partition("::")[0] for line in said.splitlines() if "::" in line}
    assert collected
    assert collected & set(listed(root)) == set()
    assert any(file.startswith(folder) for file in listed(root))


def test_the_seconds_of_a_file_are_added_up(tmp_path: Path) -> None:
    report = tmp_path / "tests.xml"
    cases = [("tests.memory.test_a", "1.5"), ("tests.memory.test_a", "0.75"), ("tests.skills.test_b", "0.1")]
    told = "".join(f'<testcase classname="{name}" name="t" time="{time}"/>' for name, time in cases)
    report.write_text(f"<testsuites><testsuite>{told}</testsuite></testsuites>")
    assert seconds_by_file(report) == {"tests/memory/test_a.py": 2.25, "tests/skills/test_b.py": 0.1}
