"""A run whose world shows secrets, with all turned on that keeps text: none is in any file or on the screen."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Generator
from pathlib import Path

import pytest
import structlog

from evolve.cli.log_setup import OURS, DayFile, Lines
from evolve.telemetry.semconv import METRICS
from tests.evolve.command import evolve, evolve_json, invoke
from tests.memory.fake_secrets import SECRETS, core

SETTINGS = """
[run]
batch_size = 8
[policy]
name = "tests.evolve.telemetry.leaky:parrot"
[environment]
name = "tests.evolve.telemetry.leaky:Leaky"
max_steps = 2
[memory]
index = "exact"
[playbook]
curator = "direct"
[controls]
no_memory = 0
[telemetry]
enabled = true
capture_content = true
[log]
level = "debug"
format = "json"
file = true
"""


@pytest.fixture(autouse=True)
def _usual_logging() -> Generator[None]:
    yield
    structlog.reset_defaults()
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, Lines | DayFile)]:
        root.removeHandler(handler)
        handler.close()
    for name in OURS:
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_no_secret_stays_anywhere(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text(SETTINGS)
    result = invoke(tmp_path, "run")
    assert result.exit_code == 0, result.output
    files = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert {"evolve.db", "checkpoints.db", "telemetry.db"} <= {file.name for file in files}
    (log,) = [file for file in files if file.suffix == ".jsonl"]
    shown = os.fsencode(result.stdout + result.stderr)
    for kind in SECRETS:
        piece = core(kind).encode()
        assert [str(file) for file, held in files.items() if piece in held] == [], kind
        assert piece not in shown, kind
    assert b"[REDACTED:" in files[tmp_path / ".evolve" / "telemetry.db"] + files.get(
        tmp_path / ".evolve" / "telemetry.db-wal", b""
    )
    lines = [json.loads(line) for line in files[log].decode().splitlines()]
    (run,) = [line["run_id"] for line in lines if line["event"] == "RunStarted"]
    tasks = [line for line in lines if line["event"] == "TaskDone"]
    assert len(tasks) == len(SECRETS)
    assert {(line["run_id"], line["policy_version"], line["level"]) for line in tasks} == {(run, "1", "info")}
    assert all(len(line["snapshot_id"]) > 8 for line in tasks)
    assert all(line["timestamp"].startswith("20") for line in lines)


def test_whatever_is_logged_is_redacted_and_names_its_logger(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text('[log]\nformat = "json"\nfile = true\n')
    invoke(tmp_path, "config", "show")
    secret = "gh" + "p_" + "Zq9" * 12
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        structlog.get_logger("evolve.index").warning("odd %s", secret, api_key="abcd-efgh-1234", path=Path(secret))
        try:
            raise ValueError(secret)
        except ValueError:
            logging.getLogger("somebody.else").exception("it failed with %s", secret)
    (log,) = (tmp_path / ".evolve" / "logs").iterdir()
    first, second = map(json.loads, log.read_text().splitlines())
    assert "Zq9Zq9" not in log.read_text()
    assert first["api_key"] == "[REDACTED:assigned-secret]"
    assert first["level"] == "warning"
    assert "ValueError: [REDACTED:api-key]" in second["exception"]


def test_the_log_is_quiet_by_default_and_has_levels(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text(SETTINGS.split("[telemetry]")[0])
    quiet = invoke(tmp_path, "run", "--limit", "2")
    assert "TaskDone" not in quiet.stderr
    assert not (tmp_path / ".evolve" / "logs").exists()
    told = invoke(tmp_path, "run", "--limit", "2", "--set", "log.level=info", "--json")
    assert told.stderr.count("TaskDone") == 2
    assert json.loads(told.stdout)["status"] == "done"


def test_a_log_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text(SETTINGS.split("[telemetry]")[0] + "[log]\nfile = true\n")
    (tmp_path / ".evolve").mkdir()
    (tmp_path / ".evolve" / "logs").write_text("in the way")
    result = invoke(tmp_path, "run", "--limit", "2")
    assert result.exit_code == 0
    assert result.stderr.count("log lines are lost") == 1


def test_a_malformed_line_is_said_and_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "evolve.toml").write_text("[log]\nfile = true\n")
    invoke(tmp_path, "config", "show")
    (file,) = [each for each in logging.getLogger().handlers if isinstance(each, DayFile)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for message, values in (("%d of them", ("no number",)), ("%d of them", (3,))):
            file.handle(logging.makeLogRecord({"name": "x", "levelname": "WARNING", "msg": message, "args": values}))
    (log,) = (tmp_path / ".evolve" / "logs").iterdir()
    assert [json.loads(line)["event"] for line in log.read_text().splitlines()] == ["3 of them"]
    assert "no number" in capsys.readouterr().err


def test_a_purge_empties_traces_and_logs(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text(SETTINGS)
    invoke(tmp_path, "run", "--limit", "2")
    (run,) = evolve_json(tmp_path, "traces", "list")
    before = evolve_json(tmp_path, "traces", "show", run["run"])["spans"]
    assert any(span["content"] for span in before)
    evolve_json(tmp_path, "memory", "forget", "--task", "train-0", "--purge", "--yes")
    after = evolve_json(tmp_path, "traces", "show", run["run"])["spans"]
    assert len(after) == len(before)
    assert not any(span["content"] for span in after)
    (log,) = (tmp_path / ".evolve" / "logs").iterdir()
    assert log.read_bytes() == b""


def test_the_command_draws_a_tree(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text(SETTINGS)
    invoke(tmp_path, "run", "--limit", "1")
    assert "invoke_workflow leaky" in evolve(tmp_path, "traces", "list")
    (run,) = evolve_json(tmp_path, "traces", "list")
    lines = evolve(tmp_path, "traces", "show", run["run"]).splitlines()
    assert lines[0].startswith("invoke_workflow leaky  ")
    assert any(line.startswith("    execute_tool environment  ") and "error ValueError" in line for line in lines)
    assert evolve(tmp_path, "traces", "show", "train-0").splitlines()[0].startswith("search_memory  train-0")
    assert {row["name"] for row in evolve_json(tmp_path, "traces", "show", run["run"])["metrics"]} == set(METRICS)
