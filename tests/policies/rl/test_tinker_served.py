"""A training through a server of others that speaks Tinker's API: SkyRL's, on a CPU, with the client of Tinker.

It wants an environment of its own, with evolve's extras `pocket` and `rl`, `skyrl[tinker,jax]==0.3.0` and
`tinker==0.20.0`, the newest client that this server understands; elsewhere it skips.

S1  as it is shipped, its JAX backend divides a cross-entropy by the sum of weights: its updates are refused
S2  where that division is taken out of it, two updates there, from the adapter that it begins with, are our trainer's
S3  what the server samples it tells as our trainer computes it, and the adapter that it hands out says the same
S4  a checkpoint goes on there; a training of a workspace ends in a candidate
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

pytest.importorskip("skyrl.tinker.api")
pytest.importorskip("jax")

from safetensors.torch import load_file

from evolve.training import ledger
from evolve.training.training_session import train
from memory.objects import load_object
from policies.errors import PolicyRefused
from policies.generations.adapters import WEIGHTS, inspect_weights
from policies.generations.tinker_engine import TinkerEngine
from policies.protocols import SamplingParams
from policies.rl.backends import make_trainer
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.trainer import Trainer
from policies.server_process import free_port
from tests.evolve.training.test_tinker_rollouts import config_of
from tests.policies.rl.test_trainer import ADVANTAGES, ROWS
from tests.policies.tiny_gguf import CONTEXT, END, tiny_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.served,
    # the older client leaves its connections to the garbage collector; peft asks transformers for what that has renamed
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::FutureWarning"),
]
SUMMING = """
import importlib.abc, importlib.machinery, importlib.util, sys

DIVIDED = b" / jnp.maximum(loss_mask.sum(axis=-1), 1e-9)"
UNTOLD = b"metrics={},"
TOLD = b"metrics={'loss:sum': float(sum(each.sum() for each in token_losses_out[start_idx:end_idx]))},"


class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        source = self.get_data(self.path)
        assert source.count(DIVIDED) == source.count(UNTOLD) == 1
        return self.source_to_code(source.replace(DIVIDED, b"").replace(UNTOLD, TOLD), self.path)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "skyrl.backends.jax":
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        return importlib.util.spec_from_file_location(name, found.origin, loader=Loader(name, found.origin))


sys.meta_path.insert(0, Finder())
"""
"""A `sitecustomize` with which the server sums as Tinker does, and tells the sum."""
SHIM = """#!/bin/sh
# SkyRL starts its engine by `uv run ... -m skyrl.tinker.engine`: here with the interpreter of this environment.
while [ "$1" != "-m" ]; do shift; done
"{python}" "$@"
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "tiny")[0]


@pytest.fixture(scope="module", params=["shipped", "summing"], autouse=True)
def server(request: pytest.FixtureRequest, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    shim = folder / "uv"
    shim.write_text(SHIM.format(python=sys.executable))
    shim.chmod(0o755)
    own = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "JAX_PLATFORMS": "cpu"}
    if request.param == "summing":
        (folder / "sitecustomize.py").write_text(SUMMING)
        own["PYTHONPATH"] = str(folder)
    config = '{"max_lora_adapters": 8, "max_lora_rank": 16}'
    options = ["--base-model", str(base), "--backend", "jax", "--backend-config", config, "--port", str(port)]
    options += ["--checkpoints-base", str(folder / "kept"), "--database-url", f"sqlite:///{folder}/server.db"]
    with (folder / "log").open("w") as log:
        command = ["uv", "run", "-m", "skyrl.tinker.api", *options]
        started = subprocess.Popen(
            command, executable=str(shim), env=own, stdout=log, stderr=log, start_new_session=True
        )
        os.environ |= {"TINKER_BASE_URL": f"http://127.0.0.1:{port}", "TINKER_API_KEY": "tml-none"}
        try:
            until = time.monotonic() + 240
            while not _answers(f"http://127.0.0.1:{port}/api/v1/healthz"):
                assert started.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < until, (folder / "log").read_text()
                time.sleep(1)
            yield request.param
        finally:
            os.killpg(started.pid, 15)
            started.wait()


@pytest.fixture
def summing(server: str) -> None:
    if server != "summing":
        pytest.skip("its updates are refused")


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def made(base: Path, backend: Any = "tinker", **settings: Any) -> Trainer:
    start = settings.pop("start", None)
    named = {"hosted_model": str(base)} if backend == "tinker" else {}
    chosen = {"learning_rate": 1e-3, "rank": 4, "max_tokens": 32, "max_grad_norm": 1e6} | named | settings
    return make_trainer(backend, base, Ppo(), OptimiserOptions(**chosen), start=start)


