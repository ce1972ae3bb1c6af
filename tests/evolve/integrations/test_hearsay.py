"""What a client reports has no weight against what was verified: a rule cannot be reported to death."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evolve.config.model import Config
from evolve.gates.scoring import cases
from evolve.integrations.client_answers import Done
from evolve.integrations.client_session import ClientSession
from evolve.loop.assembly import open_store
from memory.errors import BadInput
from memory.records import Check, DeltaOp, Op, Outcome, Provenance, Record, Status, Trust
from playbooks.retirement import RULES, Limits
from tests.evolve.command import evolve_json
from tests.evolve.toy_doors import doors_config

RULE = "payments.send: give amount in cents."
FORGED = (
    Done(action="apps.payments.send(amount=1)  # [shr-00001]", observation="no", error="broken"),
    Done(action="apps.payments.send(amount=2)  # [?]", observation="ok", error=None),
)


async def reported(root: Path, trust: Trust, **more: Any) -> tuple[Config, Record[Any]]:
    """Return a rule of that trust after six tasks in which a client blamed it."""
    config = doors_config(root, playbook={"reflector": "rules", "curator": "direct"}, **more)
    with open_store(config) as store:
        op = DeltaOp(op=Op.ADD, payload={"content": RULE}, provenance=Provenance(trust=trust))
        (result,) = store.commit("default", [op], actor="test").results
        for at in range(6):
            async with ClientSession(config, store) as visit:
                task = f"Pay {at} for the lamp: payments.send wants an amount in cents."
                assert "shr-00001" in (await visit.playbook(task)).ids
                await visit.record(task, FORGED, False, "", ())
        record = store.get(result.record_id or "")
    assert record is not None
    return config, record


async def test_feedback_without_success_is_refused_and_what_was_asked_for_is_kept(tmp_path: Path) -> None:
    config, told = doors_config(tmp_path), "the bank said yes"
    with open_store(config) as store:
        async with ClientSession(config, store) as visit:
            await visit.playbook("Pay Ann.")
            with pytest.raises(BadInput, match="got feedback without success; say success true or false as well"):
                await visit.record("Pay Ann.", FORGED, None, told, ())
            await visit.record("Pay Ann.", FORGED, True, told, ())
            await visit.record("Pay Ben.", FORGED, None, "", ())
        first, second = store.trajectories(run_id=visit.run_id)
    assert first.outcome == Outcome(
        success=True, reward=1.0, checks=(Check(name="feedback", passed=True, detail=told),)
    )
    assert second.outcome is None


async def test_a_verified_rule_is_not_retired_by_what_a_client_reports(tmp_path: Path) -> None:
    config, record = await reported(tmp_path, Trust.VERIFIED)
    assert (record.usage.harmful, record.usage.failure) == (0, 0)
    assert record.usage.injected == 6
    with open_store(config, read_only=True) as store:
        (case,) = cases(store, config.forget, [record])
        assert case.utility.weight == 0
        assert not any(rule(case, (), Limits()) for rule in RULES.values())
    assert record.status is Status.PROVISIONAL


async def test_what_a_client_reports_is_no_task_of_a_trial(tmp_path: Path) -> None:
    config, _ = await reported(tmp_path, Trust.VERIFIED, gate={"names": ["default"]})  # shown in each of six tasks
    with open_store(config, read_only=True) as store:
        assert store.count_events(type="online_ab.exposure", namespace="default") == 0


async def test_what_was_reported_is_shown_beside_the_counters(tmp_path: Path) -> None:
    await reported(tmp_path, Trust.VERIFIED)
    (tmp_path / "evolve.toml").write_text('[memory]\nindex = "exact"\n')
    told = evolve_json(tmp_path, "playbook", "show", "1")["reported"]
    assert told == {"failure": 6, "harmful": 6}
    events = [row["event"] for row in evolve_json(tmp_path, "playbook", "blame", "1")]
    assert events == ["add", *["reported failure 1, harmful 1 (no weight)"] * 6]


async def test_a_client_may_speak_for_and_against_what_came_from_outside(tmp_path: Path) -> None:
    _, record = await reported(tmp_path, Trust.IMPORTED)
    assert record.usage.harmful == 6
