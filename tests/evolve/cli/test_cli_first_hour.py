"""What a newcomer types first: misspelt names, folders without settings, `--version`, help, imports, piped tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evolve.command import complaint, evolve, evolve_json, settings


def test_the_version_is_an_option_too() -> None:
    assert evolve(Path.cwd(), "--version").strip() == evolve(Path.cwd(), "version").strip()


def test_brackets_in_help_are_shown_as_they_are() -> None:
    def rendered(*arguments: str) -> str:
        return " ".join(evolve(Path.cwd(), *arguments, "-h").split())

    assert "[telemetry]" in rendered()
    assert "`[train]` of evolve.toml" in rendered("train")
    assert "`[train]`" in rendered("train", "run")


@pytest.mark.parametrize(
    ("section", "key", "wrong", "meant"),
    [
        ("policy", "name", "pokcet", "pocket"),
        ("environment", "name", "offic", "office"),
        ("gate", "names", ["statc"], "static"),
        ("playbook", "reflector", "ruels", "rules"),
        ("playbook", "curator", "direct+notebok", "notebook"),
        ("memory", "embedder", "hashin", "hashing"),
        ("train", "advantages", "saeg", "sage"),
        ("train", "loss", "poo", "ppo"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest(
    section: str, key: str, wrong: object, meant: str, tmp_path: Path
) -> None:
    (tmp_path / "evolve.toml").write_text(f"[{section}]\n{key} = {json.dumps(wrong)}\n")
    said = complaint(tmp_path, "config", "check", code=2)
    assert f"did you mean {meant!r}?" in said


def test_every_wrong_name_is_named_at_once_and_ones_own_are_looked_up(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text('preset = "ace"\n[policy]\nname = "pokcet"\n[gate]\nnames = ["mine:gate"]\n')
    said = complaint(tmp_path, "config", "check", code=2)
    assert "'pokcet'" in said
    assert "no module 'mine'" in said
    (tmp_path / "evolve.toml").write_text('preset = "acce"\n')
    assert "'acce'" in complaint(tmp_path, "config", "check", code=2)
    (tmp_path / "evolve.toml").write_text('[environment]\nname = "tools"\ntools = "nowhere:tools"\ngrade = "x"\n')
    assert "no module 'nowhere'" in complaint(tmp_path, "config", "check", code=2)


@pytest.mark.parametrize("verb", [("run",), ("eval",), ("compare", "default", "none")])
def test_nothing_is_begun_in_a_folder_without_settings(verb: tuple[str, ...], tmp_path: Path) -> None:
    said = complaint(tmp_path, *verb, code=2)
    assert "no evolve.toml" in said
    assert "`evolve init`" in said
    assert list(tmp_path.iterdir()) == []
    assert "the defaults apply" in evolve(tmp_path, "config", "check")


def test_a_split_that_is_not_there_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text('[policy]\nname = "local"\nmodel = "/no/such/model"\n')
    assert "'nope'" in complaint(tmp_path, "eval", "--split", "nope", code=2)


@pytest.mark.parametrize(
    ("key", "wrong", "meant"),
    [
        ("gate.names", "['statc']", "static"),
        ("playbook.reflector", "ruels", "rules"),
        ("playbook.curator", "direkt", "direct"),
        ("memory.embedder", "hashin", "hashing"),
    ],
)
def test_a_misspelt_name_is_refused_before_a_model_is_loaded(key: str, wrong: str, meant: str, tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text('[policy]\nname = "local"\nmodel = "/no/such/model"\n')
    assert f"did you mean {meant!r}?" in complaint(tmp_path, "run", "--set", f"{key}={wrong}", code=2)
    assert not (tmp_path / ".evolve").exists()
    assert "/no/such/model" in complaint(tmp_path, "run", "--set", "train.loss=needs_torch:Loss", code=1)


def test_a_training_without_a_workspace_is_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    settings(tmp_path)
    code = (
        "import sys; sys.argv = ['evolve', 'train', 'sft']\n"
        "from evolve.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code, 'torch' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.split() == ["1", "False"]
    assert "no workspace database" in ran.stderr


def test_what_a_pipe_reads_is_one_line_a_row(tmp_path: Path) -> None:
    settings(tmp_path, tasks=4)
    evolve(tmp_path, "playbook", "add", "Log in before anything else, and then go on as the manual says. " * 4)
    (tmp_path / "more.md").write_text("\ufeff- First line,\n  then another.\n\nA remark.\n", encoding="utf-8")
    assert "1 lines left out that are no item" in evolve(tmp_path, "playbook", "import", "more.md")
    (_, quarantined) = evolve(tmp_path, "playbook", "list", "--quarantined").splitlines()
    assert "First line,\\nthen another." in quarantined
    (title, row) = evolve(tmp_path, "playbook", "list").splitlines()
    assert "content" in title
    assert "str-00001" in row or "shr-00001" in row
    run_id = evolve_json(tmp_path, "run")["run_id"]
    rows = evolve_json(tmp_path, "logs", "list", "--run", run_id)
    said = evolve(tmp_path, "logs", "list", "--run", run_id).splitlines()
    assert len(said) == len(rows) + 1
    assert all(row["episode"] in line for row, line in zip(rows, said[1:], strict=True))
    wide = subprocess.run(
        [sys.executable, "-m", "evolve.cli.main", "logs", "list"],
        cwd=tmp_path, env=os.environ | {"FORCE_COLOR": "1", "COLUMNS": "40"}, capture_output=True, text=True,
    )  # fmt: skip
    assert [run_id in line for line in wide.stdout.splitlines()] == [False, True]


RULES = ("Log in before anything else.", "Amounts are in cents.", "Names are written in capitals.")


@pytest.fixture
def taught(tmp_path: Path) -> Path:
    """Return a workspace with three rules."""
    settings(tmp_path / "taught")
    for rule in RULES:
        evolve(tmp_path / "taught", "playbook", "add", rule)
    return tmp_path / "taught"


@pytest.mark.parametrize("form", ["markdown", "ace", "kayba", "json"])
def test_an_import_knows_the_format_and_what_is_there_already(form: str, taught: Path, tmp_path: Path) -> None:
    file = tmp_path / "book"
    evolve(taught, "playbook", "export", str(file), "-f", form)
    new = settings(tmp_path / "new")
    said = evolve(new, "playbook", "import", str(file))
    assert f"read as {form}: 3 applied (quarantined: in no prompt yet), 0 already known" in said
    assert "next: `evolve playbook test`" in said
    texts = [row["content"] for row in evolve_json(new, "playbook", "list", "--quarantined")]
    assert sorted(texts) == sorted(RULES)
    again = evolve_json(new, "playbook", "import", str(file))
    assert (again["applied"], again["known"]) == (0, 3)
    (tmp_path / "twice.md").write_text("- Amounts are in cents.\n- A new one.\n- A new one.\n")
    assert "1 applied" in evolve(new, "playbook", "import", str(tmp_path / "twice.md"))


def test_an_import_of_what_is_no_playbook_is_refused(taught: Path, tmp_path: Path) -> None:
    wrong = {"just words\n": "no playbook was recognised", '{"a": 1}': "keys a", "{": "begins like JSON"}
    for text, said in wrong.items():
        (tmp_path / "file").write_text(text)
        assert said in complaint(taught, "playbook", "import", str(tmp_path / "file"), code=2)


def test_an_mcp_client_is_given_what_it_needs_to_start_the_server(tmp_path: Path) -> None:
    settings(tmp_path)
    evolve(tmp_path, "playbook", "add", "Log in first.")
    given = json.loads(evolve(tmp_path, "mcp", "--client-config"))["mcpServers"]["evolve"]
    assert given["args"] == ["--config", str(tmp_path / "evolve.toml"), "mcp"]
    help_of_it = subprocess.run([given["command"], *given["args"], "-h"], cwd="/", capture_output=True, text=True)
    assert "Serve the workspace" in help_of_it.stdout
