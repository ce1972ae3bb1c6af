"""Tokens cut out of a row, with whatever the policy said in them."""

from __future__ import annotations

from memory.errors import BadInput
from policies.rl.rows import Span, TrainRow


def cut(row: TrainRow, start: int, stop: int) -> TrainRow:
    """Return a row without the tokens [start, stop) of its prompt and completion, and without the turns in them.

    Raises `BadInput` for a range that is none of the row's, and one that ends or begins within a turn.
    """
    prompt = len(row.prompt_ids)
    if not 0 <= start <= stop <= prompt + len(row.completion_ids):
        raise BadInput(f"got guidance at {start, stop}; expected a range of {prompt + len(row.completion_ids)} tokens")
    first, last = max(start - prompt, 0), max(stop - prompt, 0)
    left, skipped = (
        [span for span in spans if not (first <= span.start < last and span.stop <= last)]
        for spans in (row.spans, row.skipped)
    )
    if any(span.start < last and first < span.stop for span in (*left, *skipped)):
        raise BadInput(
            f"got guidance at {start, stop}, which cuts through a turn of {row.trajectory_id!r}; give whole turns"
        )
    shift = last - first
    return row.model_copy(
        update={
            "prompt_ids": (*row.prompt_ids[:start], *row.prompt_ids[max(stop, start) :]),
            "completion_ids": (*row.completion_ids[:first], *row.completion_ids[last:]),
            "sampling_logprobs": (*row.sampling_logprobs[:first], *row.sampling_logprobs[last:]),
            "spans": tuple(_moved(span, shift if span.start >= last else 0) for span in left),
            "skipped": tuple(_moved(span, shift if span.start >= last else 0) for span in skipped),
        }
    )


def _moved(span: Span, shift: int) -> Span:
    return span.model_copy(update={"start": span.start - shift, "stop": span.stop - shift})
