"""The gate of generations: a candidate beside what is live, on the same held-out tasks, with the playbook and without.

It is accepted where it solves more of them, both arms taken together, and in neither arm clearly fewer: two exact
McNemar tests (`evolve.statistics.paired`). The tasks are those of `run.dev_split`, from which nothing is learned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from evolve.config.model import Config
from evolve.episode.injection import shown_again
from evolve.episode.prompting import knowledge
from evolve.gates.held_out_rules import options_of
from evolve.generations import workspace_registry as generations
from evolve.generations.llama_cpp import serving
from evolve.loop.assembly import make_environment, make_policy, open_store
from evolve.loop.session import Parts, run
from evolve.statistics.paired import Paired, Passed, p_better, pair
from memory.records import Frozen
from playbooks.kinds.exemplar import shown_text
from policies.generations.generation_records import Generation
from policies.llama_server import LlamaOptions

LEVEL = 0.05
"""Of each test: the chance that a candidate which is no better gains this much, or one that does no harm loses it."""
WITH, WITHOUT, RETIRED = "with playbook", "without playbook", "without it beside live with it"


class GenerationTrial(Frozen):
    """What was observed, and what follows."""

    live: str
    candidate: str
    accepted: bool
    reason: str
    arms: dict[str, Paired]
    """Arm -> candidate beside live."""
    look: int
    """How many trials these tasks have decided, this one included."""
    playbook_tokens: float
    """Tokens of the playbook in a prompt, on average: what is saved where the candidate needs it no more."""

    @property
    def figures(self) -> dict[str, Any]:
        """Return what the registry keeps of it; the episodes themselves are in the journal."""
        kept = {"accepted": self.accepted, "reason": self.reason, "look": self.look, "beside": self.live}
        kept |= {f"{name}, points": round(100 * arm.delta, 2) for name, arm in self.arms.items()}
        return {f"gate.{name}": value for name, value in kept.items()}

    def rows(self) -> list[dict[str, Any]]:
        """Return a line for each arm."""
        return [
            {"arm": name, "tasks": arm.n, "gained": len(arm.gained), "lost": len(arm.lost)}
            | {"points": round(100 * arm.delta, 1), "interval": [round(100 * x, 1) for x in arm.statistics["interval"]]}
            for name, arm in self.arms.items()
        ]


def accepted(generation: Generation) -> bool:
    """Tell whether the last trial of a generation accepted it."""
    return bool(generation.metrics.get("gate.accepted"))


Acting = tuple[Config, Parts]
"""With what the tasks of one side are done."""
Side = Callable[[Config, Generation], AbstractContextManager[Acting]]
"""Lets one generation act for as long as it is measured."""


@contextmanager
def in_process(config: Config, generation: Generation) -> Generator[Acting]:
    """Let a generation act in this process, in full precision, whatever serves it later."""
    policy = generations.acting_with(config.policy, generation)
    try:
        yield config, Parts(policy=policy)
    finally:
        asyncio.run(policy.aclose())


def on_llama(base: Path, options: LlamaOptions) -> Side:
    """Return how a generation acts on llama.cpp: as it is served later, quantised as the GGUF file `base` is."""

    @contextmanager
    def side(config: Config, generation: Generation) -> Generator[Acting]:
        with serving(config.policy, config.workspace, generation, base, options) as section:
            yield config.model_copy(update={"policy": section}), Parts()

    return side


def judged(config: Config, version: str, side: Side = in_process) -> GenerationTrial:
    """Measure a generation and record it in the registry. Raises `NotFound` for an unknown one, and as `session.run`.

    Both sides act as `side` lets them, one after the other, greedily or at `policy.temperature`.
    """
    with generations.open_registry(config.policy, config.workspace) as registry:
        live, candidate = registry.live(), registry.get(version)
        look = 1 + sum("gate.look" in change.data for change in registry.history())
    marks: dict[tuple[str, str], Passed] = {}
    tokens = 0.0
    for each in (live, candidate):
        with side(config, each) as acting:
            for arm in (WITH, WITHOUT) if config.playbook.enabled else (WITHOUT,):
                marks[arm, each.version], shown = _passed(*acting, arm == WITH)
                tokens = max(tokens, shown)
    arms = {
        arm: _pair(marks[arm, live.version], marks[arm, candidate.version])
        for arm in (WITH, WITHOUT)
        if (arm, live.version) in marks
    }
    passes, reason = decided(arms)
    if WITH in arms:
        arms[RETIRED] = _pair(marks[WITH, live.version], marks[WITHOUT, candidate.version])
    trial = GenerationTrial(
        live=live.version,
        candidate=candidate.version,
        accepted=passes,
        reason=reason,
        arms=arms,
        look=look,
        playbook_tokens=tokens,
    )
    with generations.open_registry(config.policy, config.workspace) as registry:
        registry.measure(candidate.version, trial.figures)
    return trial


def decided(arms: Mapping[str, Paired]) -> tuple[bool, str]:
    """Return whether a candidate is accepted by what it gained and lost in each arm, and why."""
    for name, arm in arms.items():
        if p_better(len(arm.lost), len(arm.gained)) <= LEVEL:
            return False, f"{name}: {len(arm.lost)} tasks lost, {len(arm.gained)} gained of {arm.n}"
    gained, lost = (sum(len(getattr(arm, kind)) for arm in arms.values()) for kind in ("gained", "lost"))
    p = p_better(gained, lost)
    return p <= LEVEL, f"{gained} tasks gained, {lost} lost in {' and '.join(arms)}: p = {p:.2g}, asked {LEVEL}"


def _passed(config: Config, parts: Parts, memory: bool) -> tuple[Passed, float]:
    """Return how the held-out tasks end, and the mean tokens of the playbook in their prompts."""
    section = config.run.model_copy(
        update={
            "mode": "frozen",
            "eval_splits": (config.run.dev_split,),
            "tasks": options_of(config).tasks,
            "attempts": 1,
        }
    )
    playbook = config.playbook.model_copy(update={"enabled": memory})
    gate = config.gate.model_copy(update={"names": ("static",)})  # nothing is learned, and their tasks are these
    frozen = config.model_copy(update={"run": section, "playbook": playbook, "gate": gate})
    (report, *_) = run(frozen, parts=replace(parts, environment=make_environment(config))).evaluations
    policy = parts.policy or make_policy(config.policy, config.workspace)
    with open_store(config, policy.count_tokens, read_only=True) as store:
        shown = [shown_again(store, each.injected) for each in store.trajectories(run_id=report.id)]
    texts = [knowledge(each.core, each.recalled, policy.profile) + shown_text(each.exemplars) for each in shown]
    return report.passed, mean(map(policy.count_tokens, texts))


def _pair(base: Passed, candidate: Passed) -> Paired:
    return pair(list(base), base, candidate)
