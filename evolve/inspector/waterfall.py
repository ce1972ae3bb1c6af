"""Waterfall of the time and the tokens of one episode: model calls and steps of the environment, one below the other.

The journal holds how long each reply and each step took. Where the run was traced (`[telemetry]`), the spans are used:
they also know when each began, and what else happened in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from evolve.telemetry import semconv
from memory.errors import EvolveError
from memory.records import Trajectory
from memory.sqlite.telemetry_file import SPAN, read

Kind = Literal["model", "world", "other"]
WIDTH = 1000
"""Units from the start of the episode to its end."""
LEAST = 3
"""Units that a bar has at least, so that it can be seen."""
MOST = 400
"""Bars that are drawn."""
_KINDS: dict[str, Kind] = {"chat": "model", "execute_tool": "world"}


@dataclass(frozen=True)
class Bar:
    """One line of the picture. Times are seconds from the start of the episode."""

    name: str
    kind: Kind
    start: float
    seconds: float
    total: float
    """Seconds of the whole episode."""
    step: int | None = None
    depth: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    error: bool = False

    @property
    def x(self) -> int:
        """Return where the bar begins."""
        return min(round(WIDTH * self.start / self.total), WIDTH - LEAST) if self.total else 0

    @property
    def width(self) -> int:
        """Return how long the bar is."""
        long = round(WIDTH * self.seconds / self.total) if self.total else 0
        return min(max(long, LEAST), WIDTH - self.x)


def waterfall(workspace: Path, trajectory: Trajectory) -> tuple[list[Bar], str]:
    """Return the bars of an episode, and a sentence that says where they come from; no bars where nobody measured."""
    traced = _traced(workspace, trajectory)
    if traced:
        return traced[:MOST], "From the trace of this episode."
    bars = _journalled(trajectory)
    known = sum(bar.seconds for bar in bars)
    if not known and not any(bar.prompt or bar.completion for bar in bars):
        return [], ""  # an agent of one's own, that measured nothing
    if not any(step.reply_seconds for step in trajectory.steps):
        text = "The journal of this episode does not say how long the model took"
        return bars[:MOST], f"{text}: only the environment's time is drawn."
    rest = max(trajectory.seconds - known, 0.0)
    share = f" The remaining {100 * rest / trajectory.seconds:.0f} % is preparation and grading." if known else ""
    return bars[:MOST], f"From the journal, one after the other.{share}"


def _journalled(trajectory: Trajectory) -> list[Bar]:
    total = max(trajectory.seconds, sum(step.seconds + step.reply_seconds for step in trajectory.steps))
    bars: list[Bar] = []
    at = 0.0
    for step in trajectory.steps:
        used = step.usage
        if step.reply_seconds or used.calls:
            bar = Bar("model call", "model", at, step.reply_seconds, total, step.index)
            bars.append(
                replace(bar, prompt=used.prompt_tokens, completion=used.completion_tokens, cached=used.cached_tokens)
            )
            at += step.reply_seconds
        name = step.tool_calls[0].name if step.tool_calls else f"step {step.index}"
        bars.append(Bar(name, "world", at, step.seconds, total, step.index, error=step.error is not None))
        at += step.seconds
    return bars


def _traced(workspace: Path, trajectory: Trajectory) -> list[Bar]:
    """Return the spans below that of this episode; empty where it was not traced."""
    try:
        spans = read(workspace, "spans", SPAN, "task_id = ?", trajectory.task.id)
    except EvolveError:
        return []
    tops = [span for span in spans if _is(span, trajectory)]
    return _below(tops[-1], spans) if tops else []


def _is(span: dict[str, Any], trajectory: Trajectory) -> bool:
    """Tell whether a span is that of the episode itself; the reflection on it names the episode too."""
    given = span["attributes"]
    named = trajectory.id in (given.get(semconv.ROLLOUT), given.get(semconv.CONVERSATION))
    return named and given.get(semconv.OPERATION) == "invoke_agent"


def _below(top: dict[str, Any], spans: Sequence[dict[str, Any]]) -> list[Bar]:
    depth: dict[str, int] = {top["span_id"]: -1}
    total = (top["end_ns"] - top["start_ns"]) / 1e9
    bars: list[Bar] = []
    for span in sorted(spans, key=lambda span: span["start_ns"]):
        if span["parent_id"] not in depth or span["span_id"] in depth:
            continue
        depth[span["span_id"]] = depth[span["parent_id"]] + 1
        given = span["attributes"]
        kind = _KINDS.get(given.get(semconv.OPERATION, ""), "other")
        bars.append(
            Bar(
                "model call" if kind == "model" else str(given.get(semconv.TOOL_NAME) or span["name"]),
                kind,
                (span["start_ns"] - top["start_ns"]) / 1e9,
                (span["end_ns"] - span["start_ns"]) / 1e9,
                total,
                given.get(semconv.STEP),
                max(depth[span["span_id"]], 0),
                given.get(semconv.INPUT_TOKENS, 0),
                given.get(semconv.OUTPUT_TOKENS, 0),
                given.get(semconv.CACHED_TOKENS, 0) or 0,
                span["error"] is not None,
            )
        )
    return bars
