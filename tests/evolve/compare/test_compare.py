"""A comparison: arms take turns on the same tasks, are judged alike, and what was found can be printed again.

K1  an arm is a configuration, a preset, key=value pairs, a run or a snapshot; anything else lists what there is
K2  arms that would not do the same tasks are refused, and so is judging on what was learned from
K3  one arm works at a time, batch by batch; the outcome is that of living alone
K4  a killed comparison goes on: no answered call is repeated, and the report is that of an undisturbed one
K5  figures come from the journals: paired, missing counted, controls beside them, gates apart
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evolve.compare import compare_session
from evolve.compare.arms import ArmRole, Given, resolve
from evolve.compare.compare_session import compare, reprint
from evolve.compare.comparison import Comparison
from evolve.compare.markdown_report import markdown
from evolve.compare.plan import ComparisonOptions, Plan, make_plan, read_plan, store_plan
from evolve.config.file import changed, load_config
from evolve.config.model import Config
from evolve.errors import ConfigError, EnvironmentFailure, RunMismatch
from evolve.loop.assembly import make_environment, open_store
from evolve.loop.session import Parts, run
from memory.errors import NotFound
from memory.records import Task
from policies.errors import BudgetExceeded, PolicyUnavailable
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import COLORS, Doors, doors_policy, replies

DOORS = """\
[run]
tasks = 12
batch_size = 3

[environment]
name = "tests.evolve.toy_doors:Doors"

[policy]
name = "tests.evolve.compare.test_compare:policy"

