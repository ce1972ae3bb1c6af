"""`evolve.open`: places, tasks of an agent of one's own, and every method beside the command that does the same.

W1  the shortest use works in an empty folder, and says honestly what is learned without a model
W2  each method gives what its command prints with `--json` on the same workspace
W3  errors are one sentence with what to do
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evolve
from evolve import BadInput, ConfigError, NotFound, Workspace, WorkspaceClosed
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts
from evolve.workspace import exchange
from memory.operations import removal
from memory.records import DeltaOp, Op, Provenance, Status
from playbooks.kinds.note import EXAMPLE
from policies.errors import PolicyUnavailable
from policies.scripted import ScriptedPolicy
from tests.evolve.command import SETTINGS, evolve_json, settings
from tests.evolve.command import evolve as command

SKILL = 'def pages(items: list[str]) -> int:\n    """Count pages of ten lines."""\n    return len(items) // 10\n'
ENV = {**os.environ, "PYTHONPATH": "."}
REFUSED = "PermissionError: login() must be called before book"


def agent(instruction: str, knowledge: str) -> str:
    """Stand for anybody's agent."""
    return f"booked after {len(knowledge)} characters"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Workspace]:
    """Give an empty workspace."""
    with evolve.open(tmp_path / ".evolve") as opened:
        yield opened


@pytest.fixture
def worker(learned: Path) -> Iterator[Workspace]:
    """Give the workspace in which the scripted worker has learned, for reading beside the commands."""
    with evolve.open(learned) as opened:
        yield opened


# --- W1 ---


def test_the_shortest_use_works_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with evolve.open(".evolve") as memory:
        with memory.task("Book room 4") as task:
            task.finish(agent(task.instruction, task.knowledge), success=True)
        print(memory.playbook)
    said = capsys.readouterr().out
    assert said.startswith("nothing was learned: reflector 'rules' asks no model")
    assert "[policy]" in said
    assert (tmp_path / ".evolve" / "evolve.db").is_file()
    with evolve.open(".evolve") as memory:
        assert [(run.kind, run.status, run.solved) for run in memory.runs()] == [("agent", "done", 1)]
        assert str(memory.playbook) == "nothing is known yet: no task of this session is finished"


def test_without_a_model_it_learns_from_errors_that_were_overcome(memory: Workspace) -> None:
    with memory.task("Book room 4") as task:
        assert (task.knowledge, task.shown) == ("", ())
        task.step("book(room=4)", error=REFUSED)
        task.step("login()\nbook(room=4)", "booked")
        came = task.finish(success=True)
    assert (came.note, came.success) == ("learned shr-00001", True)
    assert [(each.answer, each.name) for each in came.changes] == [("in use", "shr-00001")]
    with memory.task("Book room 5") as task:
        assert "login() must be called before book" in task.knowledge
        assert task.shown == ("shr-00001",)
        task.finish("login()\nbook(room=5)", success=True)
    assert str(memory.playbook) == "[shr-00001] login() must be called before book"
    assert [each.shown for each in memory.playbook] == [1]


def test_feedback_of_a_failed_task_is_a_lesson_where_it_prescribes(memory: Workspace) -> None:
    with memory.task("Say where room 6 is") as task:
        came = task.finish("room 6 is free", success=False, reward=0.2, feedback="An answer must name the floor.")
    assert str(memory.playbook) == "[shr-00001] An answer must name the floor."
    (reflection,) = memory.episode(came.episode).reflections
    assert [insight.content for insight in reflection.insights] == ["An answer must name the floor."]
    assert memory.episode(came.episode).trajectory.outcome == evolve.Outcome(
        success=False,
        reward=0.2,
        checks=(evolve.Check(name="feedback", passed=False, detail="An answer must name the floor."),),
    )


def test_what_is_known_can_be_shown_without_learning(memory: Workspace) -> None:
    memory.add("Greet the accountant.")
    with memory.task(evolve.Task(id="t1", instruction="Book room 4"), learning=False) as task:
        task.step("book(room=4)", error=REFUSED)
        assert "learning=False" in task.finish(success=False).note
        assert task.shown == ("shr-00001",)
    assert len(memory.playbook) == 1
    assert [each.arm for each in memory.episodes(memory.runs()[0].run_id)] == ["frozen"]


