"""Rows of episodes whose server told no token ids: the very prompts that were sent, in the template of the weights."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("gguf")

from benchmarks.real import models
from evolve.config.model import Config, PolicySection
from evolve.config.sections import ExemplarsSection
from evolve.config.training import GROUPS
from evolve.episode.arms import ATTEMPT, GOLD, MAIN
from evolve.episode.injection import Shown
from evolve.errors import ConfigError
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, run
from evolve.protocols import Action, Demonstration, StepResult
from evolve.training import ledger
from evolve.training.internalise import Internalising
from evolve.training.retokenized import Retelling, Saying
from evolve.training.supervised import success_examples
from evolve.training.training_data import offer
from evolve.training.training_session import offered, train_from_logs
from evolve.training.workspace_rollouts import methods_of
from memory.errors import BadInput
from memory.records import Event, Outcome, Step, Task, Trajectory
from policies.encoding import ChatEncoder
from policies.llama_server import LlamaOptions, llama_server
from policies.local.loading import computes_bfloat16, load_encoder
from policies.protocols import Message, Profile, Reply, SamplingParams
from policies.rl.rows import Turn
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import DoorEpisode, Doors, doors_config, password
from tests.policies.tiny_gguf import END, tiny_model

Sent = list[tuple[Message, ...]]


class Houses(Doors):
    """Doors of houses that have numbers, and none held out: no exemplar gives away another task."""

    def tasks(self, split: str) -> Sequence[Task]:
        found = super().tasks(split) if split == "train" else ()
        numbered = (
            each.model_copy(update={"instruction": f"{each.instruction} It is in house {each.id}."}) for each in found
        )
        return tuple(numbered)

    steps: tuple[str, ...] = ()
    """What is done before the door is opened."""

    def gold(self, task: Task) -> Sequence[Action]:
        color = task.instruction.split()[2]
        return [Action(text=text) for text in (*self.steps, f"open {color} {password(color)}")]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, _ = tiny_model("llama", tmp_path_factory.mktemp("weights") / "tiny")
    return folder


@pytest.fixture(scope="module")
def encoder(weights: Path) -> ChatEncoder:
    return load_encoder(str(weights))


def config_of(root: Path, weights: Path | str, **train: object) -> Config:
    """A workspace that keeps what it solved as exemplars, and tries again what it did not."""
    return doors_config(
        root,
        run={"tasks": 8, "batch_size": 2, "attempts": 2, "concurrency": 2},
        policy={"name": "openai", "model": "tiny", "weights": str(weights)},
        playbook={"reflector": "none", "curator": "direct"},
        exemplars={"enabled": True},
        gate={"names": ["static"]},
        controls={"no_memory": 0.5},
        train={"sft": {"batch": 2, "passes": 1}, "rank": 2, "pack_tokens": 512} | train,
    )


class Polite(DoorEpisode):
    """A door that may be looked at, and forgives a mistake."""

    async def step(self, action: Action) -> StepResult:
        if action.text == "look":
            return StepResult(observation="A door.")
        return await super().step(action)

    async def grade(self) -> Outcome:
        return Outcome(success=self.opened, reward=float(self.opened))


class Forgiving(Houses):
    """Its own solutions have several steps, and one of them is a mistake."""

    steps = ("look", "knock", "look")

    def start(self, task: Task, seed: int = 0) -> DoorEpisode:
        return Polite(task.instruction.split()[2])


def doors_run(
    config: Config,
    *,
    able: bool = True,
    name: str = "tiny",
    profile: Profile = "full",
    world: Doors | None = None,
) -> Sent:
    """Work through the doors with an agent that knows a word where an earlier turn has it, or when it guesses."""
    sent: Sent = []

    def answer(messages: Sequence[Message], params: SamplingParams) -> str:
        sent.append(tuple(messages))
        color = re.findall(r"Open the (\w+) door", " ".join(each.content for each in messages))[-1]
        knows = any(password(color) in each.content for each in messages) or params.temperature > 0
        done = f"open {color}{f' {password(color)}' if knows and able else ''}"
        return f"```python\n{done}\n```" if profile == "full" else done

    policy = ScriptedPolicy(answer, name=name, profile=profile, version=name)
    run(config, parts=Parts(policy=policy, environment=world or Houses()))
    return sent


def test_every_prompt_is_told_again_as_it_was_sent(tmp_path: Path, weights: Path, encoder: ChatEncoder) -> None:
    config = config_of(tmp_path, weights)
    prompts = {encoder.encode(messages) for messages in doors_run(config)}
    with open_store(config, len, read_only=True) as store:
        saying = Saying(encoder)
        read = Retelling(saying, store, config.root)
        chosen = offer(store.trajectories(), store.get_reply, read=saying).successes
        told = {each.id: _known(read, each, store.get_reply) for each in chosen}
        examples = success_examples(offer(store.trajectories(), store.get_reply, read=saying), store.get_reply, [read])
        other = chosen[0].model_copy(update={"seed": chosen[0].seed + 1})
        assert read(other, store.get_reply) is None, "a prompt that is not proved is not told"
    assert {each.arm for each in chosen} == {MAIN, ATTEMPT}
    assert len(examples.rows) == len(chosen)
    for turns in told.values():
        assert {turn.prompt_ids for turn in turns} <= prompts
        assert all(turn.token_ids[-1] == END for turn in turns), "a turn ends as the template ends one"
    shown = [turns for each in chosen if each.injected for turns in (told[each.id],)]
    assert shown
    assert all(encoder.decode(turns[0].prompt_ids).count("Open the") > 1 for turns in shown), "exemplars are there"


def _known(read: Retelling, trajectory: Trajectory, replies: object) -> tuple[Turn, ...]:
    turns = read(trajectory, replies)
    assert turns is not None
    return turns


@pytest.mark.slow
def test_successes_and_attempts_are_trained_on_with_and_without_what_was_shown(tmp_path: Path, weights: Path) -> None:
    config = config_of(tmp_path, weights)
    doors_run(with_policy(config, name="openai", model="tiny"))  # whose weights are named when they are trained
    found = offered(config)
    assert found.left_out == {"arm 'no_memory' is no work of the run": 3}
    made = train_from_logs(config, "sft")
    assert (made.generation, made.examples) == ("policy-v1", 2 * len(found.successes))


@pytest.mark.slow
@pytest.mark.skipif(not computes_bfloat16(), reason="bf16 takes this processor 35 times as long as fp32")
def test_in_bfloat16_it_is_another_adapter(tmp_path: Path, weights: Path) -> None:
    doors_run(config_of(tmp_path, weights))
    made = [train_from_logs(config_of(tmp_path, weights, dtype=dtype), "sft") for dtype in ("float32", "bfloat16")]
    assert [each.generation for each in made] == ["policy-v1", "policy-v2"]


def with_policy(config: Config, **policy: object) -> Config:
    """The same workspace with another policy."""
    return config.model_copy(update={"policy": PolicySection.model_validate(policy)})


def learning_of(config: Config, weights: Path, **sft: object) -> Config:
    """The same workspace with weights in process, to be trained on what a teacher solved."""
    train = config.train.model_copy(update={"sft": config.train.sft.model_copy(update={"experts": True} | sft)})
    own = with_policy(config, name="local", model=str(weights))
    return own.model_copy(update={"train": train})


def test_what_a_teacher_solved_is_offered_apart_and_told_in_the_template_of_the_weights(
    tmp_path: Path, weights: Path, encoder: ChatEncoder
) -> None:
    config = config_of(tmp_path, weights)
    prompts = {encoder.encode(each) for each in doors_run(with_policy(config, name="openai", model="big"), name="big")}
    doors_run(config)
    mixed = config.model_copy(update={"train": learning_of(config, weights, context="kept").train})
    found, plain = offered(mixed), offered(config)
    assert {each.policy for each in found.experts} == {"big"}
    assert {each.policy for each in (*found.successes, *found.failures)} == {"tiny"}
    assert plain.experts == ()
    assert plain.left_out.pop("done by another model (big)") > len(found.experts) > 0
    assert not any(each.policy == "big" for group in found.groups.values() for each in group)
    with open_store(mixed, len, read_only=True) as store:
        read = Retelling(Saying(encoder), store, mixed.root)
        examples = success_examples(found, store.get_reply, [read])
    assert {row.trajectory_id for row in examples.rows if row.expert} == {each.id for each in found.experts}
    assert {row.trajectory_id for row in examples.rows if not row.expert} == {each.id for each in found.successes}
    assert {row.prompt_ids for row in examples.rows if row.expert} <= prompts


@pytest.mark.slow
def test_a_teachers_successes_alone_start_a_fine_tuning_and_are_counted(tmp_path: Path, weights: Path) -> None:
    config = config_of(tmp_path, weights)
    doors_run(with_policy(config, name="openai", model="big"), name="big")
    own = learning_of(config, weights, context="kept")
    with pytest.raises(BadInput, match="no successful train episodes"):
        train_from_logs(with_policy(config, name="local", model=str(weights)), "sft")
    with pytest.raises(BadInput, match="no train tasks with both"):
        train_from_logs(own, GROUPS, groups=True)
    made = train_from_logs(own, "sft")
    assert made.experts == made.examples == len(offered(own).experts) > 0
    told = ledger.lines(made.folder / ledger.METRICS)
    assert sum(line["experts"] for line in told) == made.experts
    assert all(line["unscored"] == line["tokens"] for line in told)
    assert {line["ratio_max"] for line in told} == {1.0}
    assert made.generation == "policy-v1"


@pytest.mark.parametrize("name", ["openai", "local"])
def test_the_worlds_own_solutions_are_offered_as_an_experts_under_a_prompt_with_nothing_to_show(
    tmp_path: Path, weights: Path, encoder: ChatEncoder, name: str
) -> None:
    config = config_of(tmp_path, weights)
    gold = config.exemplars.model_copy(update={"gold": True})
    config = with_policy(config.model_copy(update={"exemplars": gold}), name="openai", model="tiny")
    prompts = {encoder.encode(messages) for messages in doors_run(config, able=False)}
    weighed = {"openai": {"model": "tiny", "weights": str(weights)}, "local": {"model": str(weights)}}[name]
    own = with_policy(learning_of(config, weights), name=name, **weighed)
    found = offered(own)
    assert {each.arm for each in found.experts} == {GOLD}
    assert not found.successes
    without = own.model_copy(update={"train": config.train})
    assert offered(without).left_out["done by the world itself"] == len(found.experts) == 8
    with open_store(own, len, read_only=True) as store:
        retelling = Retelling(Saying(encoder), store, own.root)
        rows = success_examples(found, store.get_reply, [retelling]).rows
        bare = {each.task.id for each in store.trajectories(arm=MAIN) if not each.injected}
    assert all(row.expert for row in rows)
    assert bare
    assert all(row.prompt_ids in prompts for row in rows if row.task_id in bare)
    said = {encoder.decode(row.completion_ids) for row in rows}
    assert all("open " in each and each.count("```") == 2 for each in said)


def test_without_grades_it_learns_from_what_was_judged_to_be_right(tmp_path: Path, weights: Path) -> None:
    config = config_of(tmp_path, weights)
    doors_run(config)
    free = config.model_copy(update={"run": config.run.model_copy(update={"label_free": True, "judge": "policy"})})
    graded, found = offered(config), offered(free)
    assert graded.successes
    assert (found.successes, found.failures) == ((), ())
    assert found.left_out["not graded"] == len((*graded.successes, *graded.failures))
    with open_store(config) as store:
        every = store.trajectories(arm=MAIN)
        wrong, right = (next(each for each in every if each.success is solved) for solved in (False, True))
        for episode, said in ((wrong, True), (right, False)):  # a judge may err, and no grade mends it
            store.append(Event(type="judgement", run_id="1", subject=episode.id, data={"success": said, "reason": ""}))
    found = offered(free)
    assert [[each.id for each in some] for some in (found.successes, found.failures)] == [[wrong.id], [right.id]]
    with pytest.raises(ConfigError, match="a training by rollouts is paid by grades"):
        methods_of(with_policy(free, name="local", model=str(weights)))


def golden(config: Config, weights: Path, profile: Profile = "full", **policy: Any) -> tuple[Config, Config]:
    """Return the settings of a run that keeps the world's own solutions, and of a training on them."""
    kept = config.exemplars.model_copy(update={"gold": True, "enabled": profile == "full"})
    name = "openai" if profile == "full" else "pocket"
    config = with_policy(config.model_copy(update={"exemplars": kept}), name=name, model="tiny", **policy)
    return config, with_policy(learning_of(config, weights), name="openai", model="tiny", weights=str(weights))


