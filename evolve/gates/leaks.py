"""What an exemplar may not hold, beside what no text may: the words of a task that figures are taken from.

An exemplar repeats its own task, which is what it is for. Tasks of held-out splits it may neither be nor quote: a
frozen evaluation would hand out its own answers. Nothing is run. Ops of other kinds pass; `static` asks this gate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache

from pydantic import ValidationError

from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Trajectory, Verdict
from playbooks.kinds.exemplar import Exemplar

_WORD = re.compile(r"\w+")


class ExemplarGate:
    """Refuses what shows a held-out task; `held_out` returns the instructions of all such tasks, and is asked once."""

    name = "exemplar"

    def __init__(self, held_out: Callable[[], Iterable[str]] = tuple, leak_ngram: int = 8) -> None:
        self._held_out, self._n = held_out, leak_ngram

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict with a reason for every op refused."""
        own = [op for op in ops if op.kind == Exemplar.kind and op.payload is not None]
        rejected = {op.op_id: reason for op in own if (reason := self._leak(op))}
        accepted = tuple(op.op_id for op in ops if op.op_id not in rejected)
        return Verdict(gate=self.name, accepted=accepted, rejected=rejected, evidence={"view": view.version})

    @cached_property
    def _tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for task in self._held_out() if (text := plain(task))))

    @cached_property
    def _runs(self) -> frozenset[tuple[str, ...]]:
        return frozenset(run for task in self._tasks for run in ngrams(task, self._n))

    def _leak(self, op: DeltaOp) -> str:
        try:
            exemplar = Exemplar.model_validate(op.payload)
        except ValidationError as invalid:
            return f"payload is no exemplar: {invalid.errors(include_url=False)[0]['msg']}"
        text = f" {plain(' '.join(exemplar.texts()))} "
        long = (task for task in self._tasks if len(task.split()) >= self._n)
        whole = next((task for task in long if f" {task} " in text), "")
        if whole or plain(exemplar.task) in self._tasks:
            return f"shows a held-out task ({(whole or exemplar.task)[:60]!r}), which figures are taken from"
        more = set(ngrams(text, self._n)) - set(ngrams(exemplar.task, self._n))
        quoted = next((" ".join(run) for run in sorted(more & self._runs)), "")
        return f"quotes a held-out task ({quoted!r}), which figures are taken from" if quoted else ""


@lru_cache(maxsize=4096)
def plain(text: str) -> str:
    """Return the words of a text, lower-cased, with one blank between two."""
    return " ".join(word.lower() for word in _WORD.findall(text))


def ngrams(text: str, n: int) -> list[tuple[str, ...]]:
    """Return all runs of `n` words, lower-cased, without punctuation."""
    words = plain(text).split()
    return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]