def test_a_task_that_raised_is_stored_ungraded_and_its_error_flies(memory: Workspace) -> None:
    task = memory.task("Book room 4")

    def broken() -> None:
        with task:
            task.step("look()", "nothing")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        broken()
    assert task.finished is not None
    stored = memory.episode(task.finished.episode).trajectory
    assert (stored.outcome, stored.error) == (None, "KeyError: 'mine'")


def test_an_exception_flies_also_where_nothing_can_be_learned_from_it(tmp_path: Path) -> None:
    asked = 0

    def down(messages: Any, params: Any) -> str:
        nonlocal asked
        asked += 1
        raise PolicyUnavailable("the server is down")

    settings = {"playbook.reflector": "model", "memory.index": "exact"}
    with evolve.open(tmp_path, settings=settings, parts=Parts(policy=ScriptedPolicy(down))) as memory:
        task = memory.task("Book room 4")

        def broken() -> None:
            with task:
                task.step("look()", "nothing")
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine") as raised:
            broken()
        assert raised.value.__notes__ == ["evolve could not learn from it: PolicyUnavailable: the server is down"]
        asked = 0
        with pytest.raises(PolicyUnavailable), memory.task("Book room 5") as other:
            other.finish("room 5", success=False)
        once, asked = asked, 0
        assert once
        with pytest.raises(PolicyUnavailable):
            memory.task("Book room 6").__enter__().finish("room 6", success=False)
        assert asked == once  # leaving the block asked nothing more


def test_a_task_of_which_nothing_was_told_says_so(memory: Workspace) -> None:
    with memory.task("Book room 4") as task:
        assert "no output and no step was told" in task.finish(success=False).note


def test_a_model_that_is_named_is_asked(tmp_path: Path) -> None:
    lesson = {"root_cause": "it was late", "insights": [{"content": "Book rooms before noon."}], "tags": {}}
    change = {"operations": [{"type": "ADD", "section": "STRATEGIES AND HARD RULES", "content": "Book before noon."}]}
    model = evolve.ScriptedPolicy([json.dumps(lesson), json.dumps(change)])
    with evolve.open(tmp_path / ".evolve", parts=evolve.Parts(policy=model)) as memory:
        with memory.task("Book room 4") as task:
            came = task.finish("too late", success=False)
        (made,) = memory.episode(came.episode).reflections
        assert (made.author, made.root_cause) != ("rules", "")
        assert memory.runs()[0].policy == "scripted"


def test_settings_of_runs_that_need_our_loop_are_left_out_of_tasks(tmp_path: Path) -> None:
    runs = {"skills.enabled": True, "exemplars.enabled": True}
    with evolve.open(tmp_path / ".evolve", settings=runs) as memory, memory.task("Book room 4") as task:
        assert task.finish("booked").note.startswith("nothing was learned: reflector 'rules'")


# --- places and settings ---


def test_a_state_folder_takes_the_settings_that_name_it(tmp_path: Path) -> None:
    settings(tmp_path)
    for place in (tmp_path, tmp_path / "evolve.toml", tmp_path / ".evolve", str(tmp_path)):
        with evolve.open(place) as memory:
            assert (memory.path, memory.config.run.tasks) == (tmp_path / ".evolve", 16)
    with evolve.open(tmp_path / "other", settings={"run.tasks": 3, "memory.index": "exact"}) as memory:
        assert (memory.path, memory.config.run.tasks) == (tmp_path / "other", 3)


def test_a_backup_that_was_put_back_takes_the_settings_of_its_place(tmp_path: Path) -> None:
    settings(tmp_path)
    with evolve.open(tmp_path) as memory:
        copy = Path(memory.backup().path)
    assert (copy / "evolve.toml").exists()
    with evolve.open(copy) as memory:
        assert memory.path == copy
    shutil.rmtree(tmp_path / ".evolve")
    shutil.copytree(copy, tmp_path / ".evolve")
    (tmp_path / "evolve.toml").write_text((tmp_path / "evolve.toml").read_text().replace("16", "5"))
    with evolve.open(tmp_path / ".evolve") as memory:
        assert (memory.path, memory.config.run.tasks) == (tmp_path / ".evolve", 5)


def test_a_folder_of_something_else_gets_a_state_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with evolve.open(tmp_path) as memory:
        assert memory.path == tmp_path / ".evolve"
    with evolve.open(evolve.Config(root=tmp_path), settings={"run.seed": 7}) as memory:
        assert (memory.path, memory.config.run.seed) == (tmp_path / ".evolve", 7)


# --- W2 ---


