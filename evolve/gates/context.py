"""Context of gates. A file of this package that sets `MEMBER` is a gate of its name: it takes `GateContext`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from evolve.config.model import Config
from evolve.environments.task_files import load_tasks
from evolve.episode.prompting import described
from evolve.errors import ConfigError
from evolve.gates.evaluator import Evaluator
from memory.errors import BadInput
from memory.records import Task


@dataclass(frozen=True)
class Bench:
    """What a gate needs to run tasks."""

    evaluator: Evaluator
    stream: tuple[Task, ...]
    """The tasks that knowledge is written from."""


@dataclass(frozen=True)
class GateContext:
    """The configuration, and what else a gate may ask for."""

    config: Config
    bench: Bench | None = None
    """None where nothing can run tasks."""
    told: Callable[[], Iterable[str]] = tuple
    """The instructions that were given so far, where no bench knows the stream."""

    def bench_of(self, gate: str) -> Bench:
        """Return the bench of a gate that reads outcomes of tasks that it runs.

        Raises `ConfigError` where nothing can run tasks again or no outcome may be read.
        """
        if self.bench is None:
            raise ConfigError(f"gate {gate!r} runs tasks again, and here nothing can run them; name 'static' or 'none'")
        self.refuse_label_free(gate)
        return self.bench

    def refuse_label_free(self, gate: str) -> None:
        """Raise `ConfigError` where no outcome may be read."""
        if self.config.run.label_free:
            raise ConfigError(
                f"gate {gate!r} reads outcomes, and run.label_free says that none is read; drop one of them"
            )

    def described(self, allowed: Sequence[str]) -> str:
        """Return the addresses and literals that texts may name: those allowed, and those of the environment."""
        return described(allowed, self.bench.evaluator.environment if self.bench else None)

    def instructions(self) -> Iterable[str]:
        """Return the instructions of the stream."""
        return (task.instruction for task in self.bench.stream) if self.bench else self.told()

    def held_out(self) -> Iterator[str]:
        """Yield the instructions of the tasks that figures are taken from and nothing is learned from.

        What several tasks are told alike, as the games of a world are, shows none of them and is left out.
        """
        asked = Counter(self._asked())
        yield from (text for text, tasks in asked.items() if tasks == 1)

    def _asked(self) -> Iterator[str]:
        run = self.config.run
        for split in {*run.eval_splits, run.dev_split} - {run.split}:
            with suppress(BadInput, ConfigError):  # it has no such split
                if self.bench:
                    tasks = load_tasks(self.config, self.bench.evaluator.environment, split)
                    yield from (task.instruction for task in tasks)
