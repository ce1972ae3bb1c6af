"""Formula: a question alone is shown, a printed number answers it, and the validation file is divided by a seed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from evolve.config.model import Config
from evolve.environments.formula import Formula, FormulaConfig
from evolve.episode.injection import shown_again
from evolve.episode.prompting import actions_of
from evolve.episode.world_texts import kept
from evolve.errors import ConfigError
from evolve.loop.assembly import make_environment, open_store
from evolve.loop.prompt_replay import opening, proved
from evolve.loop.session import Parts, run
from evolve.protocols import Action, StepResult
from memory.errors import BadInput
from memory.records import Outcome
from policies.protocols import Reply
from policies.scripted import ScriptedPolicy

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
FILES = {"train": str(FIXTURES / "formula_train.jsonl"), "validation": str(FIXTURES / "formula_validation.jsonl")}


def formula(seed: int = 0) -> Formula:
    return Formula(FormulaConfig(**FILES, dev=1, seed=seed))


def play(*said: str, task: int = 0) -> tuple[StepResult, Outcome]:
    """Return the last answer and the grade of an episode of a train task."""

    async def run() -> tuple[StepResult, Outcome]:
        world = formula()
        episode = world.start(world.tasks("train")[task])
        results = [await episode.step(Action(text=text)) for text in said]
        outcome = await episode.grade()
        await episode.close()
        return results[-1], outcome

    return asyncio.run(run())


def test_the_question_alone_is_shown_and_the_formula_is_its_family() -> None:
    tasks = formula().tasks("train")
    assert tasks[0].instruction == "A kite costs $15 to make and sells for $20. What is the margin?"
    assert tasks[2].instruction == "A bakery sold 500 loaves last year and 620 this year. How fast did it grow?"
    assert [task.metadata for task in tasks[:2]] == [{"family": "Profit Margin"}, {"family": "Simple Interest"}]
    assert [task.id for task in tasks] == ["train-1", "train-2", "train-3", "train-4"]


def test_the_demonstration_is_shown_as_turns_and_runs_as_it_stands(tmp_path: Path) -> None:
    shown = formula().demonstration()
    (action,) = actions_of(Reply(text=shown.reply), "code", "full")
    result, _ = play(action.text)
    assert (result.observation, result.done) == ("400.0", True)
    policy = ScriptedPolicy(lambda *_: "```python\nprint(0.25)\n```", name="quarter")
    config = Config.model_validate(
        {"root": tmp_path, "environment": {"name": "formula", **FILES, "dev": 1}, "playbook": {"reflector": "none"}}
    )
    result = run(config, parts=Parts(policy=policy))
    system, *turns = policy.seen[0]
    assert (system.role, turns[0].content, turns[1].content) == ("system", shown.instruction, shown.reply)
    assert [turn.role for turn in turns] == ["user", "assistant", "user"]
    with open_store(config, read_only=True) as store:
        words = kept(store, result.run_id)
        (first, *_) = store.trajectories(run_id=result.run_id)
        assert words is not None
        messages = opening(config, first, shown_again(store, first.injected), words)
        assert proved(config, first, 0, messages, words)
        assert not proved(config, first, 0, [messages[0], *messages[3:]], words)


def test_the_seed_divides_the_validation_file_and_names_no_task_anew() -> None:
    splits = {
        seed: [[task.id for task in formula(seed).tasks(name)] for name in ("dev", "test_normal")] for seed in range(9)
    }
    assert all(len(dev) == 1 and len(held_out) == 2 for dev, held_out in splits.values())
    assert all(sorted(dev + held_out) == [f"validation-{n}" for n in (1, 2, 3)] for dev, held_out in splits.values())
    assert len({dev[0] for dev, _ in splits.values()}) == 3


@pytest.mark.parametrize(
    "said",
    [
        "print((20 - 15) / 20)",
        "print('from 15 to 20:', f'{0.2549999 - 0.003:.4f}')",
        "0.25",
        "$0.25",
        "print(f'{0.25:.2f}x')",
        "print('1,000 of it:', 0.25, 'in all.')",
    ],
)
def test_the_last_number_printed_or_a_number_alone_is_the_answer(said: str) -> None:
    result, outcome = play(said)
    assert (result.done, outcome.success, outcome.reward) == (True, True, 1.0)


@pytest.mark.parametrize(
    ("text", "value"), [("-$1,234.5", -1234.5), ("2e3", 2000.0), (".5", 0.5), ("-3 %", -3.0), ("[1,2]", 2.0)]
)
def test_numbers_are_read_as_people_write_them(text: str, value: float) -> None:
    _, outcome = play(f"print({text!r})")
    assert outcome.checks[0].detail == f"expected 0.25, got {value:.10g}"


def test_two_decimals_count() -> None:
    assert play("print(360.004)", task=1)[1].success
    assert not play("print(360.006)", task=1)[1].success


def test_an_error_goes_on_and_definitions_live_on() -> None:
    result, _ = play("import numpy")
    assert not result.done
    assert result.error == "ModuleNotFoundError: No module named 'numpy'"
    result, outcome = play("def margin(p, c):\n    return (p - c) / p", "print(margin)", "print(margin(20, 15))")
    assert outcome.success
    assert play("def margin(p, c):\n    return (p - c) / p")[0] == StepResult(
        observation="nothing was printed; print the answer"
    )
    assert play("print('about a quarter')")[0].error == "no number was printed; print the answer as a number"


def test_code_that_never_ends_costs_a_step_and_not_the_episode() -> None:
    _, outcome = play("while True:\n    pass", "print(0.25)")
    assert outcome.success


def test_output_that_was_cut_is_no_answer_and_the_episode_goes_on() -> None:
    flood = "for month in range(2000):\n    print('month', month, 'balance', 1000.55)\nprint(0.25)"
    result, outcome = play(flood)
    assert (result.done, result.error) == (False, "more was printed than is read; print the answer alone")
    assert result.observation.endswith(f"more characters]\nerror: {result.error}")
    assert outcome.checks[0].detail == "expected 0.25, got no number"
    assert play(flood, "print(0.25)")[1].success


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "holds no question"),
        ("{", "expected {"),
        ('{"question": "?", "answer": 2}', "expected {"),
        ('{"context": "What is 1 + 1?", "target": "2.0"}', "expected 'Use formula NAME to answer"),
        ('{"context": "What is 1 + 1?", "target": "NaN"}', "expected {"),
    ],
)
def test_a_file_of_another_format_is_one_sentence_with_the_line(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text(content)
    with pytest.raises(BadInput, match=f"other.jsonl.*{says}"):
        Formula(FormulaConfig(train=str(tmp_path / "other.jsonl"), validation=FILES["validation"]))


def test_paths_start_from_the_folder_of_the_configuration() -> None:
    files = {name: Path(file).name for name, file in FILES.items()}
    world = make_environment(Config(root=FIXTURES, environment={"name": "formula", "dev": 1, **files}))
    assert world.tasks("train") == formula().tasks("train")


def test_what_the_configuration_lacks_is_said() -> None:
    def made(**keys: object) -> None:
        make_environment(Config(environment={"name": "formula", **keys}))

    with pytest.raises(ConfigError, match=r"train: Field required; its own keys are train, validation, dev, seed"):
        made()
    with pytest.raises(BadInput, match=r"cannot read the Formula file '.*nowhere/train.jsonl'"):
        made(train="nowhere/train.jsonl", validation=FILES["validation"])
    with pytest.raises(BadInput, match=r"dev is 3 and .* has 3 questions"):
        made(**FILES, dev=3)


def test_the_real_files_hold_fifty_formulas_and_every_question_is_read() -> None:
    folder = Path(os.environ.get("EVOLVE_TEST_DATA") or pytest.skip("EVOLVE_TEST_DATA names no folder with Formula"))
    if not (folder / "formula_train_subset_500.jsonl").exists():
        pytest.skip("EVOLVE_TEST_DATA has no formula_train_subset_500.jsonl")
    world = Formula(
        FormulaConfig(
            train=str(folder / "formula_train_subset_500.jsonl"),
            validation=str(folder / "formula_val_subset_300.jsonl"),
        )
    )
    splits = [world.tasks(name) for name in ("train", "dev", "test_normal", "test_challenge")]
    assert [len(tasks) for tasks in splits] == [500, 100, 200, 0]
    assert len({task.metadata["family"] for tasks in splits for task in tasks}) == 50
    assert len({task.instruction for tasks in splits for task in tasks}) == 800
    assert not [task.id for tasks in splits for task in tasks if "formula:" in task.instruction.lower()]


def test_a_function_that_answered_a_question_is_a_skill_of_the_next(tmp_path: Path) -> None:
    source = (
        "def margin(price: float, cost: float) -> float:\n"
        '    """Return the profit margin of a sale."""\n'
        "    return (price - cost) / price\n"
    )
    said = (f"{source}\nprint(margin(20, 15))", "print(1)", "print(1)", "print(margin(48, 30))")
    policy = ScriptedPolicy([f"```python\n{code}\n```" for code in said])
    settings = Config.model_validate(
        {
            "root": tmp_path,
            "run": {"tasks": 4, "batch_size": 1},
            "environment": {"name": "formula", **FILES, "dev": 1},
            "playbook": {"reflector": "none", "curator": "direct"},
            "skills": {"enabled": True},
            "controls": {"no_memory": 0.0},
        }
    )
    run_id = run(settings, parts=Parts(policy=policy)).run_id
    with open_store(settings, read_only=True) as store:
        (record,) = store.records("default")
        first, *_, last = store.trajectories(run_id=run_id)
    assert (record.kind, record.payload.source.strip()) == ("skill", source.strip())
    assert (first.success, first.injected, last.success) == (True, (), True)
    assert [item.record_id for item in last.injected] == [record.id]
