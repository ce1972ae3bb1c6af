"""`evolve train` on a workspace: what its journal offers, and candidates made from it and from rollouts."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from evolve.config.file import load_config
from evolve.config.model import PolicySection
from evolve.generations.workspace_registry import in_process
from evolve.loop.assembly import open_store
from evolve.protocols import DEFAULT_MAX_STEPS
from evolve.training import ledger
from evolve.training.training_data import Offer, offer
from memory.records import Outcome, Trajectory
from policies.rl.trainer import ABOUT
from tests.evolve.command import invoke

pytestmark = pytest.mark.slow
SETTINGS = """\
[run]
tasks = 4
batch_size = 4

[policy]
name = "pocket"
max_tokens = 80

[environment]
name = "office"
deployment = 600
max_steps = 6

[memory]
index = "exact"

[train]
rank = 4
iterations = 1
chains = 1
rollouts = 2
epochs = 1

[train.sft]
passes = 1
"""


LEARNED = "echo=0.1"
"""Has something learned where the rollouts of a task all earn the same."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace that has done four tasks of its own."""
    path = tmp_path_factory.mktemp("trained")
    (path / "evolve.toml").write_text(SETTINGS)
    assert invoke(path, "run").exit_code == 0
    return path


def told(folder: Path, *arguments: str) -> Any:
    result = invoke(folder, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(("recipe", "batches"), [("sft", None), ("sage", 2)])
def test_the_rate_ends_with_the_updates_that_the_training_can_make(
    folder: Path, tmp_path: Path, recipe: str, batches: int | None
) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    every = ("train.filter='everything'", "train.advantages='tests.evolve.training.test_resume:praised'")
    keys = ("train.schedule='linear'", "train.sft.passes=2", "train.sft.batch=3", "train.iterations=2", *every)
    done = told(own, "train", recipe, *(part for key in keys for part in ("--set", key)))
    rates = [line["learning_rate"] for line in ledger.lines(Path(done["folder"]) / ledger.METRICS)]
    made = batches or 2 * -(-done["examples"] // 3)
    assert rates == pytest.approx([1e-4 * (made - at) / made for at in range(made)])
    refused = invoke(own, "train", recipe, "--set", "train.warmup_updates=99")
    assert refused.exit_code == 2
    assert "[train] got warmup_updates = 99 in a training of " in refused.stderr


@pytest.mark.parametrize(("limit", "steps"), [("", 6), ("max_steps = 6\n", DEFAULT_MAX_STEPS)])
def test_dr_grpo_divides_by_what_an_episode_says_at_most(folder: Path, tmp_path: Path, limit: str, steps: int) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    (own / "evolve.toml").write_text(SETTINGS.replace(limit, ""))
    done = told(own, "train", "sft", "--set", "train.loss={name = 'sft', aggregation = 'seq-mean-token-sum-norm'}")
    assert json.loads((Path(done["folder"]) / "adapter" / ABOUT).read_text())["max_tokens"] == 80 * steps


def test_the_plan_counts_what_may_be_trained_on_and_says_what_is_left_out(folder: Path) -> None:
    plan = told(folder, "train", "plan")
    assert plan["successes"] + plan["failures"] == 4
    assert sum(row["successes"] for row in plan["families"]) == plan["successes"]
    assert sum(plan["difficulty"].values()) == 4, "each task was done once"
    assert re.search(r"tasks: 0 too easy, 4 useful .* 0 too hard", invoke(folder, "train", "plan").stdout)
    assert any("no_memory" in reason for reason in plan["left_out"]), "the control is no training data"


def test_held_out_tasks_and_ungraded_ones_are_never_offered(folder: Path) -> None:
    with open_store(load_config(folder / "evolve.toml"), len, read_only=True) as store:
        main = [each for each in store.trajectories() if each.arm == "main"]
        held_out = [each.model_copy(update={"task": each.task.model_copy(update={"split": "dev"})}) for each in main]
        ungraded = [each.model_copy(update={"outcome": None}) for each in main]
        other = [each.model_copy(update={"policy": "elsewhere"}) for each in main]
        plain = [each.model_copy(update={"outcome": Outcome(success=True, reward=1.0)}) for each in main]
        assert offer(held_out, store.get_reply).left_out == {"split 'dev' is held out": 4}
        assert offer(ungraded, store.get_reply).left_out == {"not graded": 4}
        assert offer(other, store.get_reply, author=lambda _: "expert").left_out == {
            "done by another model (elsewhere)": 4
        }
        assert offer(plain, lambda key: None).left_out == {"token ids are not known": 4}
        assert len(offer(plain, store.get_reply).successes) == 4


def test_tasks_are_told_apart_by_how_often_they_succeed(folder: Path) -> None:
    with open_store(load_config(folder / "evolve.toml"), len, read_only=True) as store:
        (first, *_) = [each for each in store.trajectories() if each.arm == "main"]

    def done(task: str, successes: int, attempts: int) -> list[Trajectory]:
        own = first.model_copy(update={"task": first.task.model_copy(update={"id": task})})
        marks = [Outcome(success=at < successes, reward=0.0) for at in range(attempts)]
        return [own.model_copy(update={"outcome": mark}) for mark in marks]

    some = [*done("a", 4, 4), *done("b", 0, 2), *done("c", 1, 4), *done("d", 0, 1), *done("e", 9, 9)]
    kinds = Offer(
        successes=tuple(each for each in some if each.success),
        failures=tuple(each for each in some if not each.success),
    )
    assert kinds.difficulty() == {"too_easy": 2, "useful": 2, "too_hard": 1}
    assert Offer().difficulty() == {"too_easy": 0, "useful": 0, "too_hard": 0}


def test_a_training_begins_with_what_the_journal_says_and_shares_rollouts_by_it(folder: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    more = ("--set", "train.sampler=difficulty", "--set", "train.allocator=knapsack", "--set", "train.chains=2")
    everything = ("--set", "train.filter=everything")
    made = told(own, "train", "grpo", *more, *everything, "--set", "train.advantages='spo'")
    place = Path(made["folder"])
    known = json.loads((place / "known.json").read_text())
    assert len(known) == 4
    (line,) = ledger.lines(place / ledger.HISTORY)
    assert sum(attempts for _, attempts in line["outcomes"].values()) == 4
    wrong = invoke(folder, "train", "grpo", "--set", "train.sampler=difficult")
    assert "there are difficulty, spo, uniform" in wrong.stderr


def test_a_training_says_once_what_is_experimental_in_it(folder: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    chosen = ("advantages=salt", "loss=soft_adaptive", "filter=everything", LEARNED)
    made = invoke(own, "train", "grpo", "--json", *(part for each in chosen for part in ("--set", f"train.{each}")))
    assert made.exit_code == 0, made.output
    said = [line for line in made.stderr.splitlines() if "is experimental" in line]
    assert len(said) == 2
    assert "'salt' of advantages" in said[0]
    assert "'soft_adaptive' of losses" in said[1]
    plain = invoke(own, "train", "sft", "--json", "--set", "train.advantages=salt")
    assert plain.exit_code == 0, plain.output
    assert "experimental" not in plain.stderr, "what is not used is not told"


def test_a_training_is_traced_and_ends_in_the_same_weights(folder: Path, tmp_path: Path) -> None:
    everything = ("--set", "train.filter=everything", "--set", f"train.{LEARNED}")
    made: dict[str, Any] = {}
    for on in ("false", "true"):
        own = Path(shutil.copytree(folder, tmp_path / on))
        made[on] = told(own, "train", "sage", *everything, "--set", f"telemetry.enabled={on}")
    same = [(Path(each["folder"]) / "adapter" / "adapter_model.safetensors").read_bytes() for each in made.values()]
    assert same[0] == same[1]
    (trace,) = told(tmp_path / "true", "traces", "list")
    assert trace["run"] == made["true"]["name"]
    lines = invoke(tmp_path / "true", "traces", "show", trace["run"]).stdout.splitlines()
    kinds = [re.sub(r"^( *\S+).*", r"\1", line) for line in lines]
    assert kinds[0] == "invoke_workflow"
    assert [kind for kind in kinds if kind.startswith("  evolve")] == ["  evolve.iteration"]
    assert kinds.count("    invoke_agent") == 4
    assert kinds.count("    evolve.update") == 1
    assert kinds.count("      chat") == kinds.count("      execute_tool") > 4


def test_a_training_on_the_journal_is_traced_update_by_update(folder: Path, tmp_path: Path) -> None:
    made: dict[str, Any] = {}
    for on in ("false", "true"):
        own = Path(shutil.copytree(folder, tmp_path / on))
        made[on] = told(own, "train", "sft", "--set", "train.sft.passes=2", "--set", f"telemetry.enabled={on}")
    same = [(Path(each["folder"]) / "adapter" / "adapter_model.safetensors").read_bytes() for each in made.values()]
    assert same[0] == same[1]
    top, *below = told(tmp_path / "true", "traces", "show", made["true"]["name"])["spans"]
    assert top["name"] == "invoke_workflow office"
    assert (top["attributes"]["evolve.run.mode"], top["attributes"]["evolve.run.status"]) == ("train", "done")
    assert [span["name"] for span in below] == ["evolve.update"] * made["true"]["updates"]
    assert made["true"]["updates"] >= 2
    told_by = ledger.lines(Path(made["true"]["folder"]) / ledger.METRICS)
    assert [span["attributes"]["evolve.training.loss"] for span in below] == [each["loss"] for each in told_by]
    assert all(span["attributes"]["evolve.training.rows"] > 0 for span in below)


def test_trainings_make_candidates_and_nothing_live_and_are_made_once(folder: Path) -> None:
    first = told(folder, "train", "sft")
    again = told(folder, "train", "sft")
    assert (first["generation"], first["updates"]) == (again["generation"], again["updates"]) == ("policy-v1", 1)
    chained = told(folder, "train", "sage", "--set", "train.filter=everything", "--set", f"train.{LEARNED}")
    assert chained["generation"] == "policy-v2"
    states = {row["version"]: row["state"] for row in told(folder, "policy", "list")}
    assert states == {"policy-v0": "live", "policy-v1": "candidate", "policy-v2": "candidate"}
    rows = told(folder, "train", "status")
    assert [(row["done"], row["state"]) for row in rows] == [("1 epochs", "finished"), ("1 iterations", "finished")]
    assert rows[0]["training"] == first["name"]
    assert rows[0]["figures"]["loss"] > 0
    assert rows[1]["figures"]["steps"] > 0
    for row in rows:
        drawn = told(folder, "train", "curves", row["training"], "--out", "some/curves.png")
        assert drawn["figures"][-1] == row["figures"]
        assert (folder / "some" / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_where_no_group_differs_nothing_is_trained_and_there_is_no_candidate(folder: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    before = told(own, "policy", "list")
    result = invoke(own, "train", "sage")
    assert result.exit_code == 1
    said = " ".join(result.stderr.split())
    assert "no group differed: in all 4 episodes the rollouts of a task earned the same; nothing was trained" in said
    assert "raise train.rollouts" in said
    assert told(own, "policy", "list") == before
    limited = ("--set", "train.filter=overlong", "--set", "environment.max_steps=1")
    assert "train.filter = 'overlong' left none of 2 episodes" in invoke(own, "train", "grpo", *limited).stderr


def test_a_training_on_the_journal_says_on_how_many_examples(folder: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    result = invoke(own, "train", "sft")
    found = re.search(r"after 1 updates on (\d+) examples \((\d+) trained tokens\)", result.stdout)
    assert found, result.stdout
    assert int(found[2]) > int(found[1]) > 0
    assert result.stdout.rstrip().endswith("next: evolve policy gate policy-v1")
    listed = invoke(own, "policy", "list").stdout
    assert re.search(r"policy-v1 +candidate +policy-v0 +sft +not measured", listed), listed
    assert "{" not in listed


def test_a_batch_is_learned_from_as_often_as_epochs_and_minibatches_say(folder: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    keys = ("train.filter=everything", "train.epochs=2", "train.minibatches=2", f"train.{LEARNED}")
    evaluated = ("train.evaluate_every=1", "gate.held_out.tasks=2")
    done = told(own, "train", "grpo", *(word for key in (*keys, *evaluated) for word in ("--set", key)))
    assert done["updates"] == 4
    assert (done["best_iteration"], done["eval_success"]) in [(0, 0.0), (0, 0.5), (0, 1.0)]
    *_, row = told(own, "train", "status")
    assert row["figures"]["eval_success"] == done["eval_success"]


def test_a_training_that_collapsed_says_why_and_makes_no_candidate(folder: Path) -> None:
    before = told(folder, "policy", "list")
    tight = ("--set", "train.limits.patience=1", "--set", "train.limits.min_entropy=100")
    all_of_it = ("--set", "train.filter=everything")
    result = invoke(folder, "train", "grpo", *tight, *all_of_it)
    assert result.exit_code == 1
    assert "entropy of a token" in result.stderr
    assert told(folder, "policy", "list") == before
    assert any(row["state"].startswith("stopped: entropy of a token") for row in told(folder, "train", "status"))


def test_one_process_at_a_time_does_a_training(folder: Path) -> None:
    name = told(folder, "train", "sft")["name"]
    with FileLock(folder / ".evolve" / "policies" / "training" / name / ".lock"):
        result = invoke(folder, "train", "sft")
    assert result.exit_code == 1
    assert "is under way in another process" in result.stderr


def test_a_training_that_is_not_there_is_named_with_those_that_are(folder: Path) -> None:
    name = told(folder, "train", "sft")["name"]
    result = invoke(folder, "train", "curves", "nosuch")
    assert result.exit_code == 1
    assert name in result.stderr


def test_a_served_pocket_is_the_shipped_one_when_it_is_trained() -> None:
    assert in_process(PolicySection(name="served"), None).name == "pocket"


def test_a_training_that_changed_no_weight_of_the_live_policy_publishes_nothing(folder: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    for words in ("sft", "promote 1 --unmeasured"):
        assert invoke(own, *(["train", words] if words == "sft" else ["policy", *words.split()])).exit_code == 0
    before = told(own, "policy", "list")
    result = invoke(own, "train", "sft", "--set", "train.learning_rate=1e-60")
    assert result.exit_code == 1
    assert "the weights are still those of policy-v1" in result.stderr
    assert told(own, "policy", "list") == before


def test_a_training_goes_on_from_what_is_live_with_its_rank_and_from_no_other_adapter(
    folder: Path, tmp_path: Path
) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    other = invoke(own, "train", "sft", "--set", "policy.adapter=policy-v1")
    assert other.exit_code != 0
    assert "got policy.adapter = 'policy-v1', and a training goes on from" in other.stderr
    assert "the live generation, policy-v0" in other.stderr
    assert invoke(own, "train", "sft", "--set", "policy.adapter=policy-v0").exit_code == 0
    assert invoke(own, "policy", "promote", "1", "--unmeasured").exit_code == 0
    wider = invoke(own, "train", "sft", "--set", "train.rank=8")
    assert wider.exit_code != 0
    assert "policy-v1 is live, an adapter of rank 4, got train.rank = 8" in wider.stderr


def test_a_training_whose_groups_all_earned_the_same_publishes_nothing(folder: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    alike = ("--set", "train.filter=everything", "--set", "train.temperature=1e-3")
    before = told(own, "policy", "list")
    result = invoke(own, "train", "grpo", *alike)
    assert result.exit_code == 1
    assert "the weights are still those of policy-v0" in result.stderr
    assert told(own, "policy", "list") == before


def test_a_workspace_without_episodes_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text(SETTINGS)
    assert invoke(tmp_path, "init", "inner").exit_code == 0
    (tmp_path / "inner" / "evolve.toml").write_text(SETTINGS)
    result = invoke(tmp_path / "inner", "train", "sft")
    assert result.exit_code == 2
    assert "evolve train plan" in result.output + result.stderr


def test_a_member_that_is_not_there_is_named_with_those_that_are(folder: Path) -> None:
    result = invoke(folder, "train", "sage", "--set", "train.advantages=sagee")
    assert result.exit_code != 0
    assert "dr_grpo" in result.output + result.stderr


def test_a_backend_refuses_what_it_does_not_compute_before_anything_is_rolled_out(folder: Path) -> None:
    for backend, recipe, named in (("trl_sync", "sft", "Sft("), ("trl_async", "sage", "policy.name = 'pocket'")):
        result = invoke(folder, "train", recipe, "--set", f"train.backend={backend}")
        said = " ".join((result.output + result.stderr).split())
        assert result.exit_code == (1 if backend == "trl_sync" else 2)
        assert named in said
        assert ("torch" if backend == "trl_sync" else "'served'") in said


def test_all_weights_become_a_generation_that_answers_here_and_is_gone_on_from(folder: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    full = ("--set", "train.weights=full", "--set", "train.optimizer=adamw_8bit")
    first = told(own, "train", "sft", *full)["generation"]
    adapted = told(own, "train", "sft")["generation"]
    told(own, "policy", "promote", first, "--unmeasured")
    assert told(own, "policy", "show", first)["state"] == "live"
    rows = {row["what"]: row for row in told(own, "policy", "diff", first, adapted)}
    assert [rows["config.weights"][version] for version in (first, adapted)] == ["full", "lora"]
    told(own, "eval", "--limit", "1")
    with open_store(load_config(own / "evolve.toml"), len, read_only=True) as store:
        *_, last = store.trajectories()
    assert last.policy.startswith(f"pocket/{first}")
    again = told(own, "train", "sft", *full, "--set", "run.seed=1")["generation"]
    assert told(own, "policy", "show", again)["parent"] == first
    refused = invoke(own, "train", "sft", "--set", "run.seed=2")
    assert refused.exit_code == 2
    assert f"{first} is live, a whole model" in refused.stderr
    served = invoke(own, "train", "sage", *full, "--set", "policy.name=served")
    assert served.exit_code == 2
    assert "whose server takes adapters alone" in served.stderr
