"""Puts small faults into the source, one at a time, and sees whether a test notices. Survivors are printed as diffs.

    python -m benchmarks.mutants --count 60 --seed 17

Run in a copy of the tree. For each mutant the tests of its area are run, those that import the changed module first,
and the first failure ends it; it counts only if the same test passes on the source as it is. Tests that do not end
within the time box catch the mutant if they do end on the source. What is neither caught nor survived is undecided.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from tempfile import TemporaryDirectory
from threading import Lock

from benchmarks.mutation import Mutant, mutants, sound
from benchmarks.table import PACKAGES, ROOT

EQUIVALENT = Path(__file__).parent / "data" / "mutants_equivalent.jsonl"
"""Mutants that change nothing that can be observed, each with the reason. Named by file, kind, before and after."""
KEPT = (*PACKAGES, "benchmarks", "labs", "tests", "docs", "examples")
CAUGHT, SURVIVED, UNDECIDED = "caught", "survived", "undecided"
_FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+)", re.MULTILINE)


@dataclass(frozen=True)
class Area:
    """Files that are mutated, and the tests that should notice, as patterns of paths."""

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]


AREAS = (
    Area(
        "memory",
        ("memory/*.py", "memory/indexes/*.py"),
        (
            "tests/memory/test_*.py",
            "tests/contracts/test_indexes.py",
            *(
                f"tests/evolve/cli/test_cli_{verb}.py"
                for verb in ("backup", "bad_input", "exemplars", "forget", "knowledge")
            ),
            *(f"tests/evolve/cli/test_cli_{verb}.py" for verb in ("notebook", "skills", "transfer")),
            "tests/evolve/inspector/test_*pages.py",
            "tests/evolve/loop/test_retire.py",
            "tests/evolve/workspace/test_workspace.py",
        ),
    ),
    Area(
        "gates",
        ("evolve/gates/*.py", "evolve/loop/nodes/gate.py", "evolve/loop/nodes/commit.py"),
        (
            "tests/evolve/gates/test_gate_*.py",
            "tests/evolve/gates/test_gates_in_the_loop.py",
            "tests/evolve/loop/test_learning_parts.py",
            "tests/evolve/cli/test_cli_gates.py",
            "tests/evolve/loop/test_waiting_between_runs.py",
            "tests/evolve/*/test_*_in_the_loop.py",
            "tests/evolve/gates/test_*quarantine.py",
            "tests/contracts/test_learning_gates.py",
        ),
    ),
    Area(
        "trust",
        ("evolve/episode/trust.py", "evolve/gates/quarantine.py", "playbooks/delta_checks.py"),
        (
            "tests/playbooks/test_deltas.py",
            "tests/evolve/loop/test_learning_parts.py",
            "tests/evolve/gates/test_*quarantine.py",
            "tests/evolve/episode/test_taint.py",
            "tests/evolve/episode/test_exemplars.py",
            "tests/evolve/integrations/test_hearsay.py",
        ),
    ),
    Area(
        "sandbox",
        ("skills/sandbox/*.py", "skills/static_checks.py", "skills/skill_gate.py", "skills/names.py"),
        ("tests/contracts/test_sandbox*.py", "tests/skills/test_*.py"),
    ),
    Area(
        "generations",
        ("policies/generations/*.py",),
        (
            "tests/policies/generations/test_*.py",
            "tests/contracts/test_adapter_engines.py",
            "tests/evolve/generations/test_generations.py",
            "tests/evolve/cli/test_cli_policy.py",
        ),
    ),
)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    area: str
    answer: str
    by: str = ""
    """The test that noticed."""
    seconds: float = 0.0


def sample(root: Path, count: int, seed: int, areas: Sequence[Area] = AREAS) -> list[tuple[Area, Mutant]]:
    """Draw mutants in turn from every area and, within it, from every kind of fault; no place twice."""
    rng, known = random.Random(seed), equivalents()
    queues: dict[str, list[Iterator[Mutant]]] = {}
    for area in areas:
        kinds: dict[str, list[Mutant]] = defaultdict(list)
        for name in _matching(root, area.files):
            for mutant in mutants(name, (root / name).read_text(encoding="utf-8")):
                if _name(mutant) not in known:
                    kinds[mutant.kind].append(mutant)
        for found in kinds.values():
            rng.shuffle(found)
        order = sorted(kinds)
        rng.shuffle(order)
        queues[area.name] = [iter(kinds[kind]) for kind in order]
    drawn: list[tuple[Area, Mutant]] = []
    places: set[tuple[str, int]] = set()
    while len(drawn) < count and any(queues.values()):
        for area in areas:
            found = _next(root, queues[area.name], places)
            if found and len(drawn) < count:
                drawn.append((area, found))
    return drawn


def _next(root: Path, queue: list[Iterator[Mutant]], places: set[tuple[str, int]]) -> Mutant | None:
    """Take one from the first kind, which goes to the end of the queue; a kind that is used up leaves it."""
    while queue:
        kind = queue.pop(0)
        for mutant in kind:
            place = (mutant.file, mutant.line)
            if place not in places and sound(mutant, (root / mutant.file).read_text(encoding="utf-8")):
                places.add(place)
                queue.append(kind)
                return mutant
    return None


def equivalents() -> frozenset[tuple[str, ...]]:
    """Return the names of the mutants that are known to change nothing."""
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines() if EQUIVALENT.exists() else []
    return frozenset(tuple(json.loads(line)[key] for key in ("file", "kind", "before", "after")) for line in lines)


def _name(mutant: Mutant) -> tuple[str, ...]:
    return mutant.file, mutant.kind, mutant.before, mutant.after


def _matching(root: Path, patterns: Sequence[str]) -> list[str]:
    return sorted({path.relative_to(root).as_posix() for each in patterns for path in root.glob(each)})


def copy_tree(root: Path, copy: Path) -> None:
    """Copy what tests need of a tree."""
    copy.mkdir(exist_ok=True)
    for name in KEPT:
        if (root / name).is_dir():
            shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    for file in root.iterdir():
        if file.is_file() and not file.name.startswith("."):
            shutil.copyfile(file, copy / file.name)


class Tree:
    """A copy of the tree to break."""

    def __init__(self, root: Path, copy: Path, box: float) -> None:
        """Copy what tests need of `root` to `copy`; `box` is the time for one mutant, in seconds."""
        self.root, self.copy, self.box = root, copy, box
        copy_tree(root, copy)

    def judge(self, area: Area, mutant: Mutant) -> Verdict:
        """Return what becomes of a mutant. The copy is whole again afterwards."""
        started, file = time.monotonic(), self.copy / mutant.file
        tests = self.tests(area, mutant.file)
        original = file.read_text(encoding="utf-8")
        file.write_text(mutant.source, encoding="utf-8")
        try:
            failed = self._failing(tests)
        finally:
            file.write_text(original, encoding="utf-8")
        if failed is None:
            answer, by = (CAUGHT if self._failing(tests) == [] else UNDECIDED), "time"
        elif failed:
            answer, by = (CAUGHT if self._failing(failed) == [] else UNDECIDED), failed[0]
        else:
            answer, by = SURVIVED, ""
        return Verdict(mutant, area.name, answer, by, time.monotonic() - started)

    def tests(self, area: Area, file: str) -> list[str]:
        """Return the test files of an area, those that import the module first, then those that say its name."""
        module = file.removesuffix(".py").replace("/", ".")
        package, _, name = module.rpartition(".")

        def distance(test: str) -> tuple[int, int]:
            text = (self.copy / test).read_text(encoding="utf-8")
            direct = module in text or re.search(rf"from {re.escape(package)} import .*\b{name}\b", text)
            return 0 if direct else 1 if name.split("_")[0] in test or name in text else 2, len(text)

        found = {each for each in _matching(self.copy, ("tests/**/test_*.py",)) if _is_any(each, area.tests)}
        return sorted(found, key=distance)

    def _failing(self, tests: Sequence[str]) -> list[str] | None:
        """Run tests up to the first failure and return what failed; None when the time was up."""
        apart = ("-p", "no:cacheprovider", "-p", "no:slipcover")  # nobody else's coverage is theirs
        command = [sys.executable, "-P", "-m", "pytest", *tests, "-x", "-q", "--tb=no", *apart]
        environ = os.environ | {"PYTHONPATH": str(self.copy), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            command, cwd=self.copy, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                out, _ = process.communicate(timeout=self.box)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                return None
        if process.returncode == 0:
            return []
        return _FAILED.findall(out) or [tests[0]]


def _is_any(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def run(
    root: Path,
    chosen: Sequence[tuple[Area, Mutant]],
    *,
    box: float,
    until: float = float("inf"),
    jobs: int = 1,
    kept: Path | None = None,
) -> list[Verdict]:
    """Judge mutants, `jobs` at a time, and print what becomes of each; none is begun after the time `until`.

    Verdicts are added to the JSON lines of the file `kept` as they are found; those that it holds are not sought again.
    """
    before = _verdicts(kept)
    waiting: Queue[tuple[Area, Mutant]] = Queue()
    found: dict[tuple[str, ...], Verdict] = {}
    for area, mutant in chosen:
        if _place(mutant) in before:
            answer, by, seconds = before[_place(mutant)]
            found[_place(mutant)] = Verdict(mutant, area.name, answer, by, seconds)
        else:
            waiting.put((area, mutant))
    saying = Lock()

    def work(folder: Path) -> None:
        tree = Tree(root, folder, box)
        while time.monotonic() <= until:
            try:
                area, mutant = waiting.get_nowait()
            except Empty:
                return
            verdict = tree.judge(area, mutant)
            with saying:
                found[_place(mutant)] = verdict
                _say(root, verdict)
                if kept is not None:
                    _keep(kept, verdict)

    with TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        for worker in [pool.submit(work, Path(folder, str(number))) for number in range(jobs)]:
            worker.result()
    return [found[_place(mutant)] for _, mutant in chosen if _place(mutant) in found]


def _place(mutant: Mutant) -> tuple[str, ...]:
    return *_name(mutant), str(mutant.line)


def _say(root: Path, verdict: Verdict) -> None:
    mutant = verdict.mutant
    where = f"{mutant.file}:{mutant.line} ({mutant.kind})"
    print(f"{verdict.answer:<9} {where} {verdict.seconds:.0f} s {verdict.by}", flush=True)
    if verdict.answer == SURVIVED:
        print(mutant.diff((root / mutant.file).read_text(encoding="utf-8")), flush=True)


def _keep(kept: Path, verdict: Verdict) -> None:
    line = {"mutant": _place(verdict.mutant), "answer": verdict.answer, "by": verdict.by, "seconds": verdict.seconds}
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _verdicts(kept: Path | None) -> dict[tuple[str, ...], tuple[str, str, float]]:
    lines = kept.read_text(encoding="utf-8").splitlines() if kept is not None and kept.exists() else []
    told = [json.loads(line) for line in lines]
    return {tuple(each["mutant"]): (each["answer"], each["by"], each["seconds"]) for each in told}


def share(verdicts: Sequence[Verdict]) -> float | None:
    """Return the share of the decided mutants that a test caught; None when none was decided."""
    counts = Counter(each.answer for each in verdicts)
    decided = counts[CAUGHT] + counts[SURVIVED]
    return counts[CAUGHT] / decided if decided else None


def main() -> None:
    """Judge a sample. Exit code 1 when fewer than `--least` of at least four decided mutants were caught."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--box", type=float, default=240.0, help="seconds for the tests of one mutant")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no mutant after this time")
    parser.add_argument("--least", type=float, default=0.5)
    parser.add_argument("--area", choices=[area.name for area in AREAS], action="append")
    given = parser.parse_args()
    until, areas = time.monotonic() + 60 * given.minutes, [a for a in AREAS if not given.area or a.name in given.area]
    verdicts = run(Path(ROOT), sample(Path(ROOT), given.count, given.seed, areas), box=given.box, until=until)
    caught, counts = share(verdicts), Counter(each.answer for each in verdicts)
    print(f"seed {given.seed}: {dict(counts)}" + ("" if caught is None else f", caught {caught:.0%} of the decided"))
    decided = counts[CAUGHT] + counts[SURVIVED]
    raise SystemExit(1 if decided >= 4 and caught is not None and caught < given.least else 0)


if __name__ == "__main__":
    main()
