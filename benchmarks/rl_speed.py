"""One arm of claim train_5 in a process of its own: GRPO on the office, by our loop or by an unmodified GRPOTrainer.

    python -m benchmarks.rl_speed ours|trl [--model FOLDER] [--steps 4] [--chains 8] [--rollouts 8] [--turns 6]

Both train a LoRA adapter in fp32, by one update of all rows a step, with the same tasks in the same order. The last
line printed is a JSON object: seconds of each step after the first, episodes of a step, tokens and turns of an episode,
and the peak memory of the process in MiB. `FORMER` makes the same of the source that the audit read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, cast

import numpy as np
import torch

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.episode import OfficeEpisode
from evolve.episode.prompting import opening_messages
from evolve.episode.rollout import RolloutConfig
from evolve.training.loop import Learning, Plan, World, draw, learn
from evolve.training.rollouts import Sampling
from memory.records import Task
from policies.local import LocalPolicy
from policies.local.loading import load_model, load_tokenizer, peft_package
from policies.local.local_policy import POCKET
from policies.rl.advantages.grpo import grpo
from policies.rl.filters.everything import Everything
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.trainer import Trainer

DEPLOYMENT, THREADS = 640, 2
MAX_TOKENS, RANK, RATE = 80, 16, 1e-4
"""Tokens of a turn, rank of the adapter and learning rate."""
CALLS = (
    "{%- for call in message['tool_calls'] or [] -%}{{- call['function']['name'] + (call['function']['arguments'] "
    "| tojson) -}}{%- endfor -%}"
)
"""A place for tool calls, without which TRL refuses a tokenizer."""
TEMPLATES = {
    "pocket": "{%- for message in messages -%}{%- if message['role'] == 'assistant' -%}{{- '<|assistant|>' + "
    "message['content'] -}}" + CALLS + "{{- '<|end|>' -}}{%- else -%}{{- '<|user|>' + message['content'] + '<|end|>' "
    "-}}{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}",
    "smollm2": "{%- for message in messages -%}{%- if loop.first and message['role'] != 'system' -%}{{- '<|im_start|>"
    "system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' -}}{%- endif -%}{{- "
    "'<|im_start|>' + (message['role'] if message['role'] in ['system', 'assistant'] else 'user') + '\n' + "
    "message['content'] -}}" + CALLS + "{{- '<|im_end|>\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}",
}
"""The models' own templates with that place."""
FORMER = """
import json, sys
from pathlib import Path
from benchmarks import rl_speed
given = json.loads(sys.argv.pop(1))
if given["model"]:
    model = Path(given["model"])
    policy = rl_speed.LocalPolicy
    policy.pocket = classmethod(lambda cls, threads: cls(model, threads=threads, profile="compact"))
    rl_speed.POCKET = model
rl_speed.STEPS = given["turns"]
rl_speed.main()
"""
"""Runs this module's arm `ours` as it was in the source that the audit read, which knew one model and six turns."""


@dataclass(frozen=True)
class Size:
    """What an arm does: tasks and rollouts of a step, turns of an episode."""

    model: Path
    steps: int
    chains: int
    rollouts: int
    turns: int


@dataclass
class Told:
    """What an arm measured."""

    episodes: int
    seconds: list[float] = field(default_factory=lambda: [])
    """Of each step after the first."""
    processor_s: list[float] = field(default_factory=lambda: [])
    """Seconds of all threads in the same steps: what another process on the machine does not add to."""
    turns: list[float] = field(default_factory=lambda: [])
    """Of an episode, a mean for each step."""
    tokens: list[float] = field(default_factory=lambda: [])
    """That the policy wrote in an episode, a mean for each step."""


def planned(size: Size) -> tuple[World, Plan]:
    """Return the office with one scenario a chain, and a plan of single tasks."""
    office = Office(OfficeConfig(deployment=DEPLOYMENT, train_tasks=3 * size.chains))
    sampling = Sampling(rollouts=size.rollouts, skills=False, seed=0)
    return World(office), Plan(iterations=size.steps, chains=size.chains, length=1, sampling=sampling)


def ours(size: Size) -> Told:
    """Train with our loop, as `evolve train grpo` does."""
    world, plan = planned(size)
    settings = OptimiserOptions(rank=RANK, learning_rate=RATE)
    trainer = Trainer(size.model, Ppo(dual_clip=None), settings)
    acting = RolloutConfig(world="", max_steps=size.turns, temperature=1.0, max_tokens=MAX_TOKENS)
    policy = LocalPolicy(size.model, threads=THREADS, profile="compact")
    parts = Learning(policy, trainer, grpo, Everything(), acting)
    told = Told(size.chains * size.rollouts)
    ends: list[tuple[float, float]] = []

    def report(figures: dict[str, float]) -> None:
        ends.append((time.perf_counter(), time.process_time()))
        told.turns.append(figures["steps"])
        told.tokens.append(figures["written"])

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_trained(world, parts, plan, Path(folder), report))
    told.seconds, told.processor_s = np.diff(ends, axis=0).T.tolist()
    return told


