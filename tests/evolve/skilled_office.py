"""An office whose worker pays with a skill where its prompt lists one, and otherwise writes the function itself."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evolve.config.model import Config
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, RunResult, run
from memory.records import DeltaOp, Op, Provenance, Record, Status, Task, Trajectory, Trust
from memory.store import Store
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy

PAY = '''\
def pay_to(name: str, amount: float, memo: str) -> str:
    """Pay an amount to a contact, found by name."""
    contact = apps.contacts.find(name=name)
    return apps.payments.send(to=contact["handle"], amount=amount, memo=memo)
'''
DISTIL = "You turn work that succeeded"
"""How the prompt of the distiller begins."""
_ASKED = re.compile(r'pay "(\w+)" ([\d.]+) for "([^"]+)"')


class PayOffice(Office):
    """The office's tasks that pay somebody and do nothing else."""

    def tasks(self, split: str) -> Sequence[Task]:
        return [task for task in super().tasks(split) if task.metadata["family"] == "pay"]


def call(messages: Sequence[Message]) -> str:
    """Return the action that calls `pay_to` for the task of a conversation."""
    ((name, amount, memo),) = _ASKED.findall("\n".join(message.content for message in messages[:2]))
    return f'pay_to("{name}", {amount}, "{memo}")\napps.task.done()'


def payer(messages: Sequence[Message], params: SamplingParams) -> str:
    """Act as the worker: one action a task."""
    return call(messages) if "pay_to(" in messages[0].content else f"{PAY}\n{call(messages)}"


def code(text: str) -> str:
    """Return an action of the full profile."""
    return f"```python\n{text}\n```"


def by_hand(messages: Sequence[Message]) -> str:
    """Pay in two steps, without a function."""
    ((name, amount, memo),) = _ASKED.findall(messages[1].content)
    if len(messages) == 2:
        return code(f'contact = apps.contacts.find(name="{name}")\nprint(contact)')
    return code(f'apps.payments.send(to=contact["handle"], amount={amount}, memo="{memo}")\napps.task.done()')


def distilled(messages: Sequence[Message], source: str = PAY, **fields: Any) -> str:
    """Answer the distiller with one function and the episode done anew with it."""
    draft = {"source": source, "summary": "Pay a contact by name.", "example": 'pay_to("Ann", 3, "tea")', **fields}
    return json.dumps({"functions": [draft], "rewritten": call(messages[3:4])})


def writer(messages: Sequence[Message], params: SamplingParams) -> str:
    """Play the distiller, and an agent of the full profile that calls the skill where its prompt lists it."""
    if messages[0].content.startswith(DISTIL):
        return distilled(messages)
    return code(call(messages)) if "- pay_to(" in messages[0].content else by_hand(messages)


def office() -> PayOffice:
    return PayOffice(OfficeConfig(deployment=3))


def config(root: Path, **sections: Any) -> Config:
    base: dict[str, Any] = {
        "root": root,
        "run": {"batch_size": 1},
        "memory": {"index": "exact"},
        "playbook": {"reflector": "none", "curator": "direct"},
        "skills": {"enabled": True},
        "controls": {"no_memory": 0},
    }
    return Config.model_validate(
        {key: {**base.get(key, {}), **sections.get(key, {})} if key != "root" else root for key in {**base, **sections}}
    )


def work(settings: Config, policy: ScriptedPolicy | None = None) -> RunResult:
    policy = policy or ScriptedPolicy(payer, profile="compact")
    return run(settings, parts=Parts(policy=policy, environment=office()))


def teach(store: Store, source: str = PAY, **fields: Any) -> Record[Any]:
    """Put a skill into the store as an operator does; return its record."""
    op = DeltaOp(
        op=Op.ADD,
        kind="skill",
        payload={"source": source} | fields.pop("payload", {}),
        **({"status": Status.ACTIVE, "provenance": Provenance(trust=Trust.OPERATOR)} | fields),
    )
    (result,) = store.commit("default", [op], actor="operator").results
    assert result.applied, result.reason
    record = store.get(result.record_id or "")
    assert record is not None
    return record


def taught(settings: Config, source: str = PAY, **fields: Any) -> Record[Any]:
    with open_store(settings) as store:
        return teach(store, source, **fields)


def episodes(settings: Config) -> tuple[Trajectory, ...]:
    with open_store(settings) as store:
        return store.trajectories()
