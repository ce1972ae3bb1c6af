"""Task files: what is read, and what each mistake says."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolve.environments.task_files import load_answers, read_tasks
from memory.errors import BadInput


def _write(folder: Path, *lines: str) -> Path:
    path = folder / "tasks.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_tasks_are_read_in_order_with_defaults_and_without_answers(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        '\ufeff{"instruction": "Pay Bob.", "answer": 7}\r',
        "",
        '{"id": "b", "instruction": "Zähle.", "scenario": "s", "split": "dev", "metadata": {"level": 2}}',
    )
    first, second = read_tasks(path, "ledger")
    assert (first.id, first.scenario, first.split, first.environment) == ("task-1", "task-1", "train", "ledger")
    assert (second.id, second.scenario, second.split, second.metadata) == ("b", "s", "dev", {"level": 2})
    assert "7" not in first.model_dump_json()
    assert load_answers(path) == {"task-1": 7}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{"instruction": "a"}', '{"instruction": "b"'], ":2: not JSON"),
        (["[1]"], ":1: got list, expected one JSON object a line"),
        (['{"id": "x"}'], ":1: instruction: Field required"),
        (['{"instruction": ""}'], ":1: instruction: String should have at least 1 character"),
        (['{"instruction": "a", "tags": 1}'], ":1: tags: Extra inputs are not permitted; a line has the keys"),
        (['{"instruction": 3}'], ":1: instruction: Input should be a valid string"),
        (
            ['{"id": "x", "instruction": "a"}', "", '{"id": "x", "instruction": "b"}'],
            ":3: id 'x' was already used on line 1",
        ),
        (
            ['{"instruction": "a", "scenario": "s"}', '{"instruction": "b", "scenario": "s", "split": "dev"}'],
            ":2: scenario 's' is in split 'dev' here and in 'train' on line 1",
        ),
        ([""], "holds no task"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_tasks(_write(tmp_path, *lines))
    assert said in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read the task file"):
        read_tasks(tmp_path / "nothing.jsonl")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="cannot read the task file"):
        read_tasks(tmp_path / "bytes")
