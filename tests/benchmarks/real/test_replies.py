"""Recording what models answer, and judging it: a server that parrots our prompts stands for a small model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.claims import real_7_placeholders as claim
from benchmarks.real import replies
from benchmarks.real.judged import borrowed, judge, reading, static
from benchmarks.real.replies import CELLS, FILE, Cell, Entry, entries, formula, pack, prompts_hash, record
from evolve.config.model import Config
from evolve.loop.assembly import make_environment, open_store
from tests.benchmarks.real.test_arms import FIXTURES
from tests.policies.model_server import MODEL, ModelServer, serving

LESSON = "Divide by the price, not by the cost."
PARROT = "Call `crane.lock` before `crane.lift`: a crane that is not locked refuses with E7."
REFLECTED = json.dumps({"insights": [{"content": LESSON}, {"content": PARROT}]})


def parroting(body: dict[str, Any]) -> str:
    """Act, reflect, curate, judge and teach, each by the words of the prompt that only its role has."""
    answers = {
        "You review the work": f"Here it is:\n```json\n{REFLECTED}\n```",
        "You keep a playbook": '{"operations": [{"type": "ADD", "lesson": 1}]}',
        "Decide whether": '{"reason": "none", "success": true}',
        "You teach an agent": json.dumps({"advice": PARROT}),
    }
    asked = body["messages"][0]["content"]
    return next((answer for said, answer in answers.items() if asked.startswith(said)), "```python\nprint(1)\n```")


def entry(role: str, reply: str, **more: Any) -> Entry:
    about = {"model": "smollm2", "profile": "full", "schema_held": False, "task": "train-1"}
    rest = {"prompt": "", "prompts": "", "finish_reason": "stop", "tokens": 1}
    return Entry.model_validate({**about, **rest, "role": role, "reply": reply, **more})


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the benchmark's files, by fixtures of ours; recorded and packed is beside them."""
    shutil.copy(FIXTURES / "formula_train.jsonl", tmp_path / "formula_train_subset_500.jsonl")
    questions = (FIXTURES / "formula_validation.jsonl").read_text(encoding="utf-8")
    (tmp_path / "formula_val_subset_300.jsonl").write_text(questions * 40, encoding="utf-8")
    monkeypatch.setenv("EVOLVE_TEST_DATA", str(tmp_path))
    monkeypatch.setattr(replies, "MODELS", {"tiny": MODEL})
    monkeypatch.setattr(replies, "APART", 1)
    monkeypatch.setattr(replies, "HOME", tmp_path / "home")
    monkeypatch.setattr(replies, "FILE", tmp_path / "packed.jsonl.gz")
    return tmp_path


def test_what_was_recorded_goes_on_and_is_packed_without_a_question(files: Path) -> None:
    cells = [Cell("tiny", "full", "free")]
    with serving(ModelServer(answer=parroting)) as server:
        record(cells, server.url, 3)
        first = {file.name: file.read_text() for file in (files / "home").rglob("*.jsonl")}
        record(cells, server.url, 9)
        asked = len(server.requests)
    after = {file.name: file.read_text() for file in (files / "home").rglob("*.jsonl")}
    assert set(after) == {"graded.jsonl", "judged.jsonl"}
    assert all(after[name].startswith(text) for name, text in first.items())
    assert sum(text.count("\n") for text in after.values()) == asked == 18
    assert pack(12) == 12
    packed = list(entries(files / "packed.jsonl.gz"))
    assert pack(500) == 18
    found = list(entries(files / "packed.jsonl.gz"))
    assert packed == found[:12]
    assert {each.role for each in found} >= {"acting", "reflector", "curator", "judge", "teacher"}
    assert {each.prompts for each in found} == {prompts_hash()}
    assert found[0].task != found[1].task, "each life begins with questions of its own"
    task = make_environment(Config.model_validate({"environment": formula()})).tasks("train")[0]
    assert not any(task.instruction in each.model_dump_json() for each in found)


async def test_a_reply_is_read_as_the_loop_reads_it_and_its_lessons_meet_gate_static(tmp_path: Path) -> None:
    with open_store(Config(root=tmp_path)) as store:
        view = store.view("default")
        task = {"train-1": "What is the margin of the kite?"}
        fenced = await judge(entry("reflector", f"```json\n{REFLECTED}\n```"), view, task)
        assert (fenced.read, fenced.lessons, fenced.admitted, fenced.usable) == (
            "repaired",
            (LESSON, PARROT),
            (LESSON,),
            True,
        )
        only = json.dumps({"insights": [{"content": "the margin of the kite"}]})
        repeated = await judge(entry("reflector", only), view, task)
        assert (repeated.read, repeated.admitted, repeated.usable) == ("parsed", (), False)
        assert (await judge(entry("reflector", only), view, {})).usable
        for role, reply, read, usable in (
            ("curator", '{"operations": [{"type": "ADD"}]}', "parsed", True),
            ("curator", '{"operations": [{"type": "SING"}]}', "parsed", False),
            ("judge", "I think it is right.", "refused", False),
            ("teacher", json.dumps({"advice": PARROT}), "parsed", False),
            ("teacher", json.dumps({"advice": LESSON}), "parsed", True),
            ("acting", "```python\nprint(1)\n```", "parsed", True),
            ("acting", "The answer is one.", "refused", False),
        ):
            judged = await judge(entry(role, reply), view, task)
            assert (role, judged.read, judged.usable) == (role, read, usable)
        assert await static([*claim.PLANTED, LESSON], view, ()) == (LESSON,)


def test_a_compact_reply_is_read_by_the_compact_forms() -> None:
    assert reading(entry("curator", '{"op": "ADD"}', profile="compact"))[0] == "parsed"
    assert reading(entry("curator", '{"op": "ADD"}'))[0] == "refused"


@pytest.mark.parametrize("text", [*claim.PLANTED, "Use <name> here.", "at the berths"])
def test_placeholders_are_known_without_the_gate(text: str) -> None:
    assert borrowed(text)


def test_a_true_rule_is_not_borrowed() -> None:
    assert not any(borrowed(item.rule) for item in claim.load())
    assert not borrowed("If a < b and c > d, subtract.")


@pytest.mark.skipif(not FILE.exists(), reason="no replies of real models are recorded yet")
def test_what_is_recorded_here_is_small_and_can_be_read() -> None:
    assert FILE.stat().st_size < 3_000_000
    names = {(cell.model, cell.profile) for cell in CELLS}
    assert all((each.model, each.profile) in names for each in entries())
