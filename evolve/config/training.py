"""`[train]` of the configuration, and the recipes that name a method's values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from evolve.config.tables import Member, Section, as_table
from evolve.errors import ConfigError
from memory.errors import BadInput
from policies.rl.optimising import Optimising

MEMBERS = {
    "advantages": "advantages",
    "loss": "losses",
    "filter": "filters",
    "correction": "corrections",
    "transform": "transforms",
    "branching": "branching",
    "sampler": "samplers",
    "allocator": "allocators",
}
"""Key of `[train]` that names a member -> its slot."""


class PreferenceTable(Section):
    """How the recipes `dpo` and `simpo` compare what succeeded with what failed (`policies.rl.preference`)."""

    beta: float | None = Field(default=None, gt=0)
    """How sharply: the higher, the less the weights have to move. Not set: 0.1 for `dpo`, 2.0 for `simpo`."""
    gamma: float = Field(default=1.0, ge=0)
    """`simpo`: by how much the right one has to be ahead."""


class SftTable(Section):
    """How the recipes `sft` and `internalise` learn from the journal; `dpo` and `simpo` take its passes and batch."""

    passes: int = Field(default=3, ge=1)
    """Passes over the journal's rows, or pairs."""
    batch: int = Field(default=32, ge=1)
    """Rows of an update, or pairs."""
    context: Literal["kept", "dropped", "both"] = "both"
    """What successes are learned under: the prompts as they were, prompts without what was learned (context
    distillation: the weights take in the playbook), or each once."""
    experts: bool = False
    """Also learn what other models solved in this workspace (SAGE's warm-up), and the world's own solutions that
    `exemplars.gold` keeps: tokenised anew for these weights."""
    reflections: bool = False
    """Also learn the reflections from which came what gates measured to help."""


class TrainingLimits(Section):
    """What is still a training by rollouts (`evolve.training.guards`)."""

    patience: int = Field(default=5, ge=1)
    """Iterations on end beyond one of the limits below that stop training; the candidate is then made of the last
    weights within them. What the limits call the start is the mean of the first so many iterations."""
    max_growth: float = Field(default=5.0, gt=1, allow_inf_nan=True)
    """Most tokens written in an episode, in multiples of those at the start. `inf` = no limit."""
    min_valid: float = Field(default=0.5, ge=0, le=1)
    """Least share of actions without an error, as a share of that at the start. 0 = no limit."""
    min_entropy: float = Field(default=1e-4, ge=0)
    """Least mean entropy of a trained token, in nats: below it nothing is explored any more. 0 = no limit."""
    max_entropy: float = Field(default=3.0, gt=0, allow_inf_nan=True)
    """Largest of the same: 3 nats are a choice among twenty tokens, each time. `inf` = no limit."""
    max_kl: float = Field(default=0.25, gt=0, allow_inf_nan=True)
    """Largest mean divergence of the trained policy from the one that sampled, in nats a token. `inf` = no limit."""
    min_skill_use: float = Field(default=0.1, ge=0, le=1)
    """Least share of tasks that use a skill made earlier in their chain, as a share of that at the start. 0 = no
    limit."""


class PartialRollouts(Section):
    """How far an iteration runs ahead (`evolve.training.partial`)."""

    oversampling: float = Field(default=1.0, ge=1, le=2)
    """Groups begun for each one that a batch takes: those that are done last are cut off, and go on in the next
    iteration under its weights (APRIL, partial rollouts). 1 = a batch waits for all."""
    staleness: int = Field(default=1, ge=1)
    """Iterations that an unfinished group is put off at most; then its batch waits for it."""
    off_policy: Literal["kept", "masked"] = "kept"
    """What becomes of turns that older weights sampled: trained on (`correction = "tis"` weighs them), or not."""

    def size(self, chains: int, *, last: bool) -> int:
        """Return how many groups an iteration begins or goes on with, to train on `chains`."""
        return chains if last else math.ceil(self.oversampling * chains - 1e-9)


class RolloutReuse(Section):
    """Which part of a batch is not rolled out anew (`evolve.training.reuse`)."""

    share: float = Field(default=0.0, ge=0, lt=1)
    """Share of a batch's `chains` that are groups of earlier iterations, drawn from a buffer (rollout replay). As long
    as that holds fewer, more is rolled out. Takes neither candidates, retries, branches nor oversampling. 0 = none."""
    buffer: int = Field(default=8, ge=1)
    """Groups that the buffer holds: the newest of which `filter` kept something. The more, the older they get."""

    def groups(self, chains: int) -> int:
        """Return how many groups of a batch of `chains` are reused, where the buffer holds so many."""
        return int(self.share * chains + 1e-9)