@pytest.mark.parametrize(("context", "advantages"), [("kept", [1, 0, 1, 1]), ("dropped", [1, 1, 1])])
def test_only_the_mistake_of_a_solution_is_not_learned(
    tmp_path: Path, weights: Path, context: str, advantages: list[int]
) -> None:
    config, own = golden(config_of(tmp_path, weights), weights)
    doors_run(config, able=False, world=Forgiving())
    found = offered(own)
    assert len(found.experts) == 8
    with open_store(own, len, read_only=True) as store:
        saying = Saying(load_encoder(str(weights)))
        whole = Retelling(saying, store, own.root)
        told_again = Internalising(saying.encoder, "full", "", lambda episode: Shown(), saying)
        examples = success_examples(found, store.get_reply, [whole if context == "kept" else told_again])
    assert [list(map(int, each)) for each in examples.advantages] == [advantages] * 8


class Showing(Houses):
    """Its agent reads a worked example before the task."""

    def demonstration(self) -> Demonstration:
        return Demonstration(instruction="Open the pink door.", reply="```python\nopen pink please\n```")


def test_what_was_done_with_nothing_shown_is_told_alike_with_and_without_it(tmp_path: Path, weights: Path) -> None:
    config = config_of(tmp_path, weights, sft={"context": "both", "batch": 2, "passes": 1})
    world = config.environment.model_copy(update={"name": f"{__name__}:Showing"})
    knowing = config.policy.model_copy(update={"temperature": 1.0})
    config = config.model_copy(update={"environment": world, "policy": knowing, "exemplars": ExemplarsSection()})
    sent = doors_run(config, world=Showing())
    assert all("open pink please" in messages[2].content for messages in sent)
    successes = [each for each in offered(config).successes if each.arm != ATTEMPT]
    assert len(successes) == len(offered(config).successes) > 0, "a further attempt is told what to avoid"
    assert train_from_logs(config, "sft").examples == len(successes)


