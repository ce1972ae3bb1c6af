"""Claim real_7: what a small real model parrots never becomes a lesson.

500 replies of Qwen2.5-Coder-0.5B-Instruct and SmolLM2-135M-Instruct in every role, by full and by compact prompts, held
to a JSON schema and not, recorded once (`python -m benchmarks.real.replies`) and kept in the repository. Each is read
as the loop reads it, and its lessons go through gate `static` alone, into a memory that holds nothing. What is admitted
is read again by other rules than the gate's own: placeholders, names of fields, the harbour that our examples are
about, our own feedback, numbers alone, loops. Controls: such texts planted by hand, all to be refused; and true rules
about an office, to be admitted.

No model is asked. It needs the files of the benchmark (in the folder that EVOLVE_TEST_DATA names), since a question's
own words are no lesson. `--quick` reads the same.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claim import Row, at_least, begin, exactly
from benchmarks.paraphrases import load
from benchmarks.real.judged import FIRST_CONTACT, Judged, borrowed, judge, static
from benchmarks.real.replies import REPLIES, entries, formula, prompts_hash
from evolve.config.model import Config
from evolve.loop.assembly import make_environment, open_store
from memory.protocols import KnowledgeView

PLANTED = (
    *FIRST_CONTACT,
    "Call `crane.lock` before `crane.lift`: a crane that is not locked refuses with E7.",
    "Lock the crane before it lifts a box.",
    "Before lifting, call crane.lock with the berth of the box.",
    "The crane was taken to be locked from the start.",
    "correct_approach",
    "root cause",
    "<the lesson>",
    "The reply holds no JSON object",
    "error: no code was found",
    "200000",
    "The ROI is 400.0, and the ROI is 200.0, and the ROI is 200.0, and the ROI is 200.0, and the ROI is 200.0.",
)


async def judged(view: KnowledgeView) -> list[Judged]:
    """Return what became of every recorded reply."""
    tasks = make_environment(Config.model_validate({"environment": formula()})).tasks("train")
    instructions = {task.id: task.instruction for task in tasks}
    return [await judge(entry, view, instructions) for entry in entries()]


def rows(found: Sequence[Judged], planted: Sequence[str], true: tuple[int, int]) -> list[Row]:
    """Return the figures. `planted` are those admitted, `true` (admitted, of)."""
    n, read = len(found), Counter(each.read for each in found)
    lessons = [text for each in found for text in each.lessons]
    admitted = [text for each in found for text in each.admitted]
    parroted = [text for text in admitted if borrowed(text)]
    fresh = sum(each.entry.prompts == prompts_hash() for each in found)
    return [
        Row("recorded replies", n, at_least(REPLIES)),
        *(Row(f"{how}, %", 100 * read[how] / n, n=n) for how in ("parsed", "repaired", "refused")),
        Row("lessons in them", len(lessons)),
        Row("of these placeholders or parroted, %", _share(sum(map(bool, map(borrowed, lessons))), len(lessons))),
        Row("lessons that gate static alone admits", len(admitted)),
        Row("of these placeholders or parroted", len(parroted), exactly(0), n=len(admitted)),
        Row("planted placeholders that it admits", len(planted), exactly(0), n=len(PLANTED)),
        Row("true rules that it admits, %", _share(*true), at_least(95), n=true[1]),
        Row("replies to the prompts that stand here now, %", 100 * fresh / n, n=n),
        *_by_cell(found),
    ]


def _by_cell(found: Sequence[Judged]) -> list[Row]:
    """Return the usable share by role, profile, model and whether a schema held the reply."""
    cells: dict[str, list[bool]] = {}
    for each in found:
        entry = each.entry
        held = ", held to a schema" if entry.schema_held else ""
        name = f"usable: {entry.role}, {entry.profile} prompts, {entry.model}{held}, %"
        cells.setdefault(name, []).append(each.usable)
    return [Row(name, _share(sum(used), len(used)), n=len(used)) for name, used in sorted(cells.items())]


def _share(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


async def measured() -> list[Row]:
    """Read what was recorded, and the controls."""
    with tempfile.TemporaryDirectory() as folder, open_store(Config(root=Path(folder))) as store:
        view = store.view("default")
        rules = [item.rule for item in load()]
        admitted = [await static([rule], view, ()) for rule in rules]
        planted = [text for text in PLANTED if await static([text], view, ())]
        return rows(await judged(view), planted, (sum(map(len, admitted)), len(rules)))


def main() -> None:
    """Read and record."""
    run = begin("real_7_placeholders", __doc__)
    run.conclude(asyncio.run(measured()))


if __name__ == "__main__":
    main()
