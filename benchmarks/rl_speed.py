"""One arm of claim rl_5 in a process of its own: GRPO on the office, by our loop or by an unmodified TRL GRPOTrainer.

    python -m benchmarks.rl_speed ours|trl [--steps 4] [--chains 8] [--rollouts 8]

Both train a LoRA adapter of the pocket model, in fp32, by one update of all rows a step, with the same tasks in the
same order. The last line printed is a JSON object: seconds of each step after the first, episodes of a step, tokens
and turns of an episode, and the peak memory of the process in MiB.
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
STEPS, MAX_TOKENS, RANK, RATE = 6, 80, 16, 1e-4
"""Turns of an episode, tokens of a turn, rank of the adapter and learning rate."""
TEMPLATE = (
    "{%- for message in messages -%}{%- if message['role'] == 'assistant' -%}{{- '<|assistant|>' + message['content'] "
    "-}}{%- for call in message['tool_calls'] or [] -%}{{- call['function']['name'] + (call['function']['arguments'] "
    "| tojson) -}}{%- endfor -%}{{- '<|end|>' -}}{%- else -%}{{- '<|user|>' + message['content'] + '<|end|>' -}}"
    "{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)
"""The pocket model's own template, and a place for tool calls, without which TRL refuses a tokenizer."""


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


def planned(steps: int, chains: int, rollouts: int) -> tuple[World, Plan]:
    """Return the office with one scenario a chain, and a plan of single tasks."""
    office = Office(OfficeConfig(deployment=DEPLOYMENT, train_tasks=3 * chains))
    sampling = Sampling(rollouts=rollouts, skills=False, seed=0)
    return World(office), Plan(iterations=steps, chains=chains, length=1, sampling=sampling)


def ours(steps: int, chains: int, rollouts: int) -> Told:
    """Train with our loop, as `evolve train grpo` does."""
    world, plan = planned(steps, chains, rollouts)
    settings = OptimiserOptions(rank=RANK, learning_rate=RATE)
    trainer = Trainer(POCKET, Ppo(dual_clip=None), settings)
    acting = RolloutConfig(world="", max_steps=STEPS, temperature=1.0, max_tokens=MAX_TOKENS)
    parts = Learning(LocalPolicy.pocket(threads=THREADS), trainer, grpo, Everything(), acting)
    told = Told(chains * rollouts)
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


def theirs(steps: int, chains: int, rollouts: int) -> Told:
    """Train with TRL."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    world, plan = planned(steps, chains, rollouts)
    drawn = [task for step in range(steps) for each in draw([world], plan, step) for task in each.chain.tasks]
    tasks, told, ends = {task.id: task for task in drawn}, Told(chains * rollouts), list[tuple[float, float]]()

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
            load_model(str(POCKET), None),
            reward_funcs=cast("Any", graded),
            args=GRPOConfig(**settings(steps, chains, rollouts, folder)),
            train_dataset=Dataset.from_list(
                [
                    {"prompt": [message.model_dump(include={"role", "content"}) for message in opening(task)]}
                    | {"task_id": task.id}
                    for task in drawn
                ]
            ),
            processing_class=tokenizer(),
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


def settings(steps: int, chains: int, rollouts: int, folder: str) -> dict[str, Any]:
    """Return TRL's settings: what our arm does, and where it has a choice the faster one."""
    return {
        "output_dir": folder,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "max_steps": steps,
        "per_device_train_batch_size": rollouts,
        "gradient_accumulation_steps": chains,
        "num_generations": rollouts,
        "shuffle_dataset": False,
        "max_completion_length": 1500,
        "generation_kwargs": {"max_new_tokens": MAX_TOKENS},
        "max_tool_calling_iterations": STEPS - 1,
        "temperature": 1.0,
        "top_k": 0,
        "loss_type": "dapo",
        "beta": 0.0,
        "learning_rate": RATE,
        "lr_scheduler_type": "constant",
        "gradient_checkpointing": False,
    }


def tokenizer() -> Any:
    """Return the pocket model's tokenizer, reading a reply as a call of `run`; handing the task in ends the episode."""
    made = load_tokenizer(str(POCKET))
    made.chat_template = TEMPLATE
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
    for name, default in (("steps", 4), ("chains", 8), ("rollouts", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(THREADS)
    told = (ours if given.arm == "ours" else theirs)(given.steps, given.chains, given.rollouts)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**told.__dict__, "peak_mib": peak}))


if __name__ == "__main__":
    main()
