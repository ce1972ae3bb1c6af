"""Prints the stored results of all claims and marks those measured on other source than stands here. Measures nothing.

A result is on *this* source when the packages, its own script and what the scripts share are what they were at
its commit.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = ("evolve", "memory", "skills", "policies", "playbooks", "contrib")
HEADINGS = ("result", "figure", "target", "measured [95 %]", "n", "met", "source")
READERS = ("claim", "table", "queueing")
"""Modules beside the claims that measure nothing."""
SHARED = (":(glob)benchmarks/*.py", *(f":(exclude)benchmarks/{name}.py" for name in READERS))
MISSED = ROOT / "benchmarks" / "data" / "missed.json"
"""Claim -> figure -> why its target was missed, as far as that was measured."""
Rows = Sequence[Mapping[str, Any]]


def stored() -> dict[str, Rows]:
    """Return every stored result by name, in order of name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}


def find(rows: Rows, figure: str) -> Mapping[str, Any]:
    """Return the row of a figure; raise `KeyError` where its claim calls it otherwise by now."""
    for row in rows:
        if row["claim"] == figure:
            return row
    raise KeyError(f"got no stored figure {figure!r}; name it as its claim does")


def unmeasured() -> list[str]:
    """Return the claims that have a script but no stored result."""
    scripts = {path.stem for path in (ROOT / "benchmarks" / "claims").glob("*_[0-9]*.py")}
    return sorted(scripts - set(stored()))


def same_source(name: str, commit: str) -> bool:
    """Tell whether nothing that the result depends on changed since `commit` (an unknown commit is other source)."""
    real = ("benchmarks/real", "benchmarks/peers") if name.startswith("real_") else ()
    paths = [*PACKAGES, f"benchmarks/claims/{name}.py", *SHARED, *real]
    diff = ["git", "diff", "--quiet", commit, "--", *paths]
    return subprocess.run(diff, cwd=ROOT, capture_output=True).returncode == 0


def cells(row: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    """Return claim, target, measured with its interval, n, and whether the target is met, as text."""
    measured = "not measured" if row["measured"] is None else f"{row['measured']:.4g}"
    interval = f" [{row['ci'][0]:.4g}, {row['ci'][1]:.4g}]" if row.get("ci") else ""
    met = {True: "yes", False: "no", None: "-"}[row["ok"]]
    return row["claim"], row["target"] or "-", measured + interval, str(row["n"]), met


def lines(results: Mapping[str, Rows]) -> Iterator[tuple[str, ...]]:
    """Yield one line per figure: name, the cells, and the source it was measured on."""
    for name, rows in results.items():
        for row in rows:
            source = "this" if same_source(name, row["commit"]) else f"other ({row['commit'][:7]})"
            yield (name, *cells(row), source)


def print_rows(results: Mapping[str, Rows], title: str) -> None:
    """Print results as a table for the terminal."""
    table = Table(*HEADINGS, title=title)
    for line in lines(results):
        table.add_row(*line, style=None if line[-1] == "this" else "dim")
    Console().print(table)


def markdown(results: Mapping[str, Rows]) -> str:
    """Return results as a Markdown table, a missed target with its reason, without the column that depends on the
    working tree.
    """
    why = json.loads(MISSED.read_text())
    rows: list[tuple[str, ...]] = []
    for name, result in results.items():
        for row in result:
            *told, met = cells(row)
            reason = why.get(name, {}).get(row["claim"]) if row["ok"] is False else None
            rows.append((name, *told, f"{met}: {reason}" if reason else met))
    table = [HEADINGS[:-1], ("---",) * (len(HEADINGS) - 1), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


def main() -> None:
    """Print everything that is stored, and what is not."""
    results = stored()
    print_rows(results, title="Claims as last measured")
    other = sum(line[-1] != "this" for line in lines(results))
    if other:
        print(f"{other} figures were measured on other source than stands here: `make bench` measures again.")
    for name in unmeasured():
        print(f"{name}: no stored result.")


if __name__ == "__main__":
    main()