class LlamaRollouts(Section):
    """Rollouts on llama.cpp, which a training starts by itself (`policies.generations.llama_cpp_engine`)."""

    gguf: str = ""
    """The base in GGUF, of the weights that are trained: quantised or not. It samples with each new adapter, for a
    policy `local`, or `openai` with `weights`. Empty = the policy rolls out as it is named."""
    slots: int = Field(default=4, ge=1)
    """Requests that are answered at once."""
    context: int = Field(default=4096, ge=64)
    """Tokens of prompt and reply together, for each request."""


class HostedTraining(Section):
    """A service that trains and samples by Tinker's API (`policies.rl.tinker`), where `backend` is `tinker`.

    Its key is in TINKER_API_KEY and its address in TINKER_BASE_URL, as Tinker's own client reads them.
    """

    base_model: str = ""
    """The service's name for the model whose folder the policy names, as 'Qwen/Qwen3-8B'."""


class BranchingTable(Member):
    """From which turns others may go on (ARPO)."""

    branches: int = Field(default=0, ge=0)
    """So many of a group's rollouts go on from turns of the others where the policy was unsure. Needs `skills = false`,
    `length = 1`, and neither retries nor candidates. 0 = each is done from the start."""


class TrainSection(Section, Optimising):
    """`[train]`: fine-tuning the policy (`evolve train`); `run.seed` seeds it.

    What names a member may be a table with its options: `[train.loss]` with `name = "ppo"` and `high = 0.28`. A name is
    that of a file of `policies/rl/<slot>/`, or one that an installed package adds; `module:attribute` is your own.
    """

    backend: Literal["torch", "trl_sync", "trl_async", "tinker"] = "torch"
    """What makes an update: our own trainer, or TRL 1.16's, which computes a part of the losses and refuses the rest.
    With `trl_async` rollouts go on meanwhile, on the vLLM server of policy `served`; an iteration is then an update.
    `tinker`: a service computes, and samples in rollouts whatever the policy is."""
    advantages: Member = Member(name="sage")
    """A member of the slot `advantages`, or `module:function`."""
    loss: Member = Member(name="ppo")
    """A member of the slot `losses`, or `module:class`."""
    filter: Member = Member(name="zero_variance")
    """A member of the slot `filters`, or `module:class`: which trajectories are trained on."""
    correction: Member = Member(name="")
    """A member of the slot `corrections`: weights for tokens that another policy sampled. Empty = none."""
    retries: Literal["", "policy", "rules"] = ""
    """Half of the rollouts are retries of those that failed (R3L), from a step and with guidance that the policy itself
    names, or that rules find (`evolve/training/pivots`). Needs `skills = false` and `length = 1`. Empty = none."""
    transform: Member = Member(name="r3l")
    """A member of the slot `transforms`, or `module:function`: what becomes of retries before they are compared."""
    branching: BranchingTable = BranchingTable(name="arpo")
    """A member of the slot `branching`, or `module:function`: from which turns others may go on, where
    `[train.branching]` has `branches`."""
    sampler: Member = Member(name="uniform")
    """A member of the slot `samplers`, or `module:function`: which chains come next, by what is known of them."""
    allocator: Member = Member(name="fixed")
    """A member of the slot `allocators`, or `module:class`: how a batch's rollouts are shared among its chains."""
    iterations: int = Field(default=40, ge=1)
    """Batches of rollouts, each trained on once it is complete."""
    chains: int = Field(default=8, ge=1)
    """Chains of tasks in a batch."""
    length: int = Field(default=2, ge=1)
    """Tasks of a chain."""
    by: Literal["scenario", "similarity"] = "scenario"
    """What makes tasks a chain."""
    refill: int = Field(default=0, ge=0)
    """Rounds in which an iteration does new chains in place of those of which `filter` keeps nothing, until it has as
    many as it began with (DAPO's dynamic sampling). Takes neither candidates, retries, branches nor oversampling."""
    rollouts: int = Field(default=8, ge=2)
    """Times each chain is done: a group. With another allocator than `fixed`, so often on average."""
    skills: bool = True
    """Tasks of a chain share the functions that their agent writes."""
    same_name: Literal["kept", "replaced"] = "kept"
    """What becomes of a skill of the chain whose name a later task gives to another function: it stays (a function
    that was written where it was shown is its next version), or is replaced, as in SAGE's paper."""
    require_code: bool = False
    """A reply without code ends the episode, which is then paid -1: recipe `sage` sets it. Otherwise such a reply is
    answered by an error. In the compact profile every reply is code."""
    candidates: int = Field(default=0, ge=0)
    """How many quarantined texts the rollouts measure besides, the oldest first: half of a group is then shown one on
    top of what is known, and at the end the rule of the gate `utility` admits what helps. 0 = none."""
    temperature: float = Field(default=1.0, gt=0)
    """Of sampling in rollouts."""
    evaluate_every: int = Field(default=0, ge=0)
    """Do the held-out tasks (`run.dev_split`, `gate.held_out.tasks`) after so many iterations, and after the last: the
    weights that solve most are published. 0 = never, the last weights are."""
    replay: bool = True
    """Learn again in the other worlds that the workspace knows, so that they are not forgotten: from their successes in
    the journal, as they were said, and in rollouts from train tasks of those whose agent is told the same."""
    tracker: Literal["", "trackio", "mlflow"] = ""
    """A tracker of experiments that gets the figures while the training goes on. Empty = none."""
    sft: SftTable = SftTable()
    preference: PreferenceTable = PreferenceTable()
    limits: TrainingLimits = TrainingLimits()
    partial: PartialRollouts = PartialRollouts()
    reuse: RolloutReuse = RolloutReuse()
    llama_cpp: LlamaRollouts = LlamaRollouts()
    tinker: HostedTraining = HostedTraining()

    @field_validator(*MEMBERS, mode="before")
    @classmethod
    def _member(cls, given: Any, about: ValidationInfo) -> Any:
        key = about.field_name or ""
        table = as_table(cls, key, given)
        return {"name": cls.model_fields[key].default.name, **table} if isinstance(table, Mapping) else table

    def member(self, key: str) -> Any:
        """Return what one of the keys of `MEMBERS` names, made with its options.

        Raises as `slots.make`; `ConfigError` for options that it does not take.
        """
        from policies.rl.slots import make

        named: Member = getattr(self, key)
        try:
            return make(MEMBERS[key], named.name, named.options)
        except BadInput as wrong:
            raise ConfigError(f"[train.{key}] {wrong}") from wrong


