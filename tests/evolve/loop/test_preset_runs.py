"""Every preset in a run: one script plays the model, and what is learned is what the method writes.

M1  the records are those of the method's own writer, in order
M2  later tasks go better than the first, by what was learned alone
M3  the run asked only the roles of its method
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evolve.config.model import Config
from evolve.config.preset import find_preset, preset_names
from evolve.loop.assembly import open_store
from evolve.loop.methods import GROWTH
from evolve.loop.report import lines, make_report
from evolve.loop.session import Parts, arun
from memory.records import Record, Status, Trajectory
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.evolve.method_player import player, replies, role
from tests.evolve.skilled_office import DISTIL, PAY, distilled, taught, work, writer
from tests.evolve.toy_doors import COLORS, Doors, password

ROLES = {
    "none": {"act"},
    "ace": {"act", "reflect", "curate"},
    "mnl": {"act", "note"},
    "reasoningbank": {"act", "reasoningbank"},
    "evolver": {"act", "evolver", "same"},
    "dynamic-cheatsheet": {"act", "cheatsheet"},
    "atlas": {"act", "paired", "coach"},
    "agentdevel": {"act", "critic", "release"},
    "regimes": {"act", "reflect"},
    "yunjue": {"act", "reflect"},
}


SKILLED = {
    "asi": {"act", "distil"},
    "voyager": {"act", "critic", "distil"},
    "skill-r1": {"act", "distil"},
}
"""Those that learn functions, in the office."""
LATE = {"agentdevel": 4}
"""Tasks of the last batch that are solved, where it is not all five: one release is shown four examples."""
TASKS = {"atlas": 15}
"""Tasks it takes, where it is not ten: the last step of a recovery teaches nothing, the second batch is coached."""


def rule(color: str) -> str:
    return f"the {color} door wants the word {password(color)}"


async def live(name: str, root: Path, tasks: int = 10) -> tuple[list[Record[Any]], list[Trajectory], Counter[str]]:
    """Run a preset over the doors and return its records, its episodes and the roles it asked."""
    sections: dict[str, Any] = {"run": {"batch_size": 5}, "gate": {"names": ["static"]}}
    config = Config.model_validate(
        {"root": root, "preset": name, "memory": {"index": "exact"}, "controls": {"no_memory": 0.0}, **sections}
    )
    policy = player()
    result = await arun(config, parts=Parts(policy=policy, environment=Doors(tasks)))
    with open_store(config, read_only=True) as store:
        episodes = {t.task.id: t for t in store.trajectories(run_id=result.run_id)}
        records = list(store.view("default").records())
    ordered = [episodes[f"train-{at}"] for at in range(tasks)]
    return records, ordered, Counter(role(messages) for messages in policy.seen)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("presets")


def test_every_preset_is_in_the_table() -> None:
    assert {*ROLES, *SKILLED} == set(preset_names())


@pytest.mark.parametrize("name", [name for name in ROLES if name != "none"])
async def test_a_preset_learns_with_its_own_writer(name: str, folder: Path) -> None:
    records, episodes, roles = await live(name, folder / name, TASKS.get(name, 10))
    assert set(roles) <= ROLES[name], name
    assert set(roles) >= ROLES[name] - {"same"}
    texts = [record.payload.text() for record in records]
    for color in COLORS:
        assert any(rule(color) in text for text in texts), (name, color)
    assert {record.kind for record in records} == {"note" if name == "mnl" else "bullet"}
    solved = [t.success for t in episodes]
    assert (solved[:5], sum(solved[-5:])) == ([False] * 5, LATE.get(name, 5))


class Learner:
    """Plays a preset that learns functions, in the office: agent, critic, and writer of `drafts` in turn."""

    def __init__(self, *drafts: str, critic: bool = True, **fields: Any) -> None:
        self.drafts, self.verdict, self.fields = list(drafts), critic, fields
        self.roles: Counter[str] = Counter()

    def __call__(self, messages: Sequence[Message], params: SamplingParams) -> str:
        first = messages[0].content
        role = "distil" if first.startswith(DISTIL) else "critic" if first.startswith("Decide whether") else "act"
        self.roles[role] += 1
        if role == "critic":
            return json.dumps({"reason": "seen", "success": self.verdict})
        return distilled(messages, self.drafts.pop(0), **self.fields) if role == "distil" else writer(messages, params)


def skilled(name: str, root: Path, learner: Learner, old: str = "") -> tuple[list[Record[Any]], list[Trajectory]]:
    """Run a preset over the office's payments and return its skills and its episodes."""
    sections = {"controls": {"no_memory": 0.0}, "memory": {"index": "exact"}}
    config = Config.model_validate({"root": root, "preset": name, **sections})
    if old:
        taught(config, old, status=Status.PROVISIONAL)
    work(config, ScriptedPolicy(learner, name="learner"))
    with open_store(config, read_only=True) as store:
        return list(store.view("default").records()), list(store.trajectories())


