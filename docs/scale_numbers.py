"""The table of what was measured in docs/guides/scale.md, read from the stored results of the claims `scale_1` to 7."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from benchmarks.table import Rows


class Number(NamedTuple):
    """One row: some stored figures of a claim."""

    claim: str
    says: str
    figures: str
    """A pattern that the names of these figures match; they are shown in the order of the result."""


NUMBERS = (
    Number(
        "scale_1_same", "300 office tasks: events that differ on PostgreSQL, with scripted replies, with pocket", "on P"
    ),
    Number("scale_1_same", "the same on a Ray cluster of 1, 2 and 4 nodes", "events .* nodes"),
    Number("scale_2_faults", "faults under eight runs", "^faults$"),
    Number("scale_2_faults", "events lost, journalled calls made again", "lost|made again$"),
    Number("scale_2_faults", "runs that could not be resumed, locks left behind", "be resumed|locks"),
    Number(
        "scale_3_throughput",
        "256 episodes at a time, episodes a second: one process, four nodes of Ray",
        "256 .* second$",
    ),
    Number("scale_3_throughput", "the same as a share of ideal", "256 .* ideal$"),
    Number("scale_3_throughput", "ms to commit a batch of 8, 1,000, 10,000, 100,000 records: file", "^file, .* ms"),
    Number("scale_3_throughput", "the same on PostgreSQL", "^PostgreSQL, .* ms"),
    Number("scale_3_throughput", "commits a second: one writer, 16 on a namespace, 16 on 16", "commits a second"),
    Number(
        "scale_4_recall",
        "recall, p95 ms, 100,000 and a million records: SQLite + Chroma",
        r"^S.*0 records: recall, p95",
    ),
    Number("scale_4_recall", "the same by exact search", r"^S.*0 records, exact .*: recall, p95"),
    Number("scale_4_recall", "the same on PostgreSQL + pgvector", r"^P.*0 records: recall, p95"),
    Number("scale_4_recall", "the same by exact search", r"^P.*0 records, exact .*: recall, p95"),
    Number(
        "scale_4_recall", "of the ten nearest Chroma finds, 100,000 and a million records", "^S.*0 records: of the ten"
    ),
    Number("scale_4_recall", "the same, pgvector", "^P.*0 records: of the ten"),
    Number("scale_4_recall", "of texts about nothing, 100,000 records: Chroma, pgvector", "random: of the ten"),
    Number("scale_5_tenants", "of 200 attempts on another namespace came through", "^attempts"),
    Number("scale_5_tenants", "seconds until a revoked token is refused, longest of three", "revoked"),
    Number("scale_6_move", "events moved to PostgreSQL and back, of them lost", "moved$|come back"),
    Number("scale_6_move", "seconds there, seconds back, megabytes in a file, megabytes there", "seconds|megabytes"),
    Number("scale_7_merge", "points that a merged workspace solves above the better half", "^merged minus"),
    Number("scale_7_merge", "100 poisoned texts in it: quarantined, come into use", "quarantined$|^poisons"),
)


def table(results: Mapping[str, Rows]) -> str:
    """Return the rows as Markdown. Raises `KeyError` where no stored figure matches."""
    lines = ["| what | measured | claim |", "|---|---|---|"]
    for number in NUMBERS:
        found = [row for row in results[number.claim] if re.search(number.figures, row["claim"])]
        if not found:
            raise KeyError(f"{number.claim} stores no figure like {number.figures!r}; mend docs/scale_numbers.py")
        lines.append(f"| {number.says} | {', '.join(map(_told, found))} | `{number.claim[:7]}` |")
    return "\n".join(lines) + "\n"


def _told(row: Mapping[str, Any]) -> str:
    value = row["measured"]
    missed = f" (missed: {row['target']})" if row["ok"] is False else ""
    return (f"{value:,.0f}" if value >= 100 else f"{value:.3g}") + missed
