"""What the use of skills earns: counters by honest use, notes of failed uses, figures in the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from evolve.loop.assembly import open_store
from evolve.loop.report import lines, make_report
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.evolve.skilled_office import PAY, call, config, taught, work
from tests.playbooks.conftest import PARTS

OTHER = '''\
def pay_late(name: str, amount: float) -> str:
    """Pay an amount to a contact later."""
    return apps.contacts.find(name=name)["handle"]
'''
WRONG = PAY.replace("amount=amount, ", "")
"""Lacks an argument: every call of it is refused."""


def test_a_skill_that_was_called_and_worked_helped_and_one_that_stood_by_did_not(tmp_path: Path) -> None:
    settings = config(tmp_path)
    used, idle = taught(settings), taught(settings, OTHER)
    work(settings)
    with open_store(settings) as store:
        counts = [record.usage for record in (store.get(used.id), store.get(idle.id)) if record]
    assert [(c.injected, c.cited, c.success, c.helpful, c.harmful) for c in counts] == [
        (3, 3, 3, 3, 0),
        (3, 0, 3, 0, 0),
    ]


def test_a_function_of_the_same_name_earns_nothing_for_the_skill(tmp_path: Path) -> None:
    settings = config(tmp_path, forget={"rules": []}, gate={"names": ["review"]})
    record = taught(settings, OTHER.replace("pay_late", "pay_to"))
    work(settings, ScriptedPolicy(lambda messages, _: f"{PAY}\n{call(messages)}", profile="compact"))
    with open_store(settings) as store:
        after = store.get(record.id)
    assert after is not None
    assert (after.usage.injected, after.usage.cited, after.usage.helpful, after.usage.success) == (3, 0, 0, 3)


def clumsy(messages: Sequence[Message], params: SamplingParams) -> str:
    """Call the skill, and write it anew where it failed; write notes where asked to."""
    if not messages[0].content.startswith("rules:"):
        return json.dumps(PARTS)
    return call(messages) if len(messages) < 3 else f"{PAY}\n{call(messages)}"


def test_a_skill_that_fails_is_harmful_and_goes_into_the_notebook(tmp_path: Path) -> None:
    settings = config(tmp_path, playbook={"curator": "notebook"}, forget={"rules": []}, gate={"names": ["none"]})
    record = taught(settings, WRONG)
    policy = ScriptedPolicy(clumsy, profile="compact")
    assert work(settings, policy).metrics.tgc == 1.0  # type: ignore[union-attr]
    with open_store(settings) as store:
        after = store.get(record.id)
        (note,) = store.view("default").records("note")
    assert after is not None
    assert (after.usage.cited, after.usage.harmful) == (3, 1)
    assert (after.usage.helpful, after.payload.source.strip()) == (2, PAY.strip()), "mended after its first failure"
    (asked,) = [seen[0].content for seen in policy.seen if not seen[0].content.startswith("rules:")]
    assert "skill pay_to [skill-00001] failed: payments.send: missing" in asked
    assert note.provenance.task_ids


def test_the_report_says_how_skills_are_used(tmp_path: Path) -> None:
    settings = config(tmp_path)
    work(settings)
    with open_store(settings, read_only=True) as store:
        report = make_report(store)
    found = report.skills
    assert found is not None
    assert (found.tasks, found.shown, found.used, found.solved, found.failed, found.new) == (3, 2, 2, 2, 0, 1)
    assert (found.citation, found.success, round(found.growth, 2)) == (1.0, 1.0, 0.33)
    expected = (
        "skills: given to 2 of 3 tasks, used by 100% of them, 100% of these solved; 0 failed calls; 0.33 new a task"
    )
    assert expected in lines(report)


def test_a_run_without_skills_reports_none(tmp_path: Path) -> None:
    settings = config(tmp_path, skills={"enabled": False})
    work(settings)
    with open_store(settings, read_only=True) as store:
        report = make_report(store)
    assert report.skills is None
    assert not [line for line in lines(report) if line.startswith("skills")]
