"""The office proves its own grader, keeps its secrets and is worth learning in."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from collections.abc import Sequence

import pytest

from evolve.environments.office.desk import APPS, MAX_REJECTED
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.families import LONG, NORMAL, SPLITS
from evolve.environments.office.house_rules import RULES, draw, drift
from evolve.environments.office.solver import Knowledge, next_action
from evolve.environments.office.wording import FRAMES, HELD_OUT, meaning, oracle, sentence
from evolve.protocols import Action
from memory.errors import BadInput, NotFound
from memory.records import Outcome, Task

FLOOR_DEPLOYMENTS = range(3)


def numbered(sentences: Sequence[str]) -> list[str]:
    return [f"- {text} [{number}]" for number, text in enumerate(sentences, 1)]


def solve(office: Office, task: Task, lines: Sequence[str]) -> tuple[Outcome, int]:
    """Let the scripted solver work; return the outcome and its number of steps."""
    episode = office.start(task)
    observations: list[str] = []
    while len(observations) < 20:
        code = next_action(office.goal(task), Knowledge.read(lines), observations)
        result = episode.run(code)
        observations.append(result.observation)
        if result.done:
            break
    outcome = asyncio.run(episode.grade())
    episode.discard()
    return outcome, len(observations)


def rate(split: str, lines_of: dict[int, Sequence[str]]) -> float:
    outcomes = []
    for deployment, lines in lines_of.items():
        office = Office(OfficeConfig(deployment=deployment))
        outcomes += [solve(office, task, lines)[0].success for task in office.tasks(split)]
    return sum(outcomes) / len(outcomes)


@pytest.fixture(scope="module")
def office() -> Office:
    return Office()


def test_sizes() -> None:
    assert len(APPS) == 6
    assert sum(len(functions) for functions in APPS.values()) >= 40
    assert len(RULES) == 24
    assert Counter(rule.feedback for rule in RULES) == {"told": 12, "code": 6, "silent": 6}
    assert all(2 <= len(rule.options) <= 4 for rule in RULES)
    assert len(NORMAL) == 24
    assert not set(LONG) & set(NORMAL)


def test_splits_share_no_scenario(office: Office) -> None:
    seen: dict[str, str] = {}
    for split in SPLITS:
        tasks = office.tasks(split)
        assert all(count == 3 for count in Counter(task.scenario for task in tasks).values())
        for task in tasks:
            assert seen.setdefault(task.scenario, split) == split
    assert len(office.tasks("test_normal")) == 102
    assert len(office.tasks("test_challenge")) == 51


def test_same_seed_same_tasks_other_seed_other_rules() -> None:
    assert Office().tasks("dev") == Office().tasks("dev")
    assert Office().values != Office(OfficeConfig(deployment=1)).values


def test_no_memory_is_low_and_the_oracle_playbook_is_high() -> None:
    """The ablation floor: without it there would be nothing true to learn."""
    cold = rate("test_normal", {d: [] for d in FLOOR_DEPLOYMENTS})
    oracles = {d: numbered(oracle(draw(d))) for d in FLOOR_DEPLOYMENTS}
    assert cold <= 0.40
    assert rate("test_normal", oracles) >= 0.95
    assert rate("test_challenge", oracles) >= 0.95


def test_another_deployments_rules_do_not_help() -> None:
    wrong = {d: numbered(oracle(draw(d + 500))) for d in FLOOR_DEPLOYMENTS}
    assert rate("test_normal", wrong) <= rate("test_normal", {d: [] for d in FLOOR_DEPLOYMENTS}) + 0.03


def test_knowing_every_rule_does_not_help_the_control_family(office: Office) -> None:
    with_rules = [solve(office, task, numbered(office.oracle))[0].success for task in office.tasks("control")]
    without = [solve(office, task, [])[0].success for task in office.tasks("control")]
    assert with_rules == without


def test_a_verbose_solver_takes_at_least_three_steps(office: Office) -> None:
    steps = sorted(solve(office, task, numbered(office.oracle))[1] for task in office.tasks("test_normal"))
    assert steps[len(steps) // 2] >= 3


def test_a_silent_rule_shows_only_in_the_grade() -> None:
    office = next(
        o for o in (Office(OfficeConfig(deployment=d)) for d in range(20)) if o.values["pay_amount"] == "cents"
    )
    task = next(t for t in office.tasks("test_normal") if t.metadata["family"] == "pay")
    known = numbered([sentence(r, office.values[r.id]) for r in RULES if r.id != "pay_amount"])
    outcome, _ = solve(office, task, known)
    assert [check.detail for check in outcome.checks if not check.passed] == [
        "payments.send amount: expected cents, got dollars"
    ]


def test_the_third_rejected_call_ends_the_episode(office: Office) -> None:
    episode = office.start(office.tasks("dev")[0])
    results = [episode.run('apps.todo.find(title="nowhere")') for _ in range(MAX_REJECTED)]
    assert [result.done for result in results] == [False, False, True]
    assert "nothing found" in (results[0].error or "")
    assert not asyncio.run(episode.grade()).success
    episode.discard()


def test_who_is_locked_out_cannot_hand_in_what_was_right(office: Office) -> None:
    task = office.tasks("dev")[0]
    *work, done = office.gold(task)
    episode = office.start(task)
    assert [episode.run(action.text).error for action in work] == [None] * len(work)
    tried = "try:\n    apps.todo.find(title='nowhere')\nexcept Exception as error:\n    print(error)\n" * MAX_REJECTED
    result = episode.run(tried + done.text)
    assert (result.error, result.done) == ("locked out after too many rejected calls", True)
    outcome = asyncio.run(episode.grade())
    assert [check.name for check in outcome.checks if not check.passed] == ["done"]
    episode.discard()


def test_drift_changes_eight_rules_from_the_given_task_on() -> None:
    office = Office(OfficeConfig(drift_at=30))
    tasks = office.tasks("train")
    assert office.values_for(tasks[29]) == office.values
    moved = office.values_for(tasks[30])
    assert sum(moved[rule] != office.values[rule] for rule in moved) == 8
    assert drift(office.values, 0) == moved


def test_a_longer_train_split_goes_on_with_scenarios_of_its_own() -> None:
    office = Office(OfficeConfig(train_tasks=300, drift_at=150))
    short, tasks = Office().tasks("train"), office.tasks("train")
    assert tasks[:72] == short
    assert len({task.id for task in tasks}) == 300
    others = {task.scenario for split in SPLITS if split != "train" for task in office.tasks(split)}
    assert not others & {task.scenario for task in tasks}
    assert [office.values_for(task) == office.values for task in (tasks[149], tasks[150])] == [True, False]
    assert office.values_for(office.tasks("dev")[0]) == office.values
    assert Office(OfficeConfig(train_tasks=5)).tasks("train") == short[:5]


def test_an_office_that_drifted_at_the_start_drifted_in_every_split() -> None:
    office = Office(OfficeConfig(drift_at=0))
    for split in SPLITS:
        assert office.values_for(office.tasks(split)[0]) == drift(office.values, 0)


def test_an_episode_pickles_between_steps(office: Office) -> None:
    task = office.tasks("dev")[0]
    actions = office.gold(task)
    episode = office.start(task)
    episode.run(actions[0].text)
    digest = episode.state.digest()
    twin = pickle.loads(pickle.dumps(episode))
    episode.discard()
    assert twin.state.digest() == digest
    for action in actions[1:]:
        assert twin.run(action.text).error is None
    assert asyncio.run(twin.grade()).reward == 1.0
    twin.discard()


@pytest.mark.parametrize("code", ["apps.office", "apps.contacts.find.__globals__", "wanted", "apps.task.done.__self__"])
def test_the_agent_cannot_reach_the_grader(office: Office, code: str) -> None:
    episode = office.start(office.tasks("dev")[0])
    assert episode.run(f"print({code})").error is not None
    episode.discard()


def test_every_wording_has_one_meaning_and_held_out_ones_are_new() -> None:
    for rule in RULES:
        for option in rule.options:
            for frame in FRAMES + HELD_OUT:
                assert meaning(sentence(rule, option, frame)) == (rule.id, option)
    assert meaning("ask for the id first") is None
    assert meaning("payments.send: to must be polite") is None
    assert not set(FRAMES) & set(HELD_OUT)


def test_unknown_names_are_refused_with_what_there_is(office: Office) -> None:
    with pytest.raises(BadInput, match="it has train, dev"):
        office.tasks("exam")
    with pytest.raises(NotFound, match="deployment 0 has no task"):
        office.goal(Task(id="elsewhere", instruction="x"))


async def test_positional_arguments_and_bad_ones_get_clear_answers(office: Office) -> None:
    task = office.tasks("dev")[0]
    episode = office.start(task)
    name = office.goal(task).names.people[0]
    assert (await episode.step(Action(text=f'print(apps.contacts.find("{name}"))'))).error is None
    wrong = await episode.step(Action(text="apps.payments.send(amount=3)"))
    assert "missing a required argument: 'to'" in (wrong.error or "")
    await episode.close()