[memory]
index = "exact"
"""
DEAF = "deaf playbook.reflector=none playbook.curator=direct"


def policy(section: Any) -> ScriptedPolicy:
    """Play doors; the configuration names it."""
    return doors_policy()


@pytest.fixture
def given(tmp_path: Path) -> Given:
    """Return a configuration file of the doors."""
    (tmp_path / "evolve.toml").write_text(DOORS)
    return Given(tmp_path / "evolve.toml")


def plan_of(given: Given, *arms: str, **asked: Any) -> Plan:
    return make_plan([resolve(arm, given) for arm in arms], ComparisonOptions(**asked))


def parts(script: Callable[[Sequence[Message], SamplingParams], Any] = replies) -> Callable[[Config], Parts]:
    shared = ScriptedPolicy(script, name="doors", profile="compact", version="1")
    return lambda config: Parts(policy=shared, environment=Doors())


def test_an_arm_is_what_its_word_stands_for(given: Given, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(DOORS.replace("batch_size = 3", "batch_size = 6"))
    assert resolve("default", given).values()["run.batch_size"] == 3
    assert resolve(str(tmp_path / "other.toml"), given).values()["run.batch_size"] == 6
    assert resolve("run.batch_size=2 playbook.curator=direct", given).values()["playbook.curator"] == "direct"
    mnl = resolve("mnl playbook.notebook.batch=4", given).values()
    assert (mnl["playbook.curator"], mnl["run.batch_size"], mnl["playbook.notebook.batch"]) == ("notebook", 16, 4)
    over = Given(given.file, {"run.batch_size": 5})
    assert resolve("mnl", over).values()["run.batch_size"] == 5
    assert resolve("mnl run.batch_size=7", over).values()["run.batch_size"] == 7
    with pytest.raises(ConfigError, match=r"no arm 'acee'.*default, ace, .*no run or snapshot"):
        resolve("acee", given)
    with pytest.raises(ConfigError, match="learns online or offline"):
        resolve("run.mode=frozen", given)


@pytest.mark.parametrize(
    ("arm", "asked", "said"),
    [
        ("run.tasks=6", {}, "run.tasks = 12 and 'run.tasks=6' 6"),
        ("environment.n=7", {}, "environment.n = None and 'environment.n=7' 7"),
        ("run.seed=4", {}, "run.seed = 0"),
        ("run.skip=3", {}, "run.skip = 0 and 'run.skip=3' 3"),
        ("run.batch_size=2", {"split": "train"}, "run.split = 'train', on which it would be judged"),
        ("run.batch_size=2", {"split": "dev"}, "run.dev_split = 'dev'"),
        ("default", {}, "named twice"),
        ("run.batch_size=2", {"deployments": (1,)}, "deployment"),
        ("run.batch_size=2", {"seeds": (1, 1)}, "named twice"),
    ],
)
def test_arms_that_cannot_be_compared_are_refused(given: Given, arm: str, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        plan_of(given, "default", arm, **asked)
    assert said in str(refused.value)


def test_no_gate_of_a_life_admits_what_is_of_the_tasks_that_judge(given: Given, tmp_path: Path) -> None:
    plan = plan_of(given, "default", split="test_challenge")
    life = plan.config(tmp_path / "c", plan.arms[0], plan.replicates[0], frozen=False)
    assert life.run.eval_splits == ("test_normal", "test_challenge")


def test_a_run_is_not_judged_on_what_it_learned_from(given: Given) -> None:
    config = given.config(None, None, {"run.split": "test_normal", "run.tasks": 2})
    learned = run(config, parts=parts()(config))
    with pytest.raises(ConfigError, match=r"run\.split = 'test_normal', on which it would be judged"):
        plan_of(given, learned.run_id)


def test_the_command_is_kept_without_its_secrets(given: Given) -> None:
    key = "sk-proj-" + "Zq9" * 12
    plan = compare_session.plan_of(["default"], given, ComparisonOptions(), f"evolve compare x environment.key={key}")
    assert plan.command.startswith("evolve compare x environment.key=")
    assert "Zq9" not in plan.command


@pytest.mark.parametrize("place", [".", "sub"])
def test_paths_of_the_environment_mean_the_same_wherever_it_was_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "sub").mkdir()
    asked = "Use formula F{0} to answer the question. X. Question: what is {0}? Answer:"
    lines = [json.dumps({"context": asked.format(number), "target": str(number)}) for number in range(12)]
    for name in ("t", "v"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    section = 'name = "formula"\ntrain = "t.jsonl"\nvalidation = "v.jsonl"\ndev = 4'
    (tmp_path / "evolve.toml").write_text(DOORS.replace('name = "tests.evolve.toy_doors:Doors"', section))
    monkeypatch.chdir(tmp_path / place)
    plan = plan_of(Given(), "default", "run.batch_size=2", controls=False)
    life = plan.config(tmp_path / "c", plan.arms[0], plan.replicates[0], frozen=False)
    assert make_environment(life).tasks("train") == make_environment(load_config()).tasks("train") != ()


def test_arms_are_compared_on_the_same_tasks_with_their_controls(given: Given, tmp_path: Path) -> None:
    plan = plan_of(given, "default", DEAF.replace("deaf ", ""))
    found = compare(plan, tmp_path / "c", parts=parts())
    assert [(arm.name.split()[0], arm.role, arm.rate) for arm in found.arms] == [
        ("default", ArmRole.COMPARED, 1.0),
        ("playbook.reflector=none", ArmRole.COMPARED, 0.0),
        ("default", ArmRole.AA, 1.0),
        ("without", ArmRole.CONTROL, 0.0),
    ]
    again, control, deaf = found.contrasts
    assert [contrast.role for contrast in found.contrasts] == [ArmRole.AA, ArmRole.CONTROL, ArmRole.COMPARED]
    assert (found.floor, again.difference.delta, control.difference.delta) == (0.0, 0.0, -1.0)
    assert deaf.lives[0].lost == tuple(f"test_normal-{at}" for at in range(5))
    assert (deaf.p_holm, deaf.difference.p_mcnemar, control.p_holm) == (0.0625, 0.0625, None)
    assert (found.n, found.family, found.look, found.worlds) == (5, 1, 1, 1)
    assert len(found.arms[0].curve) == 12
    assert found.arms[0].curve[0] == found.arms[3].curve[-1] == 0.0 < found.arms[0].curve[-1]
    assert found.arms[1].differs["playbook.reflector"] == ("model", "none")
    assert len({life.snapshot_id for life in found.lives if life.arm == "default"}) == 1
    assert found.lives[0].seed != found.lives[2].seed


def test_it_says_what_it_is_and_prints_it_again(given: Given, tmp_path: Path) -> None:
    plan = plan_of(given, "default", "playbook.enabled=false", seeds=(0, 1))
    folder = tmp_path / "c"
    found = compare(plan, folder, parts=parts())
    text = (folder / "report.md").read_text()
    assert "do not rank the papers' methods" in text
    assert f"evolve compare --reprint {folder}" in text
    assert "n = 10 pairs of episodes" in text
    assert "number 1 at this split" in text
    assert "test_normal-3" in text
    life = found.lives[0]
    for name in ("doors 1", "model / model", life.snapshot_id, life.config_hash, life.run_id, "seed 1"):
        assert str(name) in text
    assert Comparison.model_validate_json((folder / "report.json").read_text()) == found
    (folder / "report.md").unlink()
    assert reprint(folder) == found
    assert (folder / "report.md").read_text() == text == markdown(found)
    other = compare(plan_of(given, "default", "run.batch_size=6"), tmp_path / "d", parts=parts())
    assert other.look == 2
    with pytest.raises(ConfigError, match="holds another comparison"):
        compare(plan_of(given, "default", "run.batch_size=4"), folder, parts=parts())


def test_what_is_no_plan_beside_it_is_no_look_and_is_said(
    given: Given, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = plan_of(given, "default", "run.batch_size=2")
    for name, held in (("a", b'{"resource_changes": []}'), ("b", b"\xff\xfe{"), ("c", b"")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").write_bytes(held)
    (tmp_path / "d" / "plan.json").mkdir(parents=True)
    assert store_plan(plan, tmp_path / "first").look == 1
    assert caplog.text.count("is no plan of this version") == 4
    assert str(tmp_path / "a" / "plan.json") in caplog.text
    assert store_plan(plan_of(given, "default", "run.batch_size=4"), tmp_path / "second").look == 2
    for name in ("a", "b"):
        with pytest.raises(RunMismatch, match="no plan of this version"):
            read_plan(tmp_path / name)


@pytest.mark.parametrize("tasks", [0, -1])
def test_arms_are_judged_on_one_task_at_least(tasks: int) -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        ComparisonOptions(report_tasks=tasks)


class Town(Doors):
    """Doors, of which a later deployment has more."""

    name = "town"

    def __init__(self, deployment: int = 0) -> None:
        super().__init__(6 + 2 * deployment)


def test_deployments_may_have_streams_of_other_lengths(given: Given, tmp_path: Path) -> None:
    world = 'name = "tests.evolve.compare.test_compare:Town"\ndeployment = 0'
    (tmp_path / "evolve.toml").write_text(DOORS.replace('name = "tests.evolve.toy_doors:Doors"', world))
    plan = plan_of(given, "default", DEAF.removeprefix("deaf "), controls=False, deployments=(0, 1))
    found = compare(plan, tmp_path / "c")
    assert [arm.curve for arm in found.arms] == [(0.0,) * 5 + (1.0,) * 3, (0.0,) * 8]
    assert (tmp_path / "c" / "report.md").exists()


def learned(plan: Plan, folder: Path, arm: int = 0) -> tuple[list[tuple[Any, bool]], list[str]]:
    """Return the episodes of an arm's stream, each with its time and success, and the texts that it learned."""
    config = plan.config(folder, plan.arms[arm], plan.replicates[0], frozen=False)
    with open_store(config, read_only=True) as store:
        texts = [record.payload.text() for record in store.records("default")]
        stream = [t for t in store.trajectories(arm="main") if t.task.split == "train"]
    return [(t.created_at, t.success) for t in stream], texts


