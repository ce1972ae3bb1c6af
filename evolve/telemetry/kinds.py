"""Which span belongs to which kind of watched work (`evolve.episode.instrumentation.watched`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from evolve.telemetry import acting, learning, training
from evolve.telemetry.described import Begun

KINDS: Mapping[str, Callable[..., Begun | None]] = {
    "episode": acting.episode,
    "solve": acting.solve,
    "chat": acting.chat,
    "step": acting.step,
    "recall": learning.recall,
    "search": learning.search,
    "commit": learning.commit,
    "gate": learning.gate,
    "reflect": learning.reflect,
    "curate": learning.curate,
    "iteration": training.iteration,
    "update": training.update,
    "fitting": training.fitting,
}
"""Kind of watched work -> its span."""
