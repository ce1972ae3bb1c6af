"""Several processes make the updates of one training: the first leads, and the others do what it is told to do.

The first process alone reads the journal, rolls out, writes and prints, as if there were no other: its trainer is a
`LeadingTrainer`, which hands each call on before it makes it. Every other process is in `follow` and makes the same
calls with the same rows; what each computes of them says `rl.sharding`.

Calls travel in a group of processes of their own (gloo), in which a process waits as long as rollouts take. The weights
travel in torch's default group, where one that does not answer is given up after its time (gloo 30 minutes, NCCL 10).
A process that ends is noticed at once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from accelerate import PartialState
from torch import Tensor

from memory.errors import EvolveError
from policies.errors import PolicyError
from policies.rl.optimising import OptimiserOptions
from policies.rl.protocols import Array, OffPolicyCorrection, PolicyLoss
from policies.rl.ranks import rank
from policies.rl.rows import TrainRow
from policies.rl.trainer import Trainer

PATIENCE = timedelta(days=7)
"""Longest time between two calls: the rollouts of an iteration."""


class ProcessLost(PolicyError):
    """Another process of the training ended, or did not answer in time."""


class LeadingTrainer(Trainer):
    """A `Trainer` of several processes, made in the first; the others are in `follow`, or wait for it.

    Its methods also raise `ProcessLost`.
    """

    def __init__(
        self,
        model: str | Path,
        loss: PolicyLoss,
        settings: OptimiserOptions,
        *,
        start: Path | None = None,
        correction: OffPolicyCorrection | None = None,
    ) -> None:
        with noticing():
            _told(("__init__", (str(model), loss, settings), {"start": start, "correction": correction}))
            super().__init__(model, loss, settings, start=start, correction=correction)

    def step(self, rows: Sequence[TrainRow], advantages: Sequence[Array]) -> dict[str, float]:
        """Learn from a batch, as `Trainer`."""
        return self._led("step", rows, advantages)

    def scored(self, rows: Sequence[TrainRow]) -> list[TrainRow]:
        """Return the rows with every log-probability, as `Trainer`."""
        return self._led("scored", rows)

    def save(self, directory: Path) -> None:
        """Write the adapter or the model, as `Trainer`."""
        self._led("save", directory)

    def merged(self) -> Iterator[tuple[str, Tensor]]:
        """Give the weights of the whole model, as `Trainer`."""
        return self._led("merged")

    def checkpoint(self, path: Path, progress: Mapping[str, Any] | None = None) -> None:
        """Write what `resume` needs, as `Trainer`."""
        self._led("checkpoint", path, progress)

    def resume(self, path: Path) -> dict[str, Any]:
        """Go on from a checkpoint, as `Trainer`."""
        return self._led("resume", path)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Let the others drop their part of the model; they wait for another training, or for this process to end.

        Not after an error that the others do not know of: they are in the middle of what failed here.
        """
        if error is None or (isinstance(error, EvolveError) and not isinstance(error, ProcessLost)):
            with suppress(ProcessLost), noticing():  # all is written
                _told(("__exit__", (None, None, None), {}))

    def _led(self, name: str, *given: Any) -> Any:
        with noticing():
            _told((name, given, {}))
            return getattr(super(), name)(*given)


def follow() -> NoReturn:
    """Do what the first process is told, until it ends; then end this process.

    Raises `ProcessLost` where another ends while there is a training, and what its own trainer cannot be made for. What
    every process raises alike in a step, the first tells.
    """
    trainer: Trainer | None = None
    while True:
        try:
            with noticing():
                name, given, named = _told()
                if name == "__init__":
                    trainer = Trainer(*given, **named)
                else:
                    getattr(trainer, name)(*given)
                if name == "__exit__":
                    trainer = None
        except ProcessLost:
            if trainer is not None:
                raise
            sys.exit(0)
        except EvolveError as error:
            if trainer is None:  # not made: it may be this process's error alone
                print(f"process {rank()}: {error}", file=sys.stderr)
                raise


@cache
def _channel() -> Any:
    """Return the group in which calls travel, made by all processes together."""
    PartialState(cpu=not torch.cuda.is_available())
    return dist.new_group(backend="gloo", timeout=PATIENCE)


def _told(call: tuple[str, tuple[Any, ...], dict[str, Any]] | None = None) -> tuple[str, tuple[Any, ...], Any]:
    """Return the call that the first process hands on; there it is given."""
    held: list[Any] = [call]
    dist.broadcast_object_list(held, src=0, group=_channel(), device=torch.device("cpu"))
    return held[0]


@contextmanager
def noticing() -> Generator[None]:
    """Turn what torch says of a process that is gone into `ProcessLost`."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, EvolveError) or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        said = re.sub(r"^\[.*?\] ", "", str(error).strip()).split(". ")[0]
        raise ProcessLost(
            f"another process of this training ended, or did not answer in time ({said}); what it said before is the "
            "reason; the same command goes on from the last checkpoint"
        ) from error