GROUPS = "groups"
"""The recipe that trains on groups of the journal."""
PAIRED = ("dpo", "simpo")
"""Recipes that compare two episodes of a task."""
FROM_LOGS = ("sft", "internalise", GROUPS, *PAIRED)
"""Recipes that make no rollout."""
AS_CONFIGURED = "run"
"""The recipe that takes `[train]` as it is."""

RECIPES: dict[str, dict[str, Any]] = {
    "sage": {"advantages": "sage", "loss": "ppo", "length": 2, "skills": True, "require_code": True},
    "grpo": {"advantages": "grpo", "loss": "ppo", "length": 1, "skills": False},
    "r3l": {
        "advantages": "r3l",
        "loss": "sft",
        "filter": "everything",
        "retries": "rules",
        "length": 1,
        "skills": False,
    },
    "sft": {"loss": "sft"},
    "internalise": {"loss": "sft", "sft": {"context": "dropped"}},
    **{name: {"loss": {"name": "sft", "aggregation": "seq-mean-token-sum"}, "sft": {"passes": 1}} for name in PAIRED},
}
"""Name of a method -> what it sets in `[train]`, as key -> value, or table."""


def recipe_settings(recipe: str) -> dict[str, Any]:
    """Return what a recipe sets, as `section.key` -> value. Raises `ConfigError` for one that there is not."""
    known = sorted({*RECIPES, GROUPS, AS_CONFIGURED})
    if recipe not in known:
        raise ConfigError(f"no recipe {recipe!r} of a training; there are {', '.join(known)}")
    found = deepcopy(RECIPES.get("grpo" if recipe == GROUPS else recipe, {}))  # settings are put into its tables
    return {f"train.{name}": value for name, value in found.items()}
