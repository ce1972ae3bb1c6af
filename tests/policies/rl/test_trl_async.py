"""TRL's async trainer behind our trainer's files: the update of our loss, a refusal by name for what it cannot do."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from memory.errors import BadInput
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.generations.local_engine import LocalEngine
from policies.local.loading import load_tokenizer
from policies.local.local_policy import POCKET
from policies.rl.backends import make_trainer
from policies.rl.batch import batch_of, score
from policies.rl.corrections.tis import Tis
from policies.rl.losses.dapo import Dapo
from policies.rl.losses.gspo import Gspo
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.packing import packs
from policies.rl.protocols import Array
from policies.rl.rows import TrainRow
from policies.rl.trainer import Trainer, TrainingStopped
from policies.rl.trl_async import Portions, TrlAsyncTrainer, samples
from tests.policies.generations.vllm_like import VllmLike
from tests.policies.model_server import serving
from tests.policies.rl.test_trainer import ADVANTAGES, ROWS, model, weights

pytestmark = pytest.mark.slow
_ = model  # a fixture
SAME = [np.full_like(each, each[0]) for each in ADVANTAGES]
"""One advantage a row."""
SETTINGS = OptimiserOptions(learning_rate=1e-2, rank=4)


def named(rows: Sequence[TrainRow], version: int) -> list[TrainRow]:
    """Return rows that a version sampled."""
    name = {"policy_version": f"trl-policy-v{version}"}
    return [row.model_copy(update={"spans": tuple(s.model_copy(update=name) for s in row.spans)}) for row in rows]


class Given:
    """A rollout worker of TRL with the rows it is given."""

    def __init__(self, rows: Sequence[TrainRow], advantages: Sequence[Array]) -> None:
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        self.versions: list[int] = []
        for each in samples(rows, advantages):
            self.rollout_buffer.put(each)

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def update_model_version(self, model_version: int) -> None:
        self.versions.append(model_version)

    def check_health(self, stale_after_s: float) -> None:
        raise TrainingStopped("there are no more rows")


@pytest.fixture(scope="module")
def chat(model: Path) -> Path:
    """The small random model, with a tokenizer that TRL may ask for what ends a text."""
    load_tokenizer(str(POCKET)).save_pretrained(model)
    return model


@pytest.fixture
def server(chat: Path) -> Iterator[VllmLike]:
    with serving(VllmLike(LocalEngine(chat, threads=1))) as found:
        yield found


@pytest.fixture(scope="module")
def start(chat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that says something."""
    trainer = Trainer(chat, Ppo(), SETTINGS)
    trainer.step(ROWS, ADVANTAGES)
    trainer.save(path := tmp_path_factory.mktemp("start") / "adapter")
    return path


def apart(rows: Sequence[TrainRow], trainer: Trainer) -> list[TrainRow]:
    """Return rows that were sampled by a policy so far from the trainer's that all of the loss's bounds are met."""
    batch = batch_of(rows, SAME)
    logp, found = trainer.logprobs(rows, batch), list[TrainRow]()
    for at, row in enumerate(rows):
        old, offsets = [0.0] * len(row.completion_ids), (-2.0, 0.05, 1.0)
        places = [place for place, own in enumerate(row.loss_mask) if own]
        for n, place in enumerate(places):
            old[place] = float(logp[at, n]) + offsets[(n + at) % 3]
        found.append(row.model_copy(update={"sampling_logprobs": tuple(old)}))
    return found


@pytest.mark.parametrize("loss", [Ppo(), Dapo(), Ppo(dual_clip=None)])
def test_trl_makes_the_update_of_our_loss_whatever_parts_it_is_computed_in(
    chat: Path, start: Path, server: VllmLike, tmp_path: Path, loss: Ppo
) -> None:
    ours = Trainer(chat, loss, SETTINGS, start=start)
    rows = named(apart(ROWS, ours), 1)
    batch = batch_of(rows, SAME)
    (pack,) = packs(rows, 4096)
    logp, _ = score(ours.model, pack, rows, batch.part(pack.rows), 1.0)
    part = batch.part(pack.rows)
    tokens, metrics = loss(logp, part.rollout_logp, part.advantages, part.mask)
    wanted = tokens.sum() / part.mask.sum()
    wanted.backward()
    norm = float(torch.nn.utils.clip_grad_norm_(ours.model.parameters(), SETTINGS.max_grad_norm))
    ours.optimizer.step()

    theirs = make_trainer("trl_async", chat, loss, SETTINGS, start=start)
    assert isinstance(theirs, TrlAsyncTrainer)
    worker = Given([*rows, *rows[:2]], [*SAME, *SAME[:2]])
    told: list[dict[str, float]] = []
    theirs.connect(server.url, worker, tmp_path / "served", Portions(rows=4, part=2))
    theirs.run(1, lambda figures: bool(told.append(figures)))
    assert told[0]["loss"] == pytest.approx(float(wanted.detach()), rel=1e-4)
    assert told[0]["gradient_norm"] == pytest.approx(norm, rel=1e-3)
    assert told[0]["tokens"] == part.mask.sum()
    assert metrics["clip_fraction"] > 0
    if loss.dual_clip is not None:
        assert metrics["dual_clip_fraction"] > 0
    torch.testing.assert_close(weights(theirs), weights(ours), rtol=0, atol=2e-4)
    assert worker.versions == [1, 2], "published before the first row, and after the update"
    assert server.adapters == {}
    assert not (tmp_path / "served").exists()