def test_arms_take_turns_and_end_where_each_ends_alone(given: Given, tmp_path: Path) -> None:
    """The journals' own times: whenever another arm acts, the one before has ended its batch."""
    plan = plan_of(given, "default", "run.concurrency=1", "playbook.token_budget=300", controls=False)
    compare(plan, tmp_path / "c", parts=parts())
    order = sorted((at, number) for number in range(3) for at, _ in learned(plan, tmp_path / "c", number)[0])
    assert [number for _, number in order] == [number for _ in range(4) for number in (0, 0, 0, 1, 1, 1, 2, 2, 2)]
    config = plan.config(tmp_path / "alone", plan.arms[0], plan.replicates[0], frozen=False)
    run(config, parts=parts()(config))
    marks, texts = learned(plan, tmp_path / "alone")
    assert len(texts) == len(COLORS)
    together = learned(plan, tmp_path / "c")
    assert ([success for _, success in together[0]], together[1]) == ([success for _, success in marks], texts)


@pytest.mark.parametrize("calls", [1, 75])
def test_a_comparison_that_died_goes_on_without_repeating_a_call(given: Given, tmp_path: Path, calls: int) -> None:
    plan = plan_of(given, "default", "run.batch_size=4")
    seen: list[str] = []

    def dying(messages: Sequence[Message], params: SamplingParams) -> Any:
        seen.append(json.dumps([m.content for m in messages] + [params.seed]))
        return PolicyUnavailable("the server is gone") if len(seen) == calls else replies(messages, params)

    whole: list[str] = []

    def counting(messages: Sequence[Message], params: SamplingParams) -> Any:
        whole.append(json.dumps([m.content for m in messages] + [params.seed]))
        return replies(messages, params)

    undisturbed = compare(plan, tmp_path / "whole", parts=parts(counting))
    assert calls < len(whole)
    with pytest.raises(PolicyUnavailable):
        compare(plan, tmp_path / "c", parts=parts(dying))
    with pytest.raises(NotFound, match="go on with"):
        reprint(tmp_path / "c")
    found = compare(plan, tmp_path / "c", parts=parts(dying))
    del seen[calls - 1]  # the call that was never answered
    assert sorted(seen) == sorted(whole)
    assert [life.passed for life in found.lives] == [life.passed for life in undisturbed.lives]
    assert [life.config_hash for life in found.lives] == [life.config_hash for life in undisturbed.lives]
    assert [arm.curve for arm in found.arms] == [arm.curve for arm in undisturbed.arms]
    assert learned(plan, tmp_path / "c", 1)[1] == learned(plan, tmp_path / "whole", 1)[1]
    done = len(seen)
    assert compare(plan, tmp_path / "c", parts=parts(dying)) == found
    assert len(seen) == done