def test_a_task_has_one_solution_of_the_worlds_however_often_it_was_tried(tmp_path: Path, weights: Path) -> None:
    config, own = golden(config_of(tmp_path, weights), weights)
    for _ in range(2):
        doors_run(config, able=False)
    found = offered(own)
    assert (len(found.experts), found.left_out["the world's own solution once more"]) == (8, 8)


def test_a_solution_that_cannot_be_read_hides_no_later_one(tmp_path: Path, weights: Path) -> None:
    config, own = golden(config_of(tmp_path, weights), weights)
    for _ in range(2):
        doors_run(config, able=False)
    with open_store(own, len, read_only=True) as store:
        solutions = list(store.trajectories(arm=GOLD))
        first = solutions[0].run_id
        turn = Turn(step=0, prompt_ids=(1,), token_ids=(2,), logprobs=(0.0,), policy_version="v")
        found = offer(solutions, store.get_reply, lambda each, _: () if each.run_id == first else (turn,), experts=True)
    assert {each.run_id for each in found.experts} == {each.run_id for each in solutions} - {first}
    assert (len(found.experts), found.left_out) == (8, {"token ids are not known": 8})


def test_a_solution_is_not_told_where_no_agent_would_have_read_its_prompts(tmp_path: Path, weights: Path) -> None:
    config, own = golden(config_of(tmp_path / "planned", weights), weights, teacher={"plan_review": True})
    doors_run(config, able=False)
    short = {"environment": config.environment.model_copy(update={"history_chars": 1000})}
    cut, cut_own = golden(config_of(tmp_path / "cut", weights).model_copy(update=short), weights)
    doors_run(cut, able=False, world=Wordy())
    for each in (own, cut_own):
        with open_store(each, len, read_only=True) as store:
            read = Retelling(Saying(load_encoder(str(weights))), store, each.root)
            solutions = store.trajectories(arm=GOLD)
            assert len(solutions) == 8
            assert all(read(episode, store.get_reply) is None for episode in solutions)