def test_lists_are_those_of_the_commands(worker: Workspace, learned: Path) -> None:
    first = worker.knowledge()[0]
    run = worker.runs()[0].run_id
    assert worker.knowledge().rows() == evolve_json(learned, "playbook", "list")
    assert worker.knowledge("all", kind="bullet").rows() == evolve_json(learned, "playbook", "list", "--all")
    assert worker.knowledge("quarantined").rows() == evolve_json(learned, "playbook", "list", "--quarantined") == []
    assert worker.search(first.content, 2).rows() == evolve_json(learned, "memory", "search", first.content, "-k", "2")
    assert worker.show(first.label).row() == evolve_json(learned, "playbook", "show", first.label)
    assert worker.blame("1", everything=True).rows() == evolve_json(learned, "playbook", "blame", "1", "--all")
    assert worker.snapshots().rows() == evolve_json(learned, "playbook", "log")
    assert worker.episodes(run, failed=True).rows() == evolve_json(learned, "logs", "list", "--run", run, "--failed")
    assert worker.report().model_dump(mode="json") == evolve_json(learned, "report")
    assert worker.stats().model_dump(mode="json") == evolve_json(learned, "memory", "stats")
    listed = [{**row, "run": row["run_id"]} for row in worker.runs(["learn"]).rows()]
    for row in listed:
        del row["run_id"]
    assert listed == evolve_json(learned, "logs", "list")
    assert worker.export_playbook("json") == evolve_json(learned, "playbook", "export", "-f", "json")["text"]
    whole = worker.episode(worker.episodes(run)[0].episode)
    shown = evolve_json(learned, "logs", "show", whole.trajectory.id)
    assert whole.trajectory.model_dump(mode="json") | {"reflections": shown["reflections"]} == shown


def test_figures_are_rows_and_frames(worker: Workspace) -> None:
    rows = worker.figures()
    assert [row.part for row in rows] == ["first half", "second half", "whole stream", "without memory (sample)"]
    report = worker.report()
    assert report.whole is not None
    assert rows[2].tgc == report.whole.tgc
    pandas = pytest.importorskip("pandas")
    frame = rows.dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["tgc"]) == [row.tgc for row in rows]


def test_changes_are_those_of_the_commands(worker: Workspace, learned: Path, tmp_path: Path) -> None:
    twin = Path(shutil.copytree(learned, tmp_path / "twin"))
    before = worker.snapshot()
    n = len(worker.knowledge())

    def same(done: evolve.Commit, *words: str) -> None:
        told = evolve_json(twin, "playbook", *words)
        assert (done.version, len(done.applied)) == (told["version"], sum(each["applied"] for each in told["results"]))

    same(worker.add("Greet the accountant."), "add", "Greet the accountant.")
    mine = worker.knowledge()[-1].label
    same(worker.edit(mine, "Greet the treasurer."), "edit", mine, "Greet the treasurer.")
    same(worker.retire("1"), "retire", "1")
    assert worker.diff(before).added == (f"[{mine} v2] Greet the treasurer.",)
    assert len(worker.diff(before).removed) == 1
    same(worker.restore("1"), "restore", "1")
    worker.retire(mine)
    worker.restore(mine)
    (again,) = (row for row in worker.knowledge() if row.label == mine)
    assert (again.status, again.trust) == ("active (pinned)", "operator")
    with pytest.raises(BadInput, match="is active already"):
        worker.restore(mine)
    worker.rollback(before)
    assert len(worker.knowledge()) == n
    assert worker.diff(before) == evolve.KnowledgeDiff(added=(), removed=(), changed=())


def test_what_was_changed_by_hand_is_in_the_next_prompt(memory: Workspace) -> None:
    def known() -> str:
        with memory.task("Book room 4") as task:
            task.finish("done", success=True)
        return task.knowledge

    memory.add("Greet the accountant.", pin=True)
    assert "accountant" in known()
    memory.add("Greet the treasurer.", pin=True)
    assert "treasurer" in known()
    memory.retire(memory.knowledge()[0].label)
    assert "accountant" not in known()


def test_episodes_of_no_run_are_refused(memory: Workspace) -> None:
    with pytest.raises(NotFound, match="'nosuch'"):
        memory.episodes("nosuch")