def test_arms_of_several_attempts_are_judged_by_one(given: Given, tmp_path: Path) -> None:
    plan = plan_of(given, "default", "run.attempts=2")
    found = compare(plan, tmp_path / "c", parts=parts())
    assert found.arms[1].rate == 1.0


def test_a_budget_stops_it_and_more_of_it_ends_it(given: Given, tmp_path: Path) -> None:
    small = plan_of(given, "default", "run.batch_size=4 budget.calls=9")
    with pytest.raises(BudgetExceeded, match=r"run.batch_size=4 .* in doors-seed-0: .*compare again"):
        compare(small, tmp_path / "c", parts=parts())
    more = small.arms[1].model_copy(
        update={"config": {**small.arms[1].config, "budget": small.arms[0].config["budget"]}}
    )
    enough = small.model_copy(update={"arms": (small.arms[0], more, *small.arms[2:])})
    assert enough.digest == small.digest
    assert compare(enough, tmp_path / "c", parts=parts()).arms[1].rate == 1.0


def test_runs_and_snapshots_are_judged_as_they_were(given: Given, tmp_path: Path) -> None:
    config = given.config(None, None, {})
    early = run(config.model_copy(update={"run": config.run.model_copy(update={"tasks": 2})}), parts=parts()(config))
    late = run(config, parts=parts()(config))
    snapshot = str(early.snapshot_id)
    found = compare(plan_of(given, late.run_id, snapshot), tmp_path / "c", parts=parts())
    assert [arm.rate for arm in found.arms] == [1.0, 0.4, 1.0, 0.0]
    assert [life.snapshot_id for life in found.lives[:2]] == [late.snapshot_id, snapshot]
    assert all(life.learned is None for life in found.lives)
    assert all(not arm.curve for arm in found.arms)
    assert "learning curves" not in markdown(found)


