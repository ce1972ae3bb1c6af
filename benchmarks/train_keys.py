"""The keys of `[train]` beside those that name members: each with another value, and a world where most can act.

The members are those of `benchmarks.slot_members`. A key is compared with the same training without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.parity_world import PLAYED, Parity
from evolve.config.model import Config, ModelSection
from evolve.config.tables import Member, Section, table_of
from evolve.config.training import TrainSection
from evolve.loop.assembly import open_store
from evolve.loop.session import run
from memory.records import DeltaOp, Op, Status, Task
from policies.scripted import ScriptedPolicy

VALUES: dict[str, Any] = {
    "epochs": 2,
    "minibatches": 2,
    "dtype": "bfloat16",
    "weights": "full",
    "rank": 4,
    "optimizer": "adamw_8bit",
    "learning_rate": 3e-4,
    "schedule": "linear",
    "warmup_updates": 1,
    "max_grad_norm": 1e-3,
    "pack_tokens": 64,
    "gradient_checkpointing": True,
    "reference_kl": True,
    "echo": 0.1,
    "backend": "trl_sync",
    "retries": "rules",
    "branching.branches": 1,
    "iterations": 3,
    "chains": 2,
    "length": 2,
    "by": "similarity",
    "refill": 1,
    "rollouts": 3,
    "skills": True,
    "same_name": "replaced",
    "require_code": True,
    "temperature": 1.0,
    "evaluate_every": 1,
    "replay": False,
    "sft.passes": 2,
    "sft.batch": 4,
    "sft.context": "kept",
    "sft.experts": True,
    "preference.beta": 0.5,
    "preference.gamma": 2.0,
    "limits.patience": 1,
    "limits.max_growth": 1.001,
    "limits.min_valid": 1.0,
    "limits.min_entropy": 100.0,
    "limits.max_entropy": 1e-3,
    "limits.max_kl": 1e-9,
    "limits.min_skill_use": 1.0,
    "partial.oversampling": 1.5,
    "partial.staleness": 2,
    "partial.off_policy": "masked",
    "reuse.share": 0.5,
    "reuse.buffer": 1,
    "candidates": 1,  # last: what it admits is shown from then on
}
"""Key -> a value that is not what the training without it has."""
AT_ONCE = {"limits.patience": 1}
NEEDS: dict[str, dict[str, Any]] = {
    "optimizer": {"rank": 16},  # fewer than 4,096 numbers keep moments of 32 bits
    "retries": {"advantages": "r3l", "loss": "sft"},
    "by": {"length": 2},
    "same_name": {"by": "similarity", "length": 3, "skills": True},
    "limits.patience": {"limits.min_entropy": 100.0},
    "limits.max_growth": AT_ONCE,
    "limits.min_valid": AT_ONCE,
    "limits.min_entropy": AT_ONCE,
    "limits.max_entropy": AT_ONCE,
    "limits.max_kl": AT_ONCE | {"minibatches": 2},
    "limits.min_skill_use": AT_ONCE | {"length": 2, "skills": True},
    "partial.staleness": {"partial.oversampling": 1.5},
    "partial.off_policy": {"partial.oversampling": 1.5},
    "reuse.buffer": {"reuse.share": 0.5},
}
"""Key -> what both trainings set beside it."""
RECIPES = {"sft": "sft", "preference.beta": "dpo", "preference.gamma": "simpo"}
"""Key, or its table -> the recipe that looks at it; the others are tried with rollouts."""
CHANCE = ("partial.staleness", "partial.off_policy")
"""Keys of which nobody can tell whether they acted: which group is done first depends on time."""
LEFT_OUT = {
    "tracker": "wants another package",
    "sft.reflections": "wants reflections that a gate measured",
    "llama_cpp.gguf": "wants a model in GGUF",
    "llama_cpp.slots": "wants a model in GGUF",
    "llama_cpp.context": "wants a model in GGUF",
    "tinker.base_model": "wants a service that trains",
}
"""Key -> why it is not set here; each has tests of its own."""
TRAIN = """\
[train]
rank = 2
iterations = 2
chains = 3
rollouts = 4
length = 1
skills = false
temperature = 1.5
"""
SETTINGS = f"""\
{PLAYED.replace("parity_world:Parity", "train_keys:Held").replace("enabled = false", 'reflector = "none"')}
[run]
tasks = 6
attempts = 2

[controls]
no_memory = 0.0

[gate]
held_out = {{ tasks = 2 }}

{TRAIN}"""


class Held(Parity):
    """The world of letters with tasks that are held out."""

    def tasks(self, split: str) -> Sequence[Task]:
        """Return twelve train tasks, of which those of a scenario are unlike in wording, or two of the split `dev`."""
        if split != "dev":
            own = enumerate(super().tasks(split))
            return [each.model_copy(update={"scenario": f"s{at % 6}"}) for at, each in own]
        return [Task(id=f"dev-{at}", instruction=f"Tell about {at}.", scenario=f"d{at}", split=split) for at in "ab"]


def expert(section: ModelSection) -> ScriptedPolicy:
    """Return another model, which solves every task."""
    return ScriptedPolicy(lambda messages, params: "aa", name="expert", profile="compact")


def keys(section: type[Section] = TrainSection, table: str = "") -> Iterator[str]:
    """Yield every key of `[train]` that is no name of a member."""
    for name in section.model_fields:
        inner = table_of(section, name)
        if inner is not None:
            yield from keys(inner, f"{table}{name}.")  # pyright: ignore[reportArgumentType] - tables of a section
        elif not issubclass(section, Member) or name != "name":
            yield table + name


def recipe_of(key: str) -> str:
    """Return the recipe that looks at a key."""
    return RECIPES.get(key) or RECIPES.get(key.partition(".")[0], "run")


def without(key: str) -> dict[str, Any]:
    """Return the settings of a training that a key is compared with."""
    return {f"train.{name}": value for name, value in NEEDS.get(key, {}).items()}


def prepare(config: Config) -> None:
    """Give a workspace a rule, a text in quarantine, and a journal: of the policy in this world and another, and of
    another model."""
    with open_store(config, len) as store:
        texts = {"about 3: say it twice": Status.ACTIVE, "about 5: say nothing": Status.CANDIDATE}
        ops = [DeltaOp(op=Op.ADD, payload={"content": text}, status=status) for text, status in texts.items()]
        store.commit(config.memory.namespace, ops, actor="benchmark")
    elsewhere = config.environment.model_copy(update={"name": "benchmarks.parity_world:Parity"})
    other = config.policy.model_copy(update={"name": "benchmarks.train_keys:expert"})
    for own in ({}, {"environment": elsewhere}, {"policy": other}):
        run(config.model_copy(update=own))
