"""Reads traces for people: which there are, and one as a tree of spans with durations and tokens. Needs no extra."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evolve.telemetry import semconv
from memory.errors import NotFound
from memory.sqlite.telemetry_file import METRIC, SPAN, read

Row = dict[str, Any]
"""A span as `telemetry_file.read` returns it."""
_ABOUT_A_TASK = ("invoke_agent", "evolve.reflect", "search_memory")
"""Spans whose line names their task; those of steps and calls stand below one of these."""


def traces(workspace: Path) -> list[Row]:
    """Return one row for each trace, oldest first: a run that was resumed has several.

    Raises as `telemetry_file.read`.
    """
    by_trace: dict[str, list[Row]] = defaultdict(list)
    for span in read(workspace, "spans", SPAN, "1"):
        by_trace[span["trace_id"]].append(span)
    return [
        {
            "trace": trace,
            "run": spans[0]["run_id"],
            "name": _top(spans)["name"],
            "seconds": (max(span["end_ns"] for span in spans) - spans[0]["start_ns"]) / 1e9,
            "spans": len(spans),
            "errors": sum(span["error"] is not None for span in spans),
            **tokens(spans),
        }
        for trace, spans in by_trace.items()
    ]


def find(workspace: Path, run_or_task: str) -> list[Row]:
    """Return the spans of a run, a trace, or a task (what happened within them included), oldest first.

    Raises as `telemetry_file.read`, and `NotFound` where there are none.
    """
    spans = read(workspace, "spans", SPAN, "run_id = ? OR trace_id = ?", run_or_task, run_or_task)
    if not spans:
        chosen = read(workspace, "spans", SPAN, "task_id = ?", run_or_task)
        known = {span["span_id"] for span in chosen}
        for trace in dict.fromkeys(span["trace_id"] for span in chosen):
            for span in read(workspace, "spans", SPAN, "trace_id = ?", trace):
                if span["parent_id"] in known and span["span_id"] not in known:
                    known.add(span["span_id"])
                    chosen.append(span)
        spans = sorted(chosen, key=lambda span: span["start_ns"])
    if not spans:
        raise NotFound(f"no trace of a run or task {run_or_task!r}; list them with `evolve traces list`")
    return spans


def metrics(workspace: Path, run_id: str) -> list[Row]:
    """Return the metrics of a run."""
    return read(workspace, "metrics", METRIC, "run_id = ?", run_id)


def tree(spans: Sequence[Row]) -> Iterator[str]:
    """Yield one line for each span, those below it indented. One whose parent is not there stands at the top."""
    known = {span["span_id"] for span in spans}
    below: dict[str | None, list[Row]] = defaultdict(list)
    for span in spans:
        below[span["parent_id"] if span["parent_id"] in known else None].append(span)

    def lines(parent: str | None, depth: int) -> Iterator[str]:
        for span in below[parent]:
            yield "  " * depth + line(span)
            yield from lines(span["span_id"], depth + 1)

    yield from lines(None, 0)


def line(span: Row) -> str:
    """Return a span as a line: name, what it is about, duration, tokens, grade, error."""
    given = span["attributes"]
    parts = [span["name"]]
    parts += [span["task_id"]] if span["task_id"] and span["name"].startswith(_ABOUT_A_TASK) else []
    parts.append(duration(span["end_ns"] - span["start_ns"]))
    if semconv.INPUT_TOKENS in given:
        parts.append(f"{given[semconv.INPUT_TOKENS]}+{given.get(semconv.OUTPUT_TOKENS, 0)} tokens")
    if semconv.RECORDS in given:
        parts.append(f"{given[semconv.RECORDS]} records")
    if semconv.REWARD in given:
        parts.append(f"reward {given[semconv.REWARD]:g}")
    if answers := [e["attributes"][semconv.DECISION] for e in span["events"] if semconv.DECISION in e["attributes"]]:
        parts.append(", ".join(f"{answers.count(answer)} {answer}" for answer in dict.fromkeys(answers)))
    if span["error"]:
        parts.append(f"error {span['error']}")
    return "  ".join(parts)


def duration(nanoseconds: int) -> str:
    """Return a time for people."""
    if nanoseconds < 1_000_000:
        return f"{nanoseconds / 1e3:.0f} us"
    return f"{nanoseconds / 1e6:.1f} ms" if nanoseconds < 1_000_000_000 else f"{nanoseconds / 1e9:.2f} s"


def tokens(spans: Sequence[Row]) -> dict[str, int]:
    """Return the tokens of the model calls among the spans."""
    calls = [span["attributes"] for span in spans if span["attributes"].get(semconv.OPERATION) == "chat"]
    keys = {"input_tokens": semconv.INPUT_TOKENS, "output_tokens": semconv.OUTPUT_TOKENS}
    return {name: sum(call.get(key, 0) for call in calls) for name, key in keys.items()}


def _top(spans: Sequence[Row]) -> Row:
    """Return the root; of a run that was killed, whose root was never written, the first span there is."""
    return next((span for span in spans if span["parent_id"] is None), spans[0])
