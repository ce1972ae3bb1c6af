"""A run that learned nothing says why in its report, with the key to turn (audit A4)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from evolve.integrations.langchain_middleware import steps_of
from evolve.loop.assembly import open_store
from evolve.loop.report import lines, make_report
from evolve.loop.session import Parts, run
from evolve.protocols import Action, ActionFormat, StepResult
from memory.records import DeltaOp, Task, Trajectory, Verdict
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.evolve.command import evolve, evolve_json, finish, settings, start
from tests.evolve.toy_doors import DoorEpisode, Doors, doors_config, doors_policy, replies

RULES = {"reflector": "rules", "curator": "direct"}


def notes(folder: Path, parts: Parts, **sections: dict[str, Any]) -> str:
    """Return the notes of the report of a run, which are in its text too."""
    config = doors_config(folder, **sections)
    run(config, parts=parts)
    with open_store(config, read_only=True) as store:
        report = make_report(store)
    said = report.model_dump().get("advice", ())
    assert all(f"note: {each}" in lines(report) for each in said)
    return "\n".join(said)


class Silent(DoorEpisode):
    """Refuses without an error."""

    async def step(self, action: Action) -> StepResult:
        self.failures += 1
        return StepResult(observation="nothing happens")


class SilentDoors(Doors):
    """Doors that say nothing."""

    action_format: ActionFormat = "text"

    def start(self, task: Task, seed: int = 0) -> DoorEpisode:
        return Silent(task.instruction.split()[2])


def test_a_reflector_that_reads_errors_says_that_there_were_none(tmp_path: Path) -> None:
    said = notes(tmp_path, Parts(policy=doors_policy(), environment=SilentDoors(4)), playbook=RULES)
    assert "4 failures, 0 lessons: reflector 'rules' reads errors of steps" in said
    assert 'playbook.reflector = "model"' in said


def test_replies_that_no_lesson_could_be_read_from_are_counted(tmp_path: Path) -> None:
    def mumbling(messages: Sequence[Message], params: SamplingParams) -> str:
        return "well ..." if messages[0].content.startswith("reflect") else replies(messages, params)

    policy = ScriptedPolicy(mumbling, name="doors", profile="compact")
    said = notes(tmp_path, Parts(policy=policy, environment=SilentDoors(4)))
    assert "4 failures, 0 lessons: 4 of 4 reflections were no JSON" in said
    assert "policy.max_tokens" in said


def test_no_reflector_is_said(tmp_path: Path) -> None:
    playbook = {"reflector": "none", "curator": "direct"}
    said = notes(tmp_path, Parts(policy=doors_policy(), environment=Doors(4)), playbook=playbook)
    assert "reflector 'none' writes none; set playbook.reflector" in said


def test_changes_that_wait_for_calls_say_which_key_to_turn(tmp_path: Path) -> None:
    gate: dict[str, Any] = {"names": ["held_out"], "calls_ratio": 0.1}
    config = doors_config(tmp_path, gate=gate).model_dump()
    if "calls_advance" in config["gate"]:
        gate["calls_advance"] = 0
    said = notes(tmp_path, Parts(policy=doors_policy(), environment=Doors(8)), gate=gate)
    assert "changes wait to be judged: " in said
    assert "calls" in said
    assert "raise gate.calls_advance or gate.calls_ratio (0.1)" in said


class Never:
    """Refuses everything."""

    name = "never"

    async def judge(self, ops: Sequence[DeltaOp], view: object, trajectories: Sequence[Trajectory]) -> Verdict:
        return Verdict(gate=self.name, accepted=(), rejected={op.op_id: "not today" for op in ops})


def test_refusals_of_everything_name_the_gate_and_its_reason(tmp_path: Path) -> None:
    said = notes(tmp_path, Parts(policy=doors_policy(), environment=Doors(4), gates=(Never(),)))
    assert "proposed changes were refused" in said
    assert "by gate 'never': 'not today'" in said
    assert "evolve gates log" in said


def test_a_run_that_learned_as_it_should_has_no_note(tmp_path: Path) -> None:
    assert notes(tmp_path, Parts(policy=doors_policy(), environment=Doors(8))) == ""
    forgetful = {"enabled": False}
    assert notes(tmp_path / "off", Parts(policy=doors_policy(), environment=Doors(4)), playbook=forgetful) == ""


def test_the_command_says_it_at_the_end_in_the_report_and_in_json(tmp_path: Path) -> None:
    settings(tmp_path, tasks=4)
    learned = ("--set", "playbook.reflector=none")
    assert "note: " in evolve(tmp_path, "run", *learned)
    assert "reflector 'none' writes none" in evolve(tmp_path, "report")
    assert "reflector 'none' writes none" in evolve_json(tmp_path, "report")["advice"][0]


def test_an_episode_is_shown_with_what_was_made_of_it(tmp_path: Path) -> None:
    settings(tmp_path, tasks=4)
    run_id = evolve_json(tmp_path, "run")["run_id"]
    shown = [
        evolve_json(tmp_path, "logs", "show", row["episode"])
        for row in evolve_json(tmp_path, "logs", "list", "--run", run_id)
    ]
    taught = next(each for each in shown if any(r["insights"] for r in each["reflections"]))
    text = evolve(tmp_path, "logs", "show", taught["id"])
    assert "reflection by rules: " in text
    assert f"lesson: {taught['reflections'][0]['insights'][0]['content']}" in text


TOOLS = """
from langchain_core.tools import tool


