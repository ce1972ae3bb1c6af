"""A live stream in the office, no task twice: what `online_ab` makes of true rules, of a harmful one and of empty ones.

The scripted worker acts and the `rules` reflector writes. After 40 tasks somebody plants a rule that says the opposite
of a true one, worded so that no curator sees the contradiction, and eight bullets that say nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from evolve.config.model import Config
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.families import NORMAL, VARIANTS, draw_task
from evolve.environments.office.house_rules import RULES, draw
from evolve.environments.office.wording import sentence
from evolve.environments.office.worker import make_worker
from evolve.gates.account import account
from evolve.loop.assembly import open_store
from evolve.loop.nodes.expose import EXPOSURE
from evolve.loop.session import Parts, arun
from memory.records import DeltaOp, Op, Status, Task

DEPLOYMENT, TASKS, PLANTED_AT = 7, 320, 40
VALUES = draw(DEPLOYMENT)
UNTOLD = [rule for rule in RULES if rule.feedback == "silent" and VALUES[rule.id] != rule.options[0]]
"""Rules that decide whether a task succeeds: nobody says that they were broken, and guessing breaks them. What the
office does say, the worker mends within the task."""
FAMILIES = [family for family in NORMAL if {"request", "send_mail", "plan", "assign"} & set(family)]
"""15 of 24: those with a call that such a rule governs. The others are solved without any rule."""
TRUE = {sentence(rule, VALUES[rule.id]) for rule in UNTOLD}
(TARGET,) = [rule for rule in RULES if rule.id == "mail_priority"]
HARMFUL = f"note that {sentence(TARGET, next(each for each in TARGET.options if each != VALUES[TARGET.id]))}"
EMPTY = [f"{what} makes good work" for what in ("calm", "tea", "light", "rest", "music", "order", "plants", "paper")]


class LiveOffice(Office):
    """The office with new tasks all the time, each family again with other entities; `dev` goes on after `train`."""

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in ("train", "dev"):
            return super().tasks(split)
        numbers = range(10, 10 + -(-TASKS // (len(FAMILIES) * VARIANTS)))
        every = [(family, n, variant) for n in numbers for variant in range(1, VARIANTS + 1) for family in FAMILIES]
        drawn = [draw_task(DEPLOYMENT, "train", *each) for each in every]
        self._goals.update((task.id, goal) for task, goal in drawn)
        random.Random(DEPLOYMENT).shuffle(drawn)
        tasks = [task for task, _ in drawn[:TASKS]]
        return tasks[:PLANTED_AT] if split == "train" else tasks[PLANTED_AT:]


def live_config(root: Path, split: str) -> Config:
    return Config.model_validate(
        {
            "root": root,
            "memory": {"index": "exact", "recall_k": 64},
            "run": {"split": split, "batch_size": 8},
            "playbook": {"reflector": "rules", "curator": "direct", "token_budget": 4096},
            "controls": {"no_memory": 0},
            "forget": {"rules": []},
            "gate": {"names": ["static", "online_ab"], "online_ab": {"hide": 0.25}},
        }
    )


async def live(root: Path) -> Config:
    office = LiveOffice(OfficeConfig(deployment=DEPLOYMENT))
    for split in ("train", "dev"):
        config = live_config(root, split)
        if split == "dev":
            ops = [DeltaOp(op=Op.ADD, op_id=text, payload={"content": text}) for text in (HARMFUL, *EMPTY)]
            with open_store(config) as store:
                assert not store.commit("default", ops, actor="somebody").refused
        await arun(config, parts=Parts(policy=make_worker(office), environment=office))
    return config


@pytest.mark.slow
def test_true_rules_become_active_a_harmful_one_is_retired_and_empty_ones_are_not_accepted(tmp_path: Path) -> None:
    config = asyncio.run(live(tmp_path))
    with open_store(config, read_only=True) as store:
        done = [t.task.id for t in store.trajectories()]
        assert len(done) == len(set(done)) == TASKS
        known = {record.payload.text(): record for record in store.records("default")}
        assert set(known) >= TRUE
        opposed = sentence(TARGET, VALUES[TARGET.id])
        assert {known[text].status for text in TRUE - {opposed}} == {Status.ACTIVE}
        assert known[opposed].status in (Status.ACTIVE, Status.PROVISIONAL), "it could help only while unopposed"
        assert known[HARMFUL].status is Status.RETIRED
        (gone,) = store.events(type="knowledge.remove", subject=known[HARMFUL].id)
        assert "seen to harm" in gone.data["reason"]
        assert sum(known[text].status is Status.ACTIVE for text in EMPTY) <= 1
        assert all(known[text].usage.injected > 80 for text in EMPTY)
        last = store.events(type=EXPOSURE)[-1].data["standing"]
        assert len(last) > len(EMPTY), "rules that only save steps are still under test"
        runs = [account(store, run["run_id"]) for run in store.runs()]
        assert [run.episodes for run in runs] == [0, 0]