@pytest.mark.parametrize("name", SKILLED)
def test_a_preset_of_skills_learns_a_function_and_later_tasks_call_it(name: str, folder: Path) -> None:
    learner = Learner(PAY)
    (record,), episodes = skilled(name, folder / name, learner)
    assert (record.kind, record.payload.source, record.status) == ("skill", PAY, Status.PROVISIONAL)
    assert [len(episode.steps) for episode in episodes] == [2, 1, 1]
    assert all(episode.success for episode in episodes)
    assert (set(learner.roles), learner.roles["distil"]) == (SKILLED[name], 1)


CARELESS = PAY.replace('contact["handle"]', 'contact["email"]')
"""Pays nobody: no contact is known by the address."""


@pytest.mark.parametrize(
    ("name", "drafts", "kept"),
    [
        ("asi", [CARELESS, PAY], [PAY]),
        ("voyager", [CARELESS] * 3, [CARELESS]),
        ("skill-r1", [CARELESS, CARELESS, PAY], [PAY]),
        ("skill-r1", [CARELESS] * 9, []),
    ],
)
def test_what_fails_where_it_was_made_is_kept_by_none_but_voyager(
    name: str, drafts: list[str], kept: list[str], tmp_path: Path
) -> None:
    learner = Learner(*drafts)
    records, _ = skilled(name, tmp_path, learner)
    assert [record.payload.source for record in records] == kept
    assert learner.drafts == []


def test_voyager_keeps_nothing_that_its_critic_refuses_and_overwrites_by_name(tmp_path: Path) -> None:
    records, _ = skilled("voyager", tmp_path / "refused", Learner(PAY, critic=False))
    assert records == []
    blunt = CARELESS.replace("Pay an amount to a contact, found by name.", "Zip.")
    (record,), _ = skilled("voyager", tmp_path / "again", Learner(PAY, replaces=True), old=blunt)
    assert (record.version > 1, record.payload.source) == (True, PAY)


async def test_the_report_tells_how_fast_the_playbook_grows(folder: Path) -> None:
    _, episodes, _ = await live("yunjue", folder / "growth")
    with open_store(Config(root=folder / "growth"), read_only=True) as store:
        report = make_report(store, episodes[0].run_id)
        events = [event.data for event in store.events(type=GROWTH)]
    assert [(data["new"], data["tasks"]) for data in events] == [(5, 5), (0, 5)]
    assert report.egl == 0.5
    assert any("new records per task (EGL): 0.50" in line for line in lines(report))
    await live("ace", folder / "growth")
    with open_store(Config(root=folder / "growth"), read_only=True) as store:
        assert make_report(store).egl is None, "that of an earlier run"


async def test_without_memory_nothing_is_asked_or_learned(folder: Path) -> None:
    records, episodes, roles = await live("none", folder / "none", tasks=6)
    assert (records, set(roles)) == ([], {"act"})
    assert [t.success for t in episodes] == [False] * 6


async def test_a_search_is_a_step_and_what_it_finds_was_shown(folder: Path) -> None:
    _, episodes, _ = await live("evolver", folder / "search")
    late = episodes[-1]
    assert [step.action for step in late.steps] == [
        "search_experience('the word of the black door')",
        f"open black {password('black')}",
    ]
    assert rule("black") in late.steps[0].observation
    assert late.steps[0].usage.calls == 1
    assert len({injection.record_id for injection in late.injected}) == len(late.injected) > 0


async def test_only_who_can_search_is_told_so(folder: Path) -> None:
    """The control and the trials of gates hold no memory to search, and do not lose a step by trying."""
    gates = {"gate": {"names": ["held_out"], "calls_ratio": 1000}, "controls": {"no_memory": 1.0}}
    config = Config.model_validate({"root": folder, "preset": "evolver", "memory": {"index": "exact"}, **gates})
    await arun(config, parts=Parts(policy=player(), environment=Doors(10)))
    with open_store(config, read_only=True) as store:
        actions = {t.arm: set[bool]() for t in store.trajectories()}
        for t in store.trajectories():
            actions[t.arm] |= {step.action.startswith("search_experience") for step in t.steps}
        assert {arm for arm, searched in actions.items() if True in searched} == {"main"}
        assert {"no_memory", "gate"} <= actions.keys()
        assert not any("<search" in s.action for t in store.trajectories() for s in t.steps)


async def test_what_a_teacher_said_and_nobody_could_read_is_kept(folder: Path) -> None:
    def mumbling(messages: Sequence[Message], params: SamplingParams) -> str:
        return "hm" if role(messages) == "paired" else replies(messages, params)

    config = Config.model_validate({"root": folder / "mumbling", "preset": "atlas", "memory": {"index": "exact"}})
    result = await arun(config, parts=Parts(policy=ScriptedPolicy(mumbling, name="teacher"), environment=Doors(3)))
    with open_store(config, read_only=True) as store:
        kept = [each for each in store.reflections(result.run_id) if not each.parsed]
    assert [(each.author, each.raw) for each in kept] == [("atlas:teacher", "hm\n\nhm")] * 3


def test_each_paper_is_named() -> None:
    assert len({find_preset(name).about.paper for name in preset_names()}) == len(preset_names())
