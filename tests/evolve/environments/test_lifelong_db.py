"""LifelongAgentBench's database part: graded by what a statement does, and nothing but the table can be reached."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from evolve.config.model import Config
from evolve.environments.check import play
from evolve.environments.lifelong_db import LifelongDb, LifelongDbConfig
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.errors import ConfigError
from evolve.loop.assembly import make_environment
from evolve.protocols import Action, StepResult
from memory.errors import BadInput
from memory.records import Outcome, Task
from playbooks.rules import RulesReflector
from policies.scripted import ScriptedPolicy

FILE = Path(__file__).resolve().parents[2] / "fixtures" / "lifelong_db.json"


def world(seed: int = 0, **sizes: int) -> LifelongDb:
    return LifelongDb(LifelongDbConfig(data=str(FILE), seed=seed, **({"test": 2, "dev": 1} | sizes)))


def task(number: int) -> Task:
    """Return a task of the fixture, whatever split it is in."""
    everything = [task for split in ("train", "dev", "test_normal") for task in world().tasks(split)]
    return next(task for task in everything if task.id == f"db-{number}")


def graded(number: int, *statements: str) -> Outcome:
    return asyncio.run(play(world(), task(number), [Action(text=text) for text in statements]))


def answered(number: int, statement: str) -> StepResult:
    return asyncio.run(world().start(task(number)).step(Action(text=statement)))


def test_the_task_names_the_table_and_its_columns_and_never_the_answer() -> None:
    assert task(3).instruction == (
        "Remove the plants of which no packet is left.\nTable seeds: seed_id INT, plant TEXT, packets INT"
    )
    assert task(3).metadata == {"family": "delete", "skills": ["delete", "where_single_condition"]}


def test_rows_count_in_any_order_at_two_decimals() -> None:
    assert graded(1, "SELECT owner, ROUND(SUM(length), 2) FROM boats GROUP BY owner ORDER BY owner DESC").success
    assert graded(1, "Here it is:\n```sql\nSELECT owner, SUM(length) + 0.001 FROM boats GROUP BY 1\n```").success
    outcome = graded(1, "SELECT owner, SUM(length) + 0.01 FROM boats WHERE owner <> 'Cy' GROUP BY owner")
    assert not outcome.success
    assert outcome.checks[0].detail == (
        "missing: ('Ada', 11.63), ('Bo', 9.25), ('Cy', 12.0); too many: ('Ada', 11.64), ('Bo', 9.26)"
    )
    assert not graded(2, "SELECT 2 UNION ALL SELECT 2").success


def test_a_change_is_graded_by_the_table_that_it_leaves() -> None:
    assert graded(4, "INSERT INTO hives (keeper, jars, hive_id) VALUES ('Kim', 5, 4)").success
    assert graded(3, "DELETE FROM seeds WHERE plant = 'kale'").success
    assert graded(3, "DELETE FROM seeds").checks[0].detail == "missing: (1, 'beet', 4), (3, 'leek', 6)"
    assert graded(6, "SELECT * FROM plays").checks[0].detail == "the task asks for a change, not rows"
    assert graded(6, "").checks[0].detail == "no statement ran"


def test_a_failed_statement_leaves_nothing_behind_and_the_next_one_may_be_right() -> None:
    assert answered(4, "SELECT wax FROM hives") == StepResult(
        observation="error: no such column: wax", error="no such column: wax"
    )
    assert graded(4, "INSERT INTO hives VALUES (4, 'Kim')", "INSERT INTO hives VALUES (4, 'Kim', 5)").success
    assert not graded(2, "SELECT boat_id FROM boats", "SELECT boat_id FROM boats WHERE moored = 'south'").success


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH '{}' AS other",
        "VACUUM INTO '{}'",
        "PRAGMA database_list",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('{}')",
        "CREATE TABLE other (x)",
        "DROP TABLE boats",
        "INSERT INTO sqlite_master VALUES ('table', 'x', 'x', 0, 'x')",
        "BEGIN",
        "SELECT 1; SELECT 2",
        "SELECT random()",
        "SELECT printf('%.*c', 2000000000, 'x')",
        "SELECT zeroblob(1000000000)",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT COUNT(*) FROM c",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c LIMIT 2000",
        "INSERT INTO boats WITH c(x) AS (SELECT zeroblob(900) UNION ALL SELECT x FROM c) SELECT x, 1, 1, 1 FROM c",
        "SELECT '" + "x" * 20_000 + "'",
        "SELECT '\0'",
        "SELECT '\ud800'",
    ],
)
def test_a_statement_that_reaches_out_or_never_ends_is_an_error(statement: str, tmp_path: Path) -> None:
    target = tmp_path / "other.db"
    result = answered(1, statement.replace("{}", str(target)))
    assert result.error
    assert not result.done
    assert not target.exists()


def test_a_table_that_grows_without_end_is_full_before_the_statement_has_run_long() -> None:
    rows = "WITH c(x) AS (SELECT zeroblob(9000) UNION ALL SELECT x FROM c) SELECT x, 1, 1, 1 FROM c"
    assert answered(1, f"INSERT INTO boats {rows}").error == "database or disk is full"


def test_splits_share_no_table_and_leave_out_what_sqlite_does_not_run() -> None:
    for seed in range(5):
        splits = {name: world(seed).tasks(name) for name in ("train", "dev", "test_normal", "test_challenge")}
        assert {name: len(tasks) for name, tasks in splits.items()} == {
            "train": 3, "dev": 1, "test_normal": 2, "test_challenge": 0,
        }  # fmt: skip
        assert {"db-1", "db-2"} <= {task.id for task in splits["train"]}
        assert "db-7" not in {task.id for tasks in splits.values() for task in tasks}


async def test_reflector_rules_learns_from_a_statement_that_was_mended() -> None:
    policy = ScriptedPolicy(
        [
            "SELECT TOP 9 boat_id FROM boats WHERE moored = 'south'",
            "SELECT boat_id FROM boats WHERE moored = 'south' LIMIT 9",
        ]
    )
    trajectory = await rollout(
        world(), policy, Attempt(id="tr-1", task=task(2), seed=0), RolloutConfig(world="W", max_steps=3)
    )
    assert trajectory.success
    reflection = await RulesReflector().reflect(trajectory, ())
    assert [insight.content for insight in reflection.insights] == [
        "Use `SELECT ... FROM boats WHERE moored = ... LIMIT 9`"
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "file: Input should be an object"),
        ("{", "file: Invalid JSON"),
        ('{"1": {"instruction": "x"}}', r"1.table_info: Field required"),
        (
            '{"1": {"instruction": "x", "table_info": "__import__(1)", "answer_info": "{", "skill_list": []}}',
            "1.table_info: Value error, malformed",
        ),
    ],
)
def test_a_file_of_another_format_is_one_sentence(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(content)
    with pytest.raises(BadInput, match=f"other.json: {says}.*expected a JSON object: id -> instruction") as refused:
        LifelongDb(LifelongDbConfig(data=str(tmp_path / "other.json")))
    assert "\n" not in str(refused.value)


def test_a_ragged_table_and_sizes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    entries = json.loads(FILE.read_text())
    entries["1"]["table_info"]["row_list"][0].append(1)
    (tmp_path / "ragged.json").write_text(json.dumps(entries))
    with pytest.raises(BadInput, match="a row of boats has not 4 values"):
        LifelongDb(LifelongDbConfig(data=str(tmp_path / "ragged.json")))
    with pytest.raises(BadInput, match="dev is 3 and 2 tasks are about a table of their own"):
        world(dev=3)
    with pytest.raises(BadInput, match=r"cannot read the file of lifelong_db '.*nowhere.json'"):
        make_environment(Config(environment={"name": "lifelong_db", "data": "nowhere.json"}))
    with pytest.raises(ConfigError, match="data: Field required"):
        make_environment(Config(environment={"name": "lifelong_db"}))


def test_the_gold_of_every_real_task_is_right_and_the_labels_are_spread() -> None:
    folder = os.environ.get("EVOLVE_TEST_DATA")
    if not folder or not (Path(folder) / "lifelong_db_train.json").exists():
        pytest.skip("EVOLVE_TEST_DATA names no folder with lifelong_db_train.json")
    real = LifelongDb(LifelongDbConfig(data=str(Path(folder) / "lifelong_db_train.json")))
    splits = {name: real.tasks(name) for name in ("train", "dev", "test_normal")}
    assert {name: len(tasks) for name, tasks in splits.items()} == {"train": 255, "dev": 40, "test_normal": 61}

    async def missed() -> list[str]:
        tasks = [task for tasks in splits.values() for task in tasks]
        return [task.id for task in tasks if not (await play(real, task, real.gold(task))).success]

    assert asyncio.run(missed()) == []
    shares = {
        name: Counter(skill for task in tasks for skill in task.metadata["skills"]) for name, tasks in splits.items()
    }
    assert len(shares["train"]) == 22
    apart = [abs(shares["train"][skill] / 255 - shares["test_normal"][skill] / 61) for skill in shares["train"]]
    assert max(apart) < 0.1
