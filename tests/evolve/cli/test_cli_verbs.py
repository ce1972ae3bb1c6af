"""The command's surface: every verb is there, explains itself and speaks JSON; expected errors are one sentence.

V1  the verbs are those that are promised, each with a help text and a text for every option and argument
V2  each verb takes `-h`, `--help` and `--json`
V3  what a verb prints with `--json` is JSON and nothing else
V4  exit codes: 0, 1 for what was refused, 2 for wrong usage and settings; one sentence on stderr, or JSON on stdout
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.core import TyperArgument, TyperGroup

from evolve.cli.main import app
from tests.evolve.command import complaint, evolve, evolve_json, invoke

PROMISED = {
    "": "init backup run resume eval compare cycle mcp merge report serve ui version",
    "export": "html",
    "workspace": "move",
    "playbook": "list show log diff blame add edit retire restore rollback import export contradictions test",
    "notebook": "list show clusters retire",
    "exemplars": "list show retire import export",
    "tokens": "add list revoke",
    "memory": "search stats forget doctor salvage reindex",
    "logs": "list show",
    "traces": "list show",
    "review": "list show accept reject edit defer",
    "config": "show path check migrate",
    "env": "check",
    "gates": "log show replay",
    "presets": "list show",
    "skills": "list show test promote retire diff log graph import export",
    "train": "plan sft internalise dpo simpo grpo sage r3l run resume status curves export",
    "train rollouts": "list show",
    "policy": "list show add diff canary gate promote rollback serve",
}
READING = [
    "playbook list",
    "playbook list --all",
    "playbook show 1",
    "playbook contradictions",
    "playbook log",
    "playbook blame 1",
    "playbook blame 1 --all",
    "playbook export",
    "notebook list",
    "notebook list --all",
    "notebook clusters",
    "exemplars list",
    "exemplars list --all",
    "skills list",
    "skills list --all",
    "skills log",
    "skills graph",
    "memory search pay",
    "memory stats",
    "memory doctor",
    "logs list",
    "review list",
    "review list --all",
    "config show",
    "config path",
    "config check",
    "config migrate --dry-run",
    "report",
    "tokens list",
    "version",
]


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (words, command) of everything that does something."""
    if isinstance(command, TyperGroup):
        for name, child in command.commands.items():
            yield from leaves(child, (*path, name))
    else:
        yield path, command


LEAVES = dict(leaves(typer.main.get_command(app)))


def test_the_verbs_are_those_that_are_promised() -> None:
    promised = {(*group.split(), verb) for group, verbs in PROMISED.items() for verb in verbs.split()}
    assert set(LEAVES) == promised


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_each_explains_itself(words: tuple[str, ...], tmp_path: Path) -> None:
    command = LEAVES[words]
    short, long = evolve(tmp_path, *words, "-h"), evolve(tmp_path, *words, "--help")
    assert short == long
    assert command.help
    assert command.help.split(".")[0].split()[-1] in short
    assert [p.name for p in command.params if not getattr(p, "help", "") and p.name != "help"] == []


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_each_speaks_json(words: tuple[str, ...]) -> None:
    options = [name for p in LEAVES[words].params if not isinstance(p, TyperArgument) for name in p.opts]
    assert "--json" in options


@pytest.mark.parametrize("line", READING)
def test_what_reads_prints_text_or_json(line: str, learned: Path) -> None:
    text = evolve(learned, *line.split())
    assert text.strip()
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    assert evolve_json(learned, *line.split()) is not None


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("playbook show 999", 1, "no record '999'; see"),
        ("playbook diff nosuch", 1, "no snapshot 'nosuch'"),
        ("playbook rollback nosuch", 1, "see `evolve playbook log`"),
        ("playbook import nosuch.txt", 1, "nosuch.txt"),
        ("logs show nosuch", 1, "no episode 'nosuch'"),
        ("traces list", 1, "no traces at"),
        ("traces show nosuch", 1, "set `enabled = true` in [telemetry]"),
        ("review accept 7", 1, "no proposal '7'"),
        ("resume", 1, "no unfinished run"),
        ("resume nosuch", 1, "no run 'nosuch'"),
        ("report nosuch", 1, "no run 'nosuch'"),
        ("init", 2, "exists already"),
        ("run --env ofice", 2, "no environment 'ofice'; there are bfcl, formula, gym, "),
        ("run --policy pockt", 2, "no policy 'pockt'; there are"),
        ("run --env nosuch.module:Env", 2, "no module 'nosuch.module'"),
        ("run --tasks nosuch.jsonl", 2, "cannot read the task file"),
        ("eval --split nosuch", 2, "split 'nosuch'"),
    ],
)
def test_an_expected_error_is_one_sentence(line: str, code: int, said: str, learned: Path) -> None:
    message = complaint(learned, *line.split(), code=code)
    assert said.split("; ")[0] in message
    assert said in message or said.split("; ")[1] in message
    error = evolve_json(learned, *line.split(), code=code)["error"]
    assert error["message"] == message
    assert error["type"]


@pytest.mark.parametrize(
    "line",
    [
        "playbook shw",
        "run --lmit 3",
        "run --limit x",
        "playbook show",
        "logs list --n",
        "logs list -n 0",
        "playbook log -n -3",
        "traces list -n 0",
        "mcp --http --port 70000",
        "mcp --http --port -1",
        "tokens add ann --scope read --days 10000000",
        "tokens add ann --scope read --days -10000000000",
        "tokens add ann --scope read --days nan",
        "env check --limit nan",
        "policy serve --gpu-memory nan",
        "train plan --gpu nan",
    ],
)
def test_wrong_usage_ends_with_2(line: str, tmp_path: Path) -> None:
    result = invoke(tmp_path, *line.split())
    assert result.exit_code == 2
    assert "Usage: " in result.stderr


def test_reading_needs_a_workspace_and_makes_none(tmp_path: Path) -> None:
    for line in ("playbook list", "memory stats", "logs list", "report", "review list", "export --workspace a.tgz"):
        assert "evolve init" in complaint(tmp_path, *line.split(), code=1)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_key_is_named_with_the_right_one(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text("[run]\nbatch_sise = 2\n")
    for line in ("run", "config check", "playbook list"):
        assert "did you mean 'batch_size'" in complaint(tmp_path, *line.split(), code=2)


def test_another_file_can_be_named(learned: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file = str(learned / "evolve.toml")
    assert evolve_json(elsewhere, "--config", file, "memory", "stats")["runs"] == 1
    assert "nosuch.toml" in complaint(elsewhere, "-c", "nosuch.toml", "memory", "stats", code=2)
