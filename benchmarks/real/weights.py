"""A life whose journal trains its model's weights: learn, measure, train, gate, promote, and measure the same again.

What was done is found done: a run by its name, a training and a verdict in the registry, a measurement in its file. So
hours of a small machine may be spread over days.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.claim import Row, at_least
from benchmarks.real.figures import Passed
from benchmarks.real.lives import Life, served_bf16, served_name
from benchmarks.real.models import folder
from evolve.config.model import Config
from evolve.config.training import RECIPES
from evolve.episode.arms import NO_MEMORY
from evolve.generations import workspace_registry as generations
from evolve.loop.session import Parts
from evolve.training.promotion_gate import Acting, judged
from evolve.training.training_session import train_from_logs
from memory.records import Frozen
from policies.generations.generation_records import Generation
from policies.generations.swap import swap

LORA: dict[str, Any] = {**RECIPES["sft"], "dtype": "bfloat16", "rank": 16, "learning_rate": 2e-4}
"""bfloat16: on a processor that computes it a step took half the time of float32, and half the memory (docs/LOG.md)."""
NOWHERE = "http://127.0.0.1:9/v1"
"""Stands for the server where none is asked: a training is named by its settings, and servers move."""
Arms = dict[str, Passed]
"""Arm -> task -> whether it passed."""


class Fitted(Frozen):
    """What a training took."""

    generation: str
    rows: int
    tokens: int
    """Trained ones."""
    seconds: float
    peak_mb: float
    """Largest memory of the process so far."""
    experts: int = 0
    """Rows that the model did not say itself."""


def trained_rows(fitted: Fitted, accepted: bool, seed: int) -> list[Row]:
    """Return what a training took, and what its gate said."""
    return [
        Row("rows trained on", fitted.rows, at_least(1), seed=seed),
        Row("of them the benchmark's own solutions", fitted.experts, n=fitted.rows),
        Row("seconds of training", fitted.seconds, n=fitted.rows),
        Row("candidates that the gate accepted", float(accepted), n=1, seed=seed),
    ]


@dataclass(frozen=True)
class Weighed:
    """One life that learns, and where it is wanted one in the other benchmark, where nothing is learned."""

    model: str
    """The one whose weights are trained, as `benchmarks.real.models` calls it."""
    life: Life
    training: Mapping[str, Any]
    """`[train]`."""
    held_out: int
    """Tasks that parent and child do."""
    other: Life | None = None
    others: int = 0
    """Tasks of the other benchmark that they do: of its train split, the largest, since nobody trains on it here."""

    @property
    def config(self) -> Config:
        """Return the configuration of the training."""
        weights = {"policy": {"weights": str(folder(self.model))}, "train": self.training}
        return replace(self.life, url=NOWHERE).config("weights", **weights)

    def parent(self, tasks: int) -> Arms:
        """Learn from the train tasks, then measure the base: with memory, without, and each once more (A/A)."""
        with served_bf16(self.model) as url:
            life = replace(self.life, url=url)
            life.learn(tasks)
            found = life.examine("parent", self.held_out, controls={"no_memory": 1.0, "aa": True})
            again = replace(life, who="again").examine("parent again", self.held_out, playbook={"enabled": False})
            return found | {"again": again[NO_MEMORY]} | self._elsewhere("parent", url, life.model)

    def fitted(self) -> Fitted:
        """Train on what succeeded, once."""
        kept = self.life.root / "fitted.json"
        if not kept.exists():
            began = time.perf_counter()
            made = train_from_logs(self.config, "sft")
            found = Fitted(
                generation=made.generation,
                rows=made.examples,
                tokens=made.tokens,
                experts=made.experts,
                seconds=time.perf_counter() - began,
                peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            )
            kept.write_text(found.model_dump_json(indent=2))
        return Fitted.model_validate_json(kept.read_text())

    def gated(self, version: str) -> bool:
        """Return whether the gate accepts a generation, as it is served; then let it answer whatever the gate said."""
        if "gate.accepted" not in self._generation(version).metrics:
            judged(self.config, version, self._side)
        config = self.config
        with generations.open_registry(config.policy, config.workspace) as registry:
            if registry.live().version != version:
                asyncio.run(generations.inspected(config.policy, registry, swap, version))
        return bool(self._generation(version).metrics["gate.accepted"])

    def child(self, version: str) -> Arms:
        """Measure a generation as the parent was."""
        generation = self._generation(version)
        model = served_name(self.model, generation)
        with served_bf16(self.model, generation) as url:
            child = replace(self.life, url=url, model=model)
            found = child.examine("child", self.held_out, controls={"no_memory": 1.0})
            return found | self._elsewhere("child", url, model)

    def _elsewhere(self, name: str, url: str, model: str) -> Arms:
        if self.other is None:
            return {}
        changes = {"playbook": {"enabled": False}, "run": {"eval_splits": ["train"]}}
        return {"other": replace(self.other, url=url, model=model).examine(name, self.others, **changes)[NO_MEMORY]}

    @contextmanager
    def _side(self, config: Config, generation: Generation) -> Generator[Acting]:
        """Let a generation act as it is served, while the gate measures it."""
        with served_bf16(self.model, generation) as url:
            asked = {"base_url": url, "model": served_name(self.model, generation), "weights": None}
            yield config.model_copy(update={"policy": config.policy.model_copy(update=asked)}), Parts()

    def _generation(self, version: str) -> Generation:
        config = self.config
        with generations.open_registry(config.policy, config.workspace) as registry:
            return registry.get(version)
