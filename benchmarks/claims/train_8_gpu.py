"""Claim train_8: sampling and training on a GPU, as `make gpu` measured them there (`benchmarks/results/gpu`).

Nothing is measured here but with `--quick`: a device is lent for half an hour, and what it said is kept with its name.
Its updates and answers are those of the CPU (control: how far the updates moved the same numbers), its memory is as
planned, and it samples faster by steps that are recorded as graphs (control: the same steps, started kernel by kernel).
A plan that the clock cut off there is made here: it needs the model's configuration alone.
Where no GPU was had, the row says so, and what stands there of a CPU is shown beside it. `--quick`: the step `parity`
on the device at hand.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.claim import Row, Target, at_least, at_most, begin
from benchmarks.formula_arms import FORMULA
from benchmarks.gpu import HALF, LONG, SEVEN, parity
from benchmarks.table import RESULTS
from policies.rl.step_memory import step_memory

NATS = 0.05
"""How far bf16 may move a log-probability."""
PLANNED = 15
"""How far memory may be from its plan, in percent."""
CONTROL, SPEED, UPDATE = "control: ", ", tokens a second", ": an update"
MEASURED, PLAN = ", most memory, GiB", ", planned, GiB"
PLANNABLE = {"7 B": SEVEN, "0.5 B": HALF}
"""Models of `make gpu` by the name that their figures have."""
ROW = re.compile(r"(.+): an update on a row of ([\d,]+) tokens")


def stored() -> Iterator[dict[str, Any]]:
    """Yield what each step measured, device by device."""
    for file in sorted((RESULTS / "gpu").glob("*/*.json")):
        if file.name != FORMULA:
            yield json.loads(file.read_text())


def rows(steps: list[dict[str, Any]]) -> list[Row]:
    """Return the table."""
    table: list[Row] = []
    if all(each["device"].startswith("CPU") for each in steps):
        table.append(Row("figures of a GPU: not run, none was had", None, Target("measured", lambda _: True), n=0))
    for step in steps:
        gpu, commit = not step["device"].startswith("CPU"), step.get("commit")
        figures = {each["figure"]: each["value"] for each in step["rows"]}
        for figure, value in figures.items():
            told = f"{step['device']}: {step['step']}: {figure}"
            close = gpu and figure.endswith(", nats") and not figure.startswith("control")
            failed = gpu and figure.endswith("out of memory")
            target = Target("measured", lambda _: True) if failed else at_most(NATS) if close else None
            table.append(Row(told, value, target, commit=commit))
            without = figures.get(f"{CONTROL}{figure}") if figure.endswith(SPEED) else None
            if without and value:
                table.append(Row(f"{told}, times that of its control", value / without, at_least(1.0) if gpu else None))
            if gpu and figure.endswith(MEASURED) and UPDATE in figure:  # what ended too soon is missed, not left out
                plan = figures.get(figure.removesuffix(MEASURED) + PLAN) or planned(figure)
                off = 100 * abs(value / plan - 1) if plan and value else None
                table.append(Row(f"{told}, % from its plan", off, at_most(PLANNED)))
    return table


def planned(figure: str) -> float | None:
    """Return what an update takes by plan, in GiB, by the name of its figure; None for a model not known here."""
    found = ROW.match(figure)
    if not found or found[1] not in PLANNABLE:
        return None
    with tempfile.TemporaryDirectory(prefix="evolve-plan-") as folder:
        (Path(folder) / "config.json").write_text(json.dumps(PLANNABLE[found[1]]))
        return step_memory(Path(folder), LONG, int(found[2].replace(",", "")), gpu=True).step / 2**30


def main() -> None:
    """Measure and record."""
    claim = begin("train_8_gpu", __doc__)
    if claim.quick:
        claim.conclude(
            [Row(figure, value, at_most(NATS) if "apart" in figure else None) for figure, value in parity(Path())]
        )
    claim.conclude(rows(list(stored())))


if __name__ == "__main__":
    main()