def test_a_snapshot_is_not_taken_for_judged_because_somebody_evaluated_it(given: Given, tmp_path: Path) -> None:
    base = given.config(None, None, {})
    snapshot = str(run(base, parts=parts()(base)).snapshot_id)
    earlier = changed(base, {"run.mode": "frozen", "run.snapshot": snapshot, "run.seed": 77, "controls.no_memory": 0})
    evaluation = run(earlier, parts=parts()(earlier))

    class Down(Doors):
        def tasks(self, split: str) -> Sequence[Task]:
            raise EnvironmentFailure("it is down")

    plan = plan_of(given, snapshot, f"{snapshot} playbook.token_budget=50", controls=False)
    with pytest.raises(EnvironmentFailure):  # the workspaces are copied, and nothing has begun
        compare(plan, tmp_path / "c", parts=lambda config: Parts(policy=doors_policy(), environment=Down()))
    found = compare(plan, tmp_path / "c", parts=parts())
    assert evaluation.run_id not in {life.run_id for life in found.lives}
    assert {life.seed for life in found.lives} == {base.run.seed}


def test_missing_episodes_are_failures_and_counted(given: Given, tmp_path: Path) -> None:
    def crashing(messages: Sequence[Message], params: SamplingParams) -> Any:
        exam = "Open the red door." in messages[0].content and "the white door wants" in messages[0].content
        return "crash" if exam else replies(messages, params)

    found = compare(plan_of(given, "default", "playbook.enabled=false"), tmp_path / "c", parts=parts(crashing))
    assert (found.arms[0].missing, found.arms[0].rate) == (1, 0.8)
    assert any("1 of 5 episodes were not graded" in text for text in found.warnings)
    assert found.contrasts[-1].difference.lost == 4


def test_changed_task_sets_and_policies_are_errors(given: Given, tmp_path: Path) -> None:
    plan = plan_of(given, "default", "run.batch_size=4", controls=False)
    compare(plan, tmp_path / "c", parts=parts())
    kept = read_plan(tmp_path / "c")
    fewer = kept.replicates[0].model_copy(update={"report": kept.replicates[0].report[1:]})
    changed = kept.model_copy(update={"replicates": (fewer,)})
    (tmp_path / "c" / "plan.json").write_text(changed.model_dump_json())
    with pytest.raises(RunMismatch, match="judged on 5 tasks, planned were 4; 'test_normal-0'"):
        reprint(tmp_path / "c")

    def newer(config: Config) -> Parts:
        second = config.run.batch_size == 4
        return Parts(
            policy=ScriptedPolicy(replies, name="doors", profile="compact", version="2" if second else "1"),
            environment=Doors(),
        )

    with pytest.raises(RunMismatch, match="policy 'doors' changed meanwhile"):
        compare(plan, tmp_path / "d", parts=newer)


def test_gates_are_counted_apart_from_learning(given: Given, tmp_path: Path) -> None:
    gated = 'gate.names=["static","batch_screen"]'
    found = compare(plan_of(given, "default", gated), tmp_path / "c", parts=parts())
    first, second = found.arms[:2]
    assert first.gates.calls == 0 < second.gates.calls
    assert second.looks > 0
    assert second.rate == 1.0
    assert "looks" in (tmp_path / "c" / "report.md").read_text()
    assert len(COLORS) == found.n
