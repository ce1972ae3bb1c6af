"""Mutants change one place each, are drawn by seed, and are told from each other by whether a test notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.mutants import AREAS, CAUGHT, SURVIVED, Area, equivalents, run, sample, share
from benchmarks.mutation import mutants, sound

SOURCE = '''\
"""A till."""

from __future__ import annotations

LIMIT = 3


def pay(amount: int, left: int, open_: bool = True) -> int:
    """Return what is left."""
    if amount > left:
        raise ValueError(f"{amount} is more than {left + 0}")
    if open_ and amount == LIMIT:
        print("much")
    return left - amount if open_ else left
'''


def changes(source: str) -> set[tuple[str, str, str]]:
    return {(each.kind, each.before.splitlines()[0], each.after) for each in mutants("till.py", source)}


def test_every_kind_of_fault_is_put_in_and_nothing_else_is_touched() -> None:
    assert changes(SOURCE) == {
        ("constant", "3", "4"),
        ("constant", "True", "False"),
        ("comparison", "amount > left", "amount >= left"),
        ("dropped guard", "if amount > left:", "pass"),
        ("dropped statement", "raise ValueError(f'{amount} is more than {left + 0}')", "pass"),
        ("and/or", "open_ and amount == LIMIT", "(open_ or amount == LIMIT)"),
        ("comparison", "amount == LIMIT", "amount != LIMIT"),
        ("dropped statement", "print('much')", "pass"),
        ("negated condition", "left - amount if open_ else left", "(left - amount if not open_ else left)"),
        ("arithmetic", "left - amount", "(left + amount)"),
    }


def test_a_mutant_is_the_source_with_one_place_changed() -> None:
    for each in mutants("till.py", SOURCE):
        changed = {line[0] for line in each.diff(SOURCE).splitlines()[2:]}
        assert changed >= {"+", "-"}, each
        assert sound(each, SOURCE)


def test_letters_of_several_bytes_do_not_shift_the_place() -> None:
    (made,) = mutants("x.py", 'said = ["größer als", 2]\n')
    assert made.source == 'said = ["größer als", 3]\n'


def test_the_same_seed_draws_the_same_mutants_and_no_place_twice(root: Path) -> None:
    few = [area for area in AREAS if area.name in ("trust", "generations")]
    drawn = sample(root, 20, 5, few)
    assert drawn == sample(root, 20, 5, few)
    assert len({(each.file, each.line) for _, each in drawn}) == 20
    assert {area.name for area, _ in drawn} == {"trust", "generations"}
    assert drawn != sample(root, 20, 6, few)


def test_every_area_has_files_and_tests(root: Path) -> None:
    for area in AREAS:
        for pattern in (*area.files, *area.tests):
            assert list(root.glob(pattern)), f"{area.name}: {pattern}"


def test_known_equivalents_are_still_in_the_source(root: Path) -> None:
    for file, kind, before, after in equivalents():
        found = {(each.kind, each.before, each.after) for each in mutants(file, (root / file).read_text())}
        assert (kind, before, after) in found, f"{file}: {before!r} is gone; take it off the list"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A tree whose test looks at the limit and not at the sum."""
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "__init__.py").touch()
    (tmp_path / "memory" / "till.py").write_text("LIMIT = 3\n\n\ndef left(a, b):\n    return a - b\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_till.py").write_text(
        "from memory.till import LIMIT\n\n\ndef test_limit():\n    assert LIMIT == 3\n"
    )
    return tmp_path


def test_a_mutant_is_caught_by_a_test_that_looks_and_survives_otherwise(project: Path) -> None:
    area = Area("till", ("memory/till.py",), ("tests/test_*.py",))
    verdicts = run(project, sample(project, 9, 0, [area]), box=60)
    assert {(each.mutant.kind, each.answer) for each in verdicts} == {("constant", CAUGHT), ("arithmetic", SURVIVED)}
    assert share(verdicts) == 0.5
    assert [each.by for each in verdicts if each.answer == CAUGHT] == ["tests/test_till.py::test_limit"]
    assert (project / "memory" / "till.py").read_text().startswith("LIMIT = 3\n")


def test_nothing_is_begun_after_the_time_is_up(project: Path) -> None:
    area = Area("till", ("memory/till.py",), ("tests/test_*.py",))
    assert run(project, sample(project, 9, 0, [area]), box=60, until=0.0) == []
    assert share([]) is None


def test_what_was_found_is_kept_and_not_sought_again(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    area = Area("till", ("memory/till.py",), ("tests/test_*.py",))
    chosen, kept = sample(project, 9, 0, [area]), tmp_path_factory.mktemp("kept") / "mutants.jsonl"
    first = run(project, chosen[:1], box=60, kept=kept)
    (project / "tests" / "test_till.py").write_text("def test_nothing():\n    pass\n")
    both = run(project, chosen, box=60, jobs=2, kept=kept)
    assert both[:1] == first
    assert [each.answer for each in both] == [first[0].answer, SURVIVED]
    assert len(kept.read_text().splitlines()) == 2
