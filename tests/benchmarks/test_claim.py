"""What is stored of a claim: targets decide, a dirty tree is refused, and other source is marked."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import benchmarks.claim
import benchmarks.table
from benchmarks.claim import Row, at_least, at_most, begin, exactly


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a small repository that stands in for this one."""
    for package in (*benchmarks.table.PACKAGES, "benchmarks/claims"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "a.py").write_text("x = 1\n")
    for module in (benchmarks.claim, benchmarks.table):
        monkeypatch.setattr(module, "ROOT", tmp_path)
        monkeypatch.setattr(module, "RESULTS", tmp_path / "benchmarks" / "results")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=root, check=True)


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "x")


@pytest.mark.parametrize(
    ("target", "measured", "ok"),
    [
        (at_least(40), 40.0, True),
        (at_least(40), 39.9, False),
        (at_most(5), 5.1, False),
        (at_most(5), 5.0, True),
        (exactly(0), 0, True),
        (exactly(0), 1, False),
        (at_least(0), None, False),
        (None, 3.0, None),
    ],
)
def test_the_target_decides_and_not_measured_is_not_met(target, measured, ok) -> None:
    assert Row("figure", measured, target).ok is ok


def test_a_full_run_is_stored_with_its_commit_and_a_quick_one_is_not(repository: Path) -> None:
    row = Row("share solved", 0.8123456, at_least(0.8), n=10, ci=(0.7, 0.9), seed=3)
    begin("loop_9", "Doc.", ["--quick"]).record([row])
    assert not (repository / "benchmarks/results").exists()
    run = begin("loop_9", "Doc.", [])
    run.record([row])
    (stored,) = json.loads((repository / "benchmarks/results/loop_9.json").read_text())
    assert stored["commit"] == run.commit
    assert stored["command"] == "python -m benchmarks.claims.loop_9"
    assert (stored["measured"], stored["ok"], stored["ci"], stored["seed"]) == (0.8123456, True, [0.7, 0.9], 3)


def test_a_full_run_on_uncommitted_source_is_refused_before_it_starts(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "memory" / "a.py").write_text("x = 2\n")
    with pytest.raises(SystemExit) as ended:
        begin("loop_9", "Doc.", [])
    assert ended.value.code == 2
    assert "memory/a.py" in capsys.readouterr().err
    assert begin("loop_9", "Doc.", ["--quick"]).quick


def test_a_result_is_marked_when_the_source_has_changed_since(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin("loop_9", "Doc.", []).record([Row("figure", 1.0, n=1)])
    benchmarks.table.main()
    assert "measured on other source" not in capsys.readouterr().out
    (repository / "README.md").write_text("text\n")
    commit(repository)
    benchmarks.table.main()
    assert "measured on other source" not in capsys.readouterr().out
    (repository / "benchmarks" / "table.py").write_text("x = 2\n")
    commit(repository)
    benchmarks.table.main()
    assert "measured on other source" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["skills/a.py", "benchmarks/shared.py", "benchmarks/claims/loop_9.py"])
def test_a_result_depends_on_the_packages_its_script_and_what_scripts_share(
    repository: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    begin("loop_9", "Doc.", []).record([Row("figure", 1.0, n=1)])
    (repository / name).write_text("x = 2\n")
    commit(repository)
    benchmarks.table.main()
    assert "1 figures were measured on other source" in capsys.readouterr().out


def test_another_claims_script_changes_nothing(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begin("loop_9", "Doc.", []).record([Row("figure", 1.0, n=1)])
    (repository / "benchmarks/claims/loop_7.py").write_text("x = 2\n")
    commit(repository)
    benchmarks.table.main()
    assert "measured on other source" not in capsys.readouterr().out


def test_a_shared_file_that_is_not_committed_stops_a_full_run(repository: Path) -> None:
    (repository / "benchmarks/shared.py").write_text("x = 1\n")
    with pytest.raises(SystemExit):
        begin("loop_9", "Doc.", [])
    (repository / "benchmarks/shared.py").unlink()
    (repository / "benchmarks/results").mkdir()
    (repository / "benchmarks/results/loop_1.json").write_text("[]")
    assert not begin("loop_9", "Doc.", []).quick


def test_a_script_without_a_result_is_named(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "benchmarks/claims/loop_8.py").write_text("")
    benchmarks.table.main()
    assert "loop_8: no stored result." in capsys.readouterr().out