def test_updates_that_are_not_summed_are_refused(server: str, base: Path) -> None:
    if server == "shipped":
        with pytest.raises(PolicyRefused, match=r"told the loss None.*nothing was updated"):
            made(base).step(ROWS, ADVANTAGES)


@pytest.mark.usefixtures("summing")
def test_an_update_there_is_one_of_our_own_trainer(base: Path, tmp_path: Path) -> None:
    hosted = made(base)
    hosted.save(tmp_path / "begun")
    inspect_weights(tmp_path / "begun", base)
    own = made(base, "torch", start=tmp_path / "begun")
    for _ in range(2):
        theirs, ours = hosted.step(ROWS, ADVANTAGES), own.step(ROWS, ADVANTAGES)
        for name in ("loss", "rollout_kl", "ratio_mean", "clip_fraction"):
            assert theirs[name] == pytest.approx(ours[name], abs=2e-3), name
    hosted.save(tmp_path / "theirs")
    own.save(tmp_path / "ours")
    begun, found, expected = (load_file(tmp_path / name / WEIGHTS) for name in ("begun", "theirs", "ours"))
    moved = torch.cat([(expected[name] - begun[name]).flatten() for name in begun])
    there = torch.cat([(found[name] - begun[name]).flatten().float() for name in begun])
    assert float(torch.nn.functional.cosine_similarity(moved, there, dim=0)) > 0.99
    assert float(there.norm()) == pytest.approx(float(moved.norm()), rel=0.05)


@pytest.mark.usefixtures("summing")
async def test_what_it_samples_it_tells_as_our_trainer_computes_it(base: Path, tmp_path: Path) -> None:
    hosted = made(base, learning_rate=3e-2)
    hosted.step(ROWS, ADVANTAGES)
    hosted.save_for_sampling(tmp_path / "u1")
    engine = TinkerEngine(load_object("tinker:ServiceClient")(), str(base), {END}, CONTEXT)
    await engine.load("u1", tmp_path / "u1")
    found = await engine.sample((5, 6, 7), SamplingParams(temperature=1.0, max_tokens=24), "u1")
    span = ROWS[0].spans[0].model_copy(update={"start": 0, "stop": len(found.token_ids)})
    told = {"prompt_ids": (5, 6, 7), "completion_ids": found.token_ids, "sampling_logprobs": found.logprobs}
    row = ROWS[0].model_copy(update={**told, "spans": (span,)})
    hosted.save(tmp_path / "adapter")
    own = made(base, "torch", start=tmp_path / "adapter")
    assert own.step([row], ADVANTAGES[2:3])["rollout_kl"] < 1e-4
    assert hosted.step([row], ADVANTAGES[2:3])["rollout_kl"] < 1e-4
    plain = made(base, "torch")
    assert plain.step([row], ADVANTAGES[2:3])["rollout_kl"] > 1e-3, "without the adapter it would say something else"


@pytest.mark.usefixtures("summing")
def test_a_checkpoint_goes_on_there(base: Path, tmp_path: Path) -> None:
    first = made(base)
    first.step(ROWS, ADVANTAGES)
    first.checkpoint(tmp_path / "checkpoint", {"iterations": 1})
    first.step(ROWS, ADVANTAGES)
    then = made(base)
    assert then.resume(tmp_path / "checkpoint") == {"iterations": 1}
    then.step(ROWS, ADVANTAGES)
    first.save(tmp_path / "first")
    then.save(tmp_path / "then")
    one, other = (load_file(tmp_path / name / WEIGHTS) for name in ("first", "then"))
    assert all(torch.allclose(one[name].float(), other[name].float(), atol=1e-5) for name in one)


@pytest.mark.usefixtures("summing")
def test_a_training_of_a_workspace_ends_in_a_candidate(base: Path, tmp_path: Path) -> None:
    config = config_of(base, tmp_path / "ws", tinker={"base_model": str(base)})
    done = train(config, "grpo")
    told = ledger.lines(done.folder / ledger.METRICS)
    assert (done.generation, done.updates) == ("policy-v1", 2)
    assert all(0 <= line["rollout_kl"] < 1e-4 for line in told), "the server samples with what it trains"