def tools(task):
    book = {"open": False}

    @tool
    def open_ledger() -> str:
        "Open the ledger."
        book["open"] = True
        return "open"

    @tool
    def add(amount: int) -> str:
        "Enter an amount."
        return "entered" if book["open"] else ANSWER

    return [open_ledger, add]


def grade(task, transcript, tools):
    return len(transcript.calls) == 2


def clerk(messages, params):
    from memory.records import ToolCall
    from policies.protocols import Reply

    called = [call.name for message in messages for call in message.tool_calls]
    if messages[-1].content == "entered":
        return Reply(text="Done.")
    warned = any("open_ledger" in message.content for message in messages)
    name = "open_ledger" if warned and "open_ledger" not in called else "add"
    arguments = {"amount": 7} if name == "add" else {}
    return Reply(text="", tool_calls=(ToolCall(id=str(len(called)), name=name, arguments=arguments),))
"""


@pytest.mark.parametrize(
    "answer", ["Error: open_ledger must be called before add", '{"error": "open_ledger must be called before add"}']
)
def test_a_tool_that_returns_its_error_teaches_like_one_that_raises_it(answer: str, tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text(
        '[run]\nbatch_size = 1\n[policy]\nname = "scripted"\nmodel = "ledger:clerk"\n'
        '[environment]\nname = "tools"\ntools = "ledger:tools"\ngrade = "ledger:grade"\ntasks_file = "tasks.jsonl"\n'
        'trusted = ["add"]\n'
        '[memory]\nindex = "exact"\n[playbook]\nreflector = "rules"\ncurator = "direct"\n'
    )
    (tmp_path / "ledger.py").write_text(TOOLS.replace("ANSWER", repr(answer)))
    (tmp_path / "tasks.jsonl").write_text("".join(f'{{"instruction": "Enter {n}."}}\n' for n in (7, 8, 9)))
    finish(start(tmp_path, "run"))
    assert "open_ledger" in "".join(row["content"] for row in evolve_json(tmp_path, "playbook", "list"))


def test_a_conversation_with_such_a_tool_has_failed_steps() -> None:
    call: Any = {"name": "add", "args": {}, "id": "1", "type": "tool_call"}
    said = [HumanMessage("Enter 7."), AIMessage("", tool_calls=[call])]
    (step,) = steps_of([*said, ToolMessage("ValueError: the ledger is closed", tool_call_id="1")])
    assert step.error == "ValueError: the ledger is closed"
    (step,) = steps_of([*said, ToolMessage("errors found: 0", tool_call_id="1")])
    assert step.error is None