def test_names_on_the_server_are_never_used_again(chat: Path, server: VllmLike, start: Path, tmp_path: Path) -> None:
    server.adapters["trl-policy-v7"] = str(start)
    theirs = make_trainer("trl_async", chat, Ppo(), SETTINGS)
    assert isinstance(theirs, TrlAsyncTrainer)
    worker = Given([*named(ROWS, 8), *named(ROWS[:2], 8)], [*SAME, *SAME[:2]])
    theirs.connect(server.url, worker, tmp_path / "served", Portions(rows=4, part=2))
    theirs.run(1, lambda _: True)
    assert worker.versions == [8, 9]


@pytest.mark.parametrize(
    ("loss", "settings", "said"),
    [
        (Gspo(), {}, r"Gspo\("),
        (Ppo(dual_clip=1.1), {}, "dual_clip=1.1"),
        (Ppo(aggregation="seq-mean-token-mean"), {}, "seq-mean-token-mean"),
        (Ppo(), {"epochs": 2}, "epochs 2"),
        (Ppo(), {"minibatches": 2}, "minibatches 2"),
        (Ppo(), {"schedule": "cosine", "horizon": 9}, "schedule 'cosine'"),
        (Ppo(), {"warmup_updates": 3}, "warmup_updates 3"),
    ],
)
def test_what_trl_does_not_compute_is_refused_by_name(chat: Path, loss: Any, settings: Any, said: str) -> None:
    with pytest.raises(PolicyRefused, match=f'{said}.*train.backend = "torch"'):
        make_trainer("trl_async", chat, loss, OptimiserOptions(**settings))


def test_a_correction_and_rows_at_once_are_refused(chat: Path) -> None:
    with pytest.raises(PolicyRefused, match="Tis"):
        make_trainer("trl_async", chat, Ppo(), OptimiserOptions(), correction=Tis())
    with pytest.raises(PolicyRefused, match="4 rows at once"):
        make_trainer("trl_async", chat, Ppo(), OptimiserOptions()).step(ROWS, SAME)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"dev_mode": False}, "VLLM_SERVER_DEV_MODE=1"),
        ({"run_time_lora": False}, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"),
        ({"started": {"lora_config": None, "parallel_config": {"data_parallel_size": 1}}}, "--enable-lora"),
        (
            {
                "started": {
                    "lora_config": {"max_lora_rank": 2, "max_loras": 4},
                    "parallel_config": {"data_parallel_size": 1},
                }
            },
            "--max-lora-rank 8",
        ),
        (
            {
                "started": {
                    "lora_config": {"max_lora_rank": 8, "max_loras": 3},
                    "parallel_config": {"data_parallel_size": 1},
                }
            },
            "--max-loras 4",
        ),
    ],
)
def test_a_server_that_cannot_take_adapters_is_named_with_what_it_lacks(
    chat: Path, tmp_path: Path, fault: dict[str, Any], said: str
) -> None:
    trainer = make_trainer("trl_async", chat, Ppo(), SETTINGS)
    assert isinstance(trainer, TrlAsyncTrainer)
    with serving(VllmLike(LocalEngine(chat, threads=1), **fault)) as server, pytest.raises(PolicyRefused, match=said):
        trainer.connect(server.url, Given([], []), tmp_path, Portions(4, 2))
    with pytest.raises(PolicyUnavailable, match=r"no vLLM server answers at .*evolve policy serve"):
        trainer.connect(server.url, Given([], []), tmp_path, Portions(4, 2))


def test_rows_are_what_trl_packs_for_its_async_trainer() -> None:
    """TRL's own packing of our samples holds as many tokens as our packs and trains the same targets."""
    from trl.experimental.async_grpo.async_grpo_trainer import DataCollatorForRollout
    from trl.experimental.async_grpo.packing import TreeRow

    packed, made = TreeRow(), samples(named(ROWS, 5), SAME)
    for each in made:
        packed.add(
            {
                name: torch.as_tensor(value) if name.endswith(("ids", "mask", "probs")) else value
                for name, value in asdict(each).items()
            }
        )
    assert {each.model_version for each in made} == {5}
    batch = DataCollatorForRollout(pad_token_id=0).torch_call([[packed]])
    wanted = batch_of(ROWS, SAME)
    before = batch["token_index"][0]
    assert batch["shift_labels"][0][before].tolist() == wanted.tokens[wanted.mask].tolist()
    assert batch["advantages"][0].tolist() == pytest.approx(wanted.advantages[wanted.mask].tolist())
    assert batch["old_log_probs"][0].tolist() == pytest.approx(wanted.rollout_logp[wanted.mask].tolist())
    assert int(batch["global_n_tokens"]) == int(wanted.mask.sum())
    (pack,) = packs(ROWS, 4096)
    assert pack.size <= batch["input_ids"].numel() < sum(len(r.prompt_ids) + len(r.completion_ids) for r in ROWS)
    with pytest.raises(BadInput, match="trl_async takes one advantage a row"):
        samples(named(ROWS, 5), ADVANTAGES)