def test_what_cannot_be_told_of_a_task_is_refused(memory: Workspace) -> None:
    for wrong, words in (
        ({"success": True, "reward": 9}, "got reward 9; expected one from 0 to 1"),
        ({"success": True, "reward": float("nan")}, "got reward nan"),
        ({"success": "yes"}, "got success 'yes'; expected True, False, or None"),
    ):
        with memory.task("Book room 4") as task:
            with pytest.raises(BadInput, match=words):
                task.finish("done", **wrong)  # type: ignore[arg-type]
            task.finish("done", success=True)


def test_a_rule_cannot_be_emptied(memory: Workspace) -> None:
    memory.add("Greet the accountant.")
    label = memory.knowledge()[0].label
    for text in ("", "  "):
        with pytest.raises(BadInput, match="a bullet without a text"):
            memory.edit(label, text)
    assert memory.knowledge()[0].content == "Greet the accountant."


def test_a_skill_is_edited_as_code_and_a_note_as_its_fields(memory: Workspace) -> None:
    evolve.add_skill(memory.config, SKILL)
    memory.edit("pages", SKILL.replace("// 10", "// 20"))
    skill = memory.show("pages").record
    assert (skill.version, skill.payload.source) == (2, SKILL.replace("// 10", "// 20"))
    with open_store(memory.config, owner=False) as store:
        op = DeltaOp(op=Op.ADD, kind="note", payload=EXAMPLE.model_dump(mode="json"), status=Status.ACTIVE)
        store.commit(memory.config.memory.namespace, [op], actor="test")
    (note,) = memory.knowledge(kind="note")
    memory.edit(note.label, '{"strategy": "Read the units first."}')
    assert memory.show(note.label).record.payload == EXAMPLE.model_copy(update={"strategy": "Read the units first."})
    with pytest.raises(BadInput, match="expected the fields of the note to change as a JSON object"):
        memory.edit(note.label, "Read the units first.")


CALLER = 'def sheets(items: list[str]) -> int:\n    """Count sheets."""\n    return len(items) // 20\n'


def test_an_edited_skill_requires_what_its_new_code_calls(memory: Workspace) -> None:
    evolve.add_skill(memory.config, SKILL)
    evolve.add_skill(memory.config, CALLER)
    memory.edit("sheets", CALLER.replace("len(items) // 20", "pages(items) // 2"))
    assert memory.show("sheets").record.payload.requires == ("pages",)
    with pytest.raises(BadInput, match="is called by sheets"):
        memory.retire("pages")
    with pytest.raises(BadInput, match="require each other in a circle"):
        memory.edit("pages", SKILL.replace("len(items)", "sheets(items)"))
    memory.edit("sheets", CALLER)
    assert memory.show("sheets").record.payload.requires == ()
    memory.retire("pages")


def test_a_skill_that_is_called_keeps_its_name(memory: Workspace) -> None:
    evolve.add_skill(memory.config, SKILL)
    evolve.add_skill(memory.config, CALLER.replace("len(items) // 20", "pages(items) // 2"))
    with pytest.raises(BadInput, match="got the name 'leaves' for skill 'pages', which sheets call"):
        memory.edit("pages", SKILL.replace("pages(", "leaves("))
    memory.edit("sheets", CALLER)
    memory.edit("pages", SKILL.replace("pages(", "leaves("))
    assert memory.show("leaves").record.version == 2


def test_an_edited_skill_is_checked_as_an_added_one(memory: Workspace) -> None:
    evolve.add_skill(memory.config, SKILL)
    with pytest.raises(BadInput, match="pages cannot be a skill: line 3: 'open' is neither a parameter"):
        memory.edit("pages", SKILL.replace("len(items)", "open(items)"))
    with open_store(memory.config, owner=False) as store:
        source = SKILL.replace("pages(", "found(").replace("len(items)", "search(items)")  # no run told of `search`
        op = DeltaOp(op=Op.ADD, kind="skill", payload={"source": source}, status=Status.ACTIVE)
        assert store.commit(memory.config.memory.namespace, [op], actor="test").applied
    memory.edit("found", source.replace("    return", "    items = sorted(items)\n    return"))
    assert memory.show("found").record.version == 2


def test_an_archive_is_brought_in(memory: Workspace, tmp_path: Path) -> None:
    memory.add("Greet the accountant.")
    digest = memory.export_workspace(tmp_path / "all.tar.gz")
    for folder in (tmp_path / "second", tmp_path / "third" / ".evolve"):
        with evolve.import_workspace(tmp_path / "all.tar.gz", folder) as second:
            assert [each.content for each in second.playbook] == ["Greet the accountant."]
            assert second.knowledge()[0].trust == "operator"
        with evolve.open(folder) as again:
            assert len(again.playbook) == 1
        with pytest.raises(BadInput, match="holds a workspace already"):
            evolve.import_workspace(tmp_path / "all.tar.gz", folder)
    with pytest.raises(NotFound, match="no file"):
        evolve.import_workspace(tmp_path / digest, tmp_path / "fourth")


