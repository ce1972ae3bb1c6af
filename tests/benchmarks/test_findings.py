"""The findings of the audit name tests that exist, and their outcomes are read as they are."""

from __future__ import annotations

from pathlib import Path

from benchmarks.findings import FAILED, FILE, MISSING, PASSED, ROWS, SKIPPED, UNIMPORTABLE, load, outcomes

TESTS = """
import pytest

def test_good(): assert True
def test_bad(): assert 1 == 2
def test_left_out(): pytest.skip("no")
@pytest.mark.parametrize("n", [1, 2])
def test_some(n): assert n == 1
@pytest.fixture
def broken():
    yield
    raise ValueError
def test_torn(broken): pass
"""


def test_the_outcome_of_each_test_is_read(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(TESTS)
    (tmp_path / "test_b.py").write_text("import nothing_of_this_name\ndef test_x(): pass\n")
    names = ("good", "bad", "left_out", "some", "some[1]", "torn")
    found = outcomes(tmp_path, [*(f"test_a.py::test_{name}" for name in names), "test_b.py::test_x"])
    wanted = (PASSED, FAILED, SKIPPED, FAILED, PASSED, FAILED, UNIMPORTABLE)
    assert tuple(found.values()) == wanted


def test_a_test_that_does_not_exist_is_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_x(): pass\n")
    assert outcomes(tmp_path, ["test_a.py::test_y"]) == {"test_a.py::test_y": MISSING}


def test_each_finding_is_of_a_row_and_its_tests_are_in_their_files(root: Path) -> None:
    for finding in load(FILE):
        assert finding.row in ROWS, finding
        for node in finding.tests:
            file, _, name = node.partition("::")
            function = name.rpartition("::")[2].partition("[")[0]
            assert f"def {function}(" in (root / file).read_text(encoding="utf-8"), node
