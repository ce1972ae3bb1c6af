"""A changed skill under live test: where chance hides the new version a task gets the one before, which comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evolve.environments.office.environment import OfficeConfig
from evolve.loop.assembly import open_store
from evolve.loop.nodes.expose import EXPOSURE
from evolve.loop.session import Parts, run
from memory.records import DeltaOp, Op, Record, Status, Task
from policies.scripted import ScriptedPolicy
from tests.evolve.skilled_office import PAY, PayOffice, config, episodes, payer, taught

WRONG = PAY.replace("memo=memo", 'memo="x"')


class Payments(PayOffice):
    """As many train tasks that pay somebody as asked for."""

    def tasks(self, split: str) -> list[Task]:
        return [task for task in super().tasks(split) if task.instruction.startswith("pay")][:40]


def lived(root: Path, source: str, **gate: Any) -> tuple[Record[Any], list[tuple[int, bool]]]:
    """Return the skill after a stream in which `source` was its new version, and (version given, solved) per task."""
    gates = {"names": ["static", "online_ab"], "online_ab": {"hide": 0.25, "error": 0.2} | gate}
    settings = config(root, gate=gates, forget={"rules": []}, skills={"enabled": True, "retire": []})
    record = taught(settings)
    payload = record.payload.model_copy(update={"source": source}).model_dump(mode="json")
    with open_store(settings) as store:
        edit = DeltaOp(op=Op.EDIT, kind="skill", target_id=record.id, payload=payload, base_version=1)
        status = DeltaOp(op=Op.RESTORE, kind="skill", target_id=record.id, status=Status.PROVISIONAL)
        assert not store.commit("default", [edit, status], actor="test").refused
    office = Payments(OfficeConfig(deployment=3, train_tasks=4000))
    run(settings, parts=Parts(policy=ScriptedPolicy(payer, profile="compact"), environment=office))
    given = [(t.injected[0].version if t.injected else 0, t.success) for t in episodes(settings)]
    with open_store(settings, read_only=True) as store:
        found = store.get(record.id)
        assert store.events(type=EXPOSURE)
    assert found is not None
    return found, given


def test_a_worse_version_is_hidden_in_favour_of_the_one_before_which_comes_back(tmp_path: Path) -> None:
    record, given = lived(tmp_path, WRONG)
    assert set(given) == {(1, True), (3, False), (5, True)}
    assert (record.status, record.payload.source, record.version) == (Status.ACTIVE, PAY, 5)
    last = given.index((5, True))
    assert {version for version, _ in given[last:]} == {5}


def test_a_version_that_is_no_worse_is_tested_against_the_one_before(tmp_path: Path) -> None:
    _, given = lived(tmp_path, PAY.replace("an amount", "any amount"))
    assert set(given) == {(1, True), (3, True)}