def test_names_of_nothing_are_refused(memory: Workspace, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="got format 'xml'; expected one of ace, kayba, markdown, json"):
        memory.export_playbook("xml")  # type: ignore[arg-type]
    (tmp_path / "rules.md").write_text("# Rules\n\n- Be brief.\n")
    with pytest.raises(BadInput, match="got format 'xml'; expected one of ace, kayba, markdown, json"):
        memory.import_playbook(tmp_path / "rules.md", form="xml")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"there is no file '.*nosuch.toml'"):
        evolve.open(tmp_path / "nosuch.toml")
    assert not (tmp_path / "nosuch.toml").exists()
    with pytest.raises(BadInput, match="got a task without a word"), memory.task(" "):
        pass
    with pytest.raises(BadInput, match="got 5 for a task"), memory.task(5):  # type: ignore[arg-type]
        pass
    with pytest.raises(BadInput, match="got show = 'live'; expected one of 'in use', 'quarantined', 'all'"):
        memory.knowledge("live")  # type: ignore[arg-type]


def test_what_a_tool_gave_back_is_told_as_it_is(memory: Workspace) -> None:
    with memory.task("Look around.") as task:
        task.step({"look": 1}, {"doors": 2})
        task.step("open", error=KeyError("door"))
        task.step("wait", None)
        task.finish(3, success=True)
    steps = memory.episode(task.finished.episode).trajectory.steps if task.finished else ()
    told = [(step.action, step.observation, step.error) for step in steps]
    assert told == [
        ("{'look': 1}", "{'doors': 2}", None),
        ("open", "KeyError: 'door'", "KeyError: 'door'"),
        ("wait", "", None),
        ("3", "", None),
    ]


def test_one_text_is_no_list_of_names(memory: Workspace, tmp_path: Path) -> None:
    for ask, what in (
        (lambda: memory.evaluate("dev"), "splits"),
        (lambda: memory.compare("default"), "arms"),
        (lambda: memory.runs("eval"), "kinds"),
        (lambda: memory.export_skills(tmp_path / "skills", "pages"), "names"),
    ):
        with pytest.raises(BadInput, match=rf"got {what} '\w+'; expected a list of names: \['"):
            ask()


