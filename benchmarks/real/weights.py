"""A life whose journal trains its model's weights: learn, measure, train, gate, promote, and measure the same again.

What was done is found done: a run by its name, a training and a verdict in the registry, a measurement in its file. So
hours of a small machine may be spread over days.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.real.figures import Passed
from benchmarks.real.lives import CONTEXT, SLOTS, Life
from benchmarks.real.models import gguf
from evolve.config.model import Config
from evolve.episode.arms import NO_MEMORY
from evolve.generations import workspace_registry as generations
from evolve.generations.llama_cpp import serving
from evolve.training.promotion_gate import judged, on_llama
from evolve.training.training_session import train_from_logs
from memory.records import Frozen
from policies.generations.generation_records import Generation
from policies.generations.swap import swap
from policies.llama_server import LlamaOptions

NOWHERE = "http://127.0.0.1:9/v1"
"""Stands for the server where none is asked: a training is named by its settings, and servers move."""
SERVED = LlamaOptions(slots=SLOTS, context=CONTEXT)
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


@dataclass(frozen=True)
class Weighed:
    """One life that learns, and one in the other benchmark, where nothing is learned."""

    life: Life
    other: Life
    held_out: int
    """Tasks that parent and child do."""
    others: int
    """Tasks of the other benchmark that they do: of its train split, the largest, since nobody trains on it here."""

    @property
    def config(self) -> Config:
        """Return the configuration of the training."""
        return replace(self.life, url=NOWHERE).config("weights")

    def parent(self, tasks: int) -> Arms:
        """Learn from the train tasks, then measure the base: with memory, without, and each once more (A/A)."""
        with self._answering(self._generation("policy-v0")) as url:
            life = replace(self.life, url=url)
            life.learn(tasks)
            found = life.examine("parent", self.held_out, controls={"no_memory": 1.0, "aa": True})
            again = life.examine("parent again", self.held_out, playbook={"enabled": False})
            return found | {"again": again[NO_MEMORY], "other": self._elsewhere("parent", url, None)}

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
                seconds=time.perf_counter() - began,
                peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            )
            kept.write_text(found.model_dump_json(indent=2))
        return Fitted.model_validate_json(kept.read_text())

    def gated(self, version: str) -> bool:
        """Return whether the gate accepts a generation, as it is served; then let it answer whatever the gate said."""
        if "gate.accepted" not in self._generation(version).metrics:
            judged(self.config, version, on_llama(gguf(self.life.model), SERVED))
        config = self.config
        with generations.open_registry(config.policy, config.workspace) as registry:
            if registry.live().version != version:
                asyncio.run(generations.inspected(config.policy, registry, swap, version))
        return bool(self._generation(version).metrics["gate.accepted"])

    def child(self, version: str) -> Arms:
        """Measure a generation as the parent was."""
        generation = self._generation(version)
        with self._answering(generation) as url:
            found = replace(self.life, url=url).examine("child", self.held_out, controls={"no_memory": 1.0})
            return found | {"other": self._elsewhere("child", url, generation)}

    def _elsewhere(self, name: str, url: str, generation: Generation | None) -> Passed:
        changes: dict[str, dict[str, Any]] = {"playbook": {"enabled": False}, "run": {"eval_splits": ["train"]}}
        if generation:
            changes["policy"] = {"adapter": str(generation.adapter)}
        return replace(self.other, url=url).examine(name, self.others, **changes)[NO_MEMORY]

    @contextmanager
    def _answering(self, generation: Generation) -> Generator[str]:
        config = self.config
        with serving(config.policy, config.workspace, generation, gguf(self.life.model), SERVED) as section:
            yield section.base_url

    def _generation(self, version: str) -> Generation:
        config = self.config
        with generations.open_registry(config.policy, config.workspace) as registry:
            return registry.get(version)