class Wordy(Forgiving):
    """Its doors have long descriptions."""

    steps = ("look", "look", "look")

    def start(self, task: Task, seed: int = 0) -> DoorEpisode:
        episode = Polite(task.instruction.split()[2])
        looked = episode.step

        async def step(action: Action) -> StepResult:
            found = await looked(action)
            return found.model_copy(update={"observation": 60 * "A door. "}) if action.text == "look" else found

        episode.step = step  # type: ignore[method-assign]
        return episode


def test_a_solution_is_written_as_the_profile_of_the_run_has_it(tmp_path: Path, weights: Path) -> None:
    config, _ = golden(config_of(tmp_path, weights), weights, "compact")
    doors_run(config, able=False, name="pocket", profile="compact")
    with open_store(config, len, read_only=True) as store:
        solutions = store.trajectories(arm=GOLD)
    assert solutions
    assert not any("```" in step.reply + step.action for episode in solutions for step in episode.steps)


def test_what_was_said_under_prompts_of_another_profile_teaches_nothing(tmp_path: Path, weights: Path) -> None:
    config = config_of(tmp_path, weights)
    without = config.exemplars.model_copy(update={"enabled": False})  # compact prompts hold no earlier turns
    compact = with_policy(config, name="pocket").model_copy(update={"exemplars": without})
    doors_run(compact, name="pocket", profile="compact")
    found = offered(learning_of(config, weights))
    assert found.experts == ()
    assert "done by another model (pocket)" in found.left_out