async def _trained(world: World, parts: Learning, plan: Plan, folder: Path, report: Any) -> None:
    await learn([world], parts, plan, folder, report)
    await parts.policy.aclose()


class Desk:
    """The office as TRL's environment: one tool, which runs the code that a reply is."""

    def __init__(self, office: Office, tasks: dict[str, Task]) -> None:
        self._office, self._tasks = office, tasks
        self._episode: OfficeEpisode | None = None
        self._turns = 0

    def reset(self, task_id: str, **_: Any) -> None:
        """Begin a task."""
        self._episode = self._office.start(self._tasks[task_id])
        self._turns = 0

    def run(self, code: str) -> str:
        """Run code in the office.

        Args:
            code: Python.
        """
        assert self._episode is not None
        self._turns += 1
        return self._episode.run(code).observation

    def _end(self, code: str) -> tuple[float, int]:
        """Run the last reply, which TRL does not hand to the tool; return the grade and the turns."""
        assert self._episode is not None
        self.run(code)
        outcome = asyncio.run(self._episode.grade())
        self._episode.discard()
        return float(outcome.success), self._turns


def theirs(size: Size) -> Told:
    """Train with TRL."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    world, plan = planned(size)
    drawn = [task for step in range(size.steps) for each in draw([world], plan, step) for task in each.chain.tasks]
    tasks, told = {task.id: task for task in drawn}, Told(size.chains * size.rollouts)
    ends: list[tuple[float, float]] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append((time.perf_counter(), time.process_time()))

    def graded(completions: Any, environments: Sequence[Desk], **_: Any) -> list[float]:
        both = zip(environments, completions, strict=True)
        # private, since TRL offers public methods as tools
        found = [desk._end(said[-1]["content"]) for desk, said in both]  # pyright: ignore[reportPrivateUsage]
        told.turns.append(mean(turns for _, turns in found))
        return [grade for grade, _ in found]

    with tempfile.TemporaryDirectory() as folder:
        made = GRPOTrainer(
            load_model(str(size.model), None),
            reward_funcs=cast("Any", graded),
            args=GRPOConfig(**settings(size, folder)),
            train_dataset=Dataset.from_list(
                [
                    {"prompt": [message.model_dump(include={"role", "content"}) for message in opening(task)]}
                    | {"task_id": task.id}
                    for task in drawn
                ]
            ),
            processing_class=tokenizer(size.model),
            callbacks=[Clock()],
            peft_config=peft_package().LoraConfig(
                r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM"
            ),
            environment_factory=lambda: Desk(cast("Any", world.environment), tasks),
        )
        made.train()
    told.tokens = [entry["completions/mean_length"] for entry in made.state.log_history if "loss" in entry]
    told.seconds, told.processor_s = np.diff(ends, axis=0).T.tolist()
    return told


def opening(task: Task) -> list[Any]:
    """Return the messages of a task before the first reply, as our loop sends them."""
    return opening_messages(task, "", "compact", "")


def settings(size: Size, folder: str) -> dict[str, Any]:
    """Return TRL's settings: what our arm does, and where it has a choice the faster one."""
    return {
        "output_dir": folder,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "max_steps": size.steps,
        "per_device_train_batch_size": size.rollouts,
        "gradient_accumulation_steps": size.chains,
        "num_generations": size.rollouts,
        "shuffle_dataset": False,
        "max_completion_length": 1500,
        "generation_kwargs": {"max_new_tokens": MAX_TOKENS},
        "max_tool_calling_iterations": size.turns - 1,
        "temperature": 1.0,
        "top_k": 0,
        "loss_type": "dapo",
        "beta": 0.0,
        "learning_rate": RATE,
        "lr_scheduler_type": "constant",
        "gradient_checkpointing": False,
    }


def tokenizer(model: Path) -> Any:
    """Return a model's tokenizer, reading a reply as a call of `run`; handing the task in ends the episode."""
    made = load_tokenizer(str(model))
    made.chat_template = TEMPLATES["smollm2" if "<|im_start|>" in made.chat_template else "pocket"]
    made.response_template = {"defaults": {"role": "assistant"}}  # TRL asks whether there is one, `read` does its work

    def read(ids: Sequence[int], prefix: Sequence[int] | None = None, tools: Any = None) -> dict[str, Any]:
        code = made.decode(ids, skip_special_tokens=True)
        said: dict[str, Any] = {"role": "assistant", "content": code}
        if "task.done" not in code:
            said["tool_calls"] = [{"type": "function", "function": {"name": "run", "arguments": {"code": code}}}]
        return said

    made.parse_response = read
    return made


def main() -> None:
    """Measure one arm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arm", choices=["ours", "trl"])
    parser.add_argument("--model", type=Path, default=POCKET)
    for name, default in (("steps", 4), ("chains", 8), ("rollouts", 8), ("turns", 6)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = vars(parser.parse_args())
    torch.set_num_threads(THREADS)
    told = (ours if given.pop("arm") == "ours" else theirs)(Size(**given))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**told.__dict__, "peak_mib": peak}))


if __name__ == "__main__":
    main()