def test_an_archive_that_was_there_stays_until_the_new_one_is_whole(
    memory: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "new" / "folder" / "all.tar.gz"
    memory.export_workspace(archive)
    before = archive.read_bytes()
    with pytest.raises(BadInput, match="is a folder; name a file in it"):
        memory.export_workspace(tmp_path / "new")

    def half(source: Path, target: Path) -> None:
        target.write_bytes(Path(source).read_bytes()[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", half)
    with pytest.raises(OSError, match="No space"):
        memory.export_workspace(archive)
    assert archive.read_bytes() == before
    assert [each.name for each in archive.parent.iterdir()] == ["all.tar.gz"]


def test_forgetting_shows_what_it_takes_first(worker: Workspace) -> None:
    label = worker.knowledge()[0].label
    before = len(worker.knowledge("all"))
    plan = worker.forget_preview(label, purge=True)
    assert len(worker.knowledge("all")) == before
    assert worker.forget(label, purge=True, reason="wrong").records == plan.records
    with pytest.raises(NotFound, match="no record"):
        worker.show(label)
    task = worker.episodes(worker.runs()[0].run_id)[0].task
    plan = worker.forget_preview(task=task)
    assert plan.episodes["main"] == 1
    assert worker.forget(task=task).episodes == plan.episodes


def test_playbooks_and_skills_come_and_go(memory: Workspace, tmp_path: Path) -> None:
    memory.add("Greet the accountant.")
    file = tmp_path / "book.txt"
    file.write_text(memory.export_playbook("ace"))
    with evolve.open(tmp_path / "second") as second:
        came = second.import_playbook(file)
        assert (came.applied, came.known, came.quarantined, came.format) == (1, 0, 1, "ace")
        assert len(second.playbook) == 0
        second.restore(second.knowledge("quarantined")[0].label)
        assert second.import_playbook(file, form="ace", trust=True).known == 1
        with pytest.raises(BadInput, match="cannot be read"):
            second.import_playbook(tmp_path)
        long = tmp_path / "long.md"
        long.write_text("## RULES\n\n- Greet the treasurer.\n- " + "Greet the treasurer. " * 100 + "\n")
        with_one = second.import_playbook(long)
        assert (with_one.applied, with_one.too_long, with_one.format) == (1, 1, "markdown")
        assert "0 already known, 1 longer than `gate.static.max_chars` left out" in command(
            settings(tmp_path / "by command"), "playbook", "import", str(long)
        )
        evolve.add_skill(second.config, SKILL)
        with pytest.raises(BadInput, match="a skill is a Python function, this does not parse"):
            second.edit("pages", "no code")
        written = second.export_skills(tmp_path / "skills")
        assert written.skills == ("pages",)
        memory.import_skills(tmp_path / "skills")
        assert memory.show("pages").record.status is evolve.Status.CANDIDATE
        other = second.config.model_copy(update={"memory": second.config.memory.model_copy(update={"namespace": "b"})})
        with open_store(other, owner=False) as store:  # the same file, in another namespace
            assert exchange.import_playbook(store, other, file).quarantined == 1
            again = (
                exchange.import_skills(store, "b", tmp_path / "skills"),
                exchange.import_skills(store, "b", tmp_path / "skills"),
            )
            assert [(each.skills, each.known_before) for each in again] == [(1, 0), (0, 1)]
            assert {record.kind for record in store.records("b")} == {"bullet", "skill"}
            (bullet,) = (record for record in store.records("b") if record.kind == "bullet")
            store.commit("b", [removal(bullet, "x", "wrong", Provenance())], actor="test")
            retired = exchange.import_playbook(store, other, file)
            assert (retired.applied, retired.known, retired.quarantined) == (0, 1, 0)
        digest = second.export_workspace(tmp_path / "all.tar.gz")
    folder = tmp_path / "third"
    assert digest in command(tmp_path, "init", str(folder), "--from", str(tmp_path / "all.tar.gz"))


def test_waiting_changes_are_decided_as_by_the_commands(tmp_path: Path) -> None:
    folder = settings(tmp_path / "ours")
    with evolve.open(folder) as memory:
        memory.run(settings={"gate.names": ["static", "review"]})
        waiting = memory.proposals()
        assert waiting.rows() == evolve_json(folder, "review", "list")
        first, second, third = waiting[:3]
        assert {row.decision for row in waiting} == {"waiting"}
        assert memory.accept(first.number).applied[0].op_id
        memory.accept(second.number, "Greet the treasurer.")
        memory.defer(third.number, "later")
        assert memory.proposals()[-1].number == third.number, "after all others"
        memory.reject(third.number, "wrong")
        with pytest.raises(BadInput, match="was rejected already"):
            memory.accept(third.number)
        with pytest.raises(NotFound, match="no proposal '999999'"):
            memory.reject(999999)
        assert {row.content for row in memory.knowledge()} == {first.content, "Greet the treasurer."}
        everything = memory.proposals(everything=True)
        assert everything.rows() == evolve_json(folder, "review", "list", "--all")
        assert {row.number: row.decision for row in everything}[third.number] == "rejected"


def test_what_the_gates_said_is_listed_as_by_the_command(worker: Workspace, learned: Path) -> None:
    said = worker.gate_log()
    assert said.rows() == evolve_json(learned, "gates", "log")["verdicts"]
    assert {each.answer for each in said} >= {"accepted"}
    assert worker.gate_log(gate="canary") == ()
    assert all(each.answer == "rejected" for each in worker.gate_log(worker.runs()[0].run_id, rejected=True))
    with pytest.raises(NotFound, match="no run 'nowhere'"):
        worker.gate_log("nowhere")


def test_a_workspace_is_checked_and_backed_up_while_it_is_open(worker: Workspace, learned: Path) -> None:
    assert [each for each in worker.doctor() if each.level == "error"] == []
    assert worker.doctor(rebuild=True).rows() == evolve_json(learned, "memory", "doctor", "--rebuild")
    made = worker.backup()
    assert (made.records, Path(made.path).parent) == (len(worker.knowledge("all")), learned / "backups")
    with evolve.open(made.path) as copy:
        assert copy.knowledge().rows() == worker.knowledge().rows()


def test_a_run_and_an_evaluation_are_those_of_the_commands(tmp_path: Path) -> None:
    ours, theirs = settings(tmp_path / "ours"), settings(tmp_path / "theirs")
    command(theirs, "run", "--limit", "8")
    command(theirs, "eval", "--split", "dev", "--limit", "4", "--no-memory")
    with evolve.open(ours) as memory:
        stopped = memory.run(limit=8, settings={"budget.calls": 20})
        done = memory.resume(stopped.run_id)
        with pytest.raises(NotFound, match="is done"):
            memory.resume(done.run_id)
        exam = memory.evaluate(["dev"], limit=4, memory=False)
        assert (stopped.status, done.status, exam.status) == ("stopped", "done", "done")
        assert [row["content"] for row in memory.knowledge().rows()] == [
            row["content"] for row in evolve_json(theirs, "playbook", "list")
        ]
        with evolve.open(theirs) as other:
            runs = [run.model_dump(include={"kind", "tasks", "solved", "changes"}) for run in other.runs()]
        assert [run.model_dump(include={"kind", "tasks", "solved", "changes"}) for run in memory.runs()] == runs
        beside = memory.compare_runs(done.run_id, exam.run_id)
        assert (beside.base.run_id, beside.shared) == (done.run_id, 0)
        assert memory.report(exam.run_id).evaluations[0].metrics.tgc == exam.evaluations[0].metrics.tgc


def test_a_comparison_is_listed_among_the_runs(tmp_path: Path) -> None:
    with evolve.open(settings(tmp_path, tasks=4)) as memory:
        options = evolve.ComparisonOptions(report_tasks=2, controls=False)
        found = memory.compare(["default", "run.batch_size=2"], options)
        assert [arm.name for arm in found.arms] == ["default", "run.batch_size=2"]
        assert [run.kind for run in memory.runs(["compare"])] == ["compare"]
        with pytest.raises(BadInput, match="got 1 arms"):
            memory.compare(["default"], options)


async def test_a_run_works_where_a_loop_runs_already(tmp_path: Path) -> None:
    with evolve.open(settings(tmp_path, tasks=4)) as memory:
        assert memory.run().status == "done"


def test_the_example_runs_anywhere(root: Path) -> None:
    ran = subprocess.run([sys.executable, "examples/library.py"], cwd=root, env=ENV, capture_output=True, check=True)
    said = json.loads(ran.stdout)
    assert len(said) == 17
    assert said["playbook list"]


# --- W3 ---


def test_errors_are_one_sentence_with_the_fix(memory: Workspace, tmp_path: Path) -> None:
    (tmp_path / "file.db").write_text("x")
    with pytest.raises(ConfigError, match=r"expected a folder, or an evolve\.toml"):
        evolve.open(tmp_path / "file.db")
    with pytest.raises(ConfigError, match="did you mean 'seed'"):
        evolve.open(tmp_path, settings={"run.sead": 1})
    with pytest.raises(ConfigError, match="no environment 'offic'"):
        memory.run(settings={"environment.name": "offic"})
    with pytest.raises(ConfigError, match="no recipe 'grpoo'"):
        memory.train("grpoo")
    with pytest.raises(BadInput, match=r"nothing|no .*episode|offers"):
        memory.train("sft")
    with pytest.raises(NotFound, match="no record"):
        memory.retire("99")
    with pytest.raises(NotFound, match="no file"):
        memory.import_playbook(tmp_path / "none.md")
    with pytest.raises(BadInput, match=r"not finished; end it with task\.finish"), memory.task("Book room 4"):
        pass
    with memory.task("Book room 4") as task:
        with pytest.raises(BadInput, match="without success"):
            task.finish("done", feedback="You must greet.")
        task.finish("done")
        with pytest.raises(BadInput, match="finished before"):
            task.finish("done")
    with pytest.raises(BadInput, match=r"with memory\.task"):
        _ = memory.task("Book room 4").knowledge
    memory.close()
    memory.close()
    for late in (memory.knowledge, memory.run, lambda: memory.task("Book room 4")):
        with pytest.raises(WorkspaceClosed, match=r"open it again with evolve\.open"):
            late()


def test_parts_cannot_be_compared_by_name(tmp_path: Path) -> None:
    parts = evolve.Parts(policy=evolve.ScriptedPolicy(()))
    with (
        evolve.open(tmp_path / ".evolve", parts=parts) as memory,
        pytest.raises(ConfigError, match="without parts"),
    ):
        memory.compare(["default"])


def test_it_works_beside_a_process_that_owns_the_index(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text(SETTINGS.format(tasks=4, index="chroma"))
    with evolve.open(tmp_path) as memory, open_store(memory.config) as owner:
        memory.add("Greet the accountant.")
        assert [record.payload.text() for record in owner.records("default")] == ["Greet the accountant."]


# --- the async twin ---


async def test_the_async_twin_does_the_same(tmp_path: Path) -> None:
    async with evolve.aopen(settings(tmp_path, tasks=4)) as memory:
        async with memory.task("Book room 4") as task:
            task.step("book(room=4)", error=REFUSED)
            task.step("login()\nbook(room=4)", "booked")
            came = await task.finish(success=True)
        assert came.note == "learned shr-00001"
        async with memory.task("Book room 5", learning=False) as task:
            assert task.shown == ("shr-00001",)
            await task.finish("booked")
        assert str(await memory.playbook()) == "[shr-00001] login() must be called before book"
        before = await memory.snapshot()
        await memory.add("Greet the accountant.")
        await memory.edit("2", "Greet the treasurer.")
        await memory.retire("2")
        await memory.restore("2")
        assert (await memory.diff(before)).added == ("[shr-00002 v4] Greet the treasurer.",)
        await memory.rollback(before)
        assert (await memory.show("1")).content == (await memory.search("book a room"))[0].content
        assert (await memory.blame("1"))[0].event == "add"
        assert (await memory.stats()).snapshots == len(await memory.snapshots())
        stopped = await memory.run(settings={"budget.calls": 5})
        done = await memory.resume(stopped.run_id)
        assert (stopped.status, done.status) == ("stopped", "done")
        exam = await memory.evaluate(["dev"], limit=2)
        assert [run.kind for run in await memory.runs()] == ["agent", "learn", "eval"]
        rows = await memory.episodes(done.run_id)
        assert (await memory.episode(rows[0].episode)).trajectory.task.id == rows[0].task
        assert (await memory.report(done.run_id)).whole == done.metrics
        assert len(await memory.figures(done.run_id)) >= 3
        assert (await memory.compare_runs(done.run_id, exam.run_id)).shared == 0
        options = evolve.ComparisonOptions(report_tasks=1, controls=False)
        found = await memory.compare(["default", "run.batch_size=2"], options)
        assert len(found.arms) == 2
        file = tmp_path / "book.txt"
        file.write_text(await memory.export_playbook())
        assert (await memory.import_playbook(file)).applied == 0
        evolve.add_skill(memory.config, SKILL)
        assert (await memory.export_skills(tmp_path / "skills")).skills == ("pages",)
        assert (await memory.import_skills(tmp_path / "skills")).refused == ()
        assert len(await memory.export_workspace(tmp_path / "all.tar.gz")) == 64
        assert await memory.proposals() == ()
        with pytest.raises(NotFound, match="no proposal"):
            await memory.accept(1)
        with pytest.raises(NotFound, match="no proposal"):
            await memory.reject(1)
        with pytest.raises(NotFound, match="no proposal"):
            await memory.defer(1)
        assert {each.gate for each in await memory.gate_log(done.run_id)} == {"static"}
        assert await memory.generations() == ()
        assert [each for each in await memory.doctor() if each.level == "error"] == []
        assert (await memory.backup(tmp_path / "copies")).records > 0
        gone = await memory.forget_preview("1")
        assert (await memory.forget("1")).records == gone.records
        with pytest.raises(ConfigError, match="no recipe"):
            await memory.train("grpoo")
        with pytest.raises(ZeroDivisionError):
            await _broken(memory.task("Book room 6"))
        with pytest.raises(BadInput, match="not finished"):
            await _forgotten(memory.task("Book room 7"))
        assert len(await memory.knowledge("all")) > 2
        assert memory.path == memory.sync.path
    with pytest.raises(WorkspaceClosed, match="async with"):
        memory.task("Book room 8")


async def _broken(task: evolve.AsyncOpenTask) -> None:
    async with task:
        raise ZeroDivisionError


async def _forgotten(task: evolve.AsyncOpenTask) -> None:
    async with task:
        await asyncio.sleep(0)


def test_both_facades_offer_the_same_methods() -> None:
    offered = [{name for name in vars(each) if not name.startswith("_")} for each in (Workspace, evolve.AsyncWorkspace)]
    assert offered[0] == offered[1] - {"sync"}