def test_without_a_success_or_without_weights_one_sentence_says_what_to_do(tmp_path: Path, weights: Path) -> None:
    config = config_of(tmp_path, weights)
    doors_run(config, able=False)
    with pytest.raises(BadInput, match=r"holds no successful train episodes .*with run\.attempts above 1 what failed"):
        train_from_logs(config, "sft")
    with pytest.raises(ConfigError, match=r"or .openai. with policy\.weights, the folder of the weights"):
        train_from_logs(config_of(tmp_path, ""), "sft")


def test_what_was_cut_off_is_not_closed(encoder: ChatEncoder) -> None:
    for reason, end in (("stop", (END,)), ("length", ())):
        kept = {"reply": Reply(text="open", finish_reason=reason).model_dump()}
        step = Step(index=0, action="open", reply_key="key")
        turn = Saying(encoder).turn(Trajectory(task=Task(id="1", instruction="")), step, {"key": kept}.get, ())
        assert turn is not None
        assert turn.token_ids == (*encoder.tokens("open"), *end)
        assert turn.truncated is (reason == "length")


@pytest.mark.served
@pytest.mark.skipif(not os.environ.get("EVOLVE_MODELS"), reason="EVOLVE_MODELS names no real models")
@pytest.mark.parametrize("name", ["smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct"])
def test_the_folder_of_a_real_model_gives_the_ids_that_its_server_makes(name: str, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    task = [("user", "What is 2 + 3?\n\n```python\nprint(1)\n```")]
    earlier = [("system", "# How to act\nWrite Python."), *task, ("assistant", "```python\nprint(2 + 3)\n```")]
    encoder = load_encoder(str(models.folder(name)))
    options = LlamaOptions(context=512, slots=1, threads=1)
    with llama_server(models.gguf(name), log=tmp_path / "log", name=name, options=options) as url:
        for turns in (task, [*earlier, ("user", "5\n"), *task]):
            messages = [Message(role=role, content=content) for role, content in turns]
            sent = {"messages": [{"role": each.role, "content": each.content} for each in messages]}
            prompt = asked(url, "apply-template", sent)["prompt"]
            ids = asked(url, "tokenize", {"content": prompt, "add_special": True, "parse_special": True})["tokens"]
            assert list(encoder.encode(messages)) == ids
        (end,) = encoder.closing()
        assert asked(url, "tokenize", {"content": "<|im_end|>", "parse_special": True})["tokens"] == [end]


def asked(url: str, route: str, body: dict[str, object]) -> dict[str, Any]:
    return httpx.post(f"{url.removesuffix('v1')}{route}", json=body, trust_env=False, timeout=120).json()
