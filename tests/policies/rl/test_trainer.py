"""The trainer over a small random Llama: packs change nothing, the world's tokens teach nothing, and what is saved is
what was trained.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForCausalLM, CohereConfig, Gemma2Config, GraniteConfig, LlamaConfig, LlamaForCausalLM

from contrib.corrections.masking import Masking
from memory.errors import BadInput
from policies.errors import PolicyRefused
from policies.local.loading import computes_bfloat16, load_model
from policies.rl import batch as batch_module
from policies.rl import trainer as trainer_module
from policies.rl.batch import batch_of, score, split
from policies.rl.corrections.tis import Tis
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.packing import packs
from policies.rl.rows import TrainRow, Turn, rows_of
from policies.rl.trainer import Trainer, TrainingStopped
from tests.policies.full_disk import largest_file

ROW = TrainRow(trajectory_id="t", prompt_ids=(), completion_ids=(), sampling_logprobs=(), spans=())


def turn(step: int, prompt: list[int], said: list[int]) -> Turn:
    return Turn(
        step=step,
        prompt_ids=tuple(prompt),
        token_ids=tuple(said),
        logprobs=tuple(-0.5 - 0.1 * n for n in range(len(said))),
        policy_version="v1",
    )


def row(*said: list[int], prompt: tuple[int, ...] = (5, 6, 7), seen: int = 9) -> TrainRow:
    """Return an episode of which each turn says something and is answered with the token `seen`."""
    turns: list[Turn] = []
    ids = list(prompt)
    for step, tokens in enumerate(said):
        turns.append(turn(step, ids, tokens))
        ids = [*ids, *tokens, seen]
    (made,) = rows_of(turns, ROW)
    return made


ROWS = [row([11, 12], [13]), row([11, 14], [15, 16, 17]), row([20], prompt=(5, 6, 8)), row([11, 12], [13])]
ADVANTAGES = [np.array([1.0, 0.5]), np.array([-1.0, 0.25]), np.array([0.7]), np.array([-0.2, 0.1])]


SETTINGS = OptimiserOptions(learning_rate=1e-2, rank=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    path = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(config).save_pretrained(path)
    return path


def trainer(model: Path, **settings: Any) -> Trainer:
    loss = settings.pop("loss", Ppo())
    return Trainer(model, loss, OptimiserOptions(**({"learning_rate": 1e-2, "rank": 4} | settings)))


def weights(made: Trainer) -> torch.Tensor:
    return torch.cat([value.flatten() for _, value in sorted(made.merged())])


def test_turns_that_go_on_from_each_other_are_one_row_and_only_what_the_policy_wrote_is_masked_in() -> None:
    made = rows_of([turn(0, [1, 2], [3, 4]), turn(2, [1, 2, 3, 4, 9, 9], [5])], ROW)
    assert [(each.prompt_ids, each.completion_ids, each.loss_mask) for each in made] == [
        ((1, 2), (3, 4, 9, 9, 5), (1, 1, 0, 0, 1))
    ]
    assert made[0].sampling_logprobs == (-0.5, -0.6, 0.0, 0.0, -0.5)
    assert [span.step for span in made[0].spans] == [0, 2]


def test_a_prompt_that_was_rewritten_begins_a_new_row() -> None:
    made = rows_of([turn(0, [1, 2], [3, 4]), turn(1, [1, 2, 3, 8, 9], [5]), turn(2, [1, 2, 3, 8, 9, 5, 6], [7])], ROW)
    assert [(each.prompt_ids, each.completion_ids) for each in made] == [((1, 2), (3, 4)), ((1, 2, 3, 8, 9), (5, 6, 7))]


def test_a_turn_without_numbers_is_a_past_and_not_trained_on() -> None:
    broken = turn(0, [1, 2], [3, 4]).model_copy(update={"logprobs": (-0.5, math.nan)})
    (made,) = rows_of([broken, turn(2, [1, 2, 3, 4, 9], [5])], ROW)
    assert (made.completion_ids, made.loss_mask) == ((3, 4, 9, 5), (0, 0, 0, 1))
    assert made.sampling_logprobs == (0.0, 0.0, 0.0, -0.5)
    (nothing,) = rows_of([broken], ROW)
    assert nothing.trained == 0


@pytest.mark.parametrize("off", [-2.0, 2.0])
def test_an_engine_that_computes_something_else_is_seen_whichever_way_it_errs(model: Path, off: float) -> None:
    """The mean of differences alone is below zero where the engine thinks tokens likelier than they are (B12)."""
    made = trainer(model)
    own = iter(made.logprobs(ROWS[:1], batch_of(ROWS[:1], ADVANTAGES[:1]))[0].tolist())
    right = tuple(next(own) if on else 0.0 for on in ROWS[0].loss_mask)
    wrong = tuple(each + off * on for each, on in zip(right, ROWS[0].loss_mask, strict=True))
    agreeing, erring = (ROWS[0].model_copy(update={"sampling_logprobs": told}) for told in (right, wrong))
    assert trainer(model).step([agreeing], ADVANTAGES[:1])["rollout_kl"] == pytest.approx(0, abs=1e-9)
    assert trainer(model).step([erring], ADVANTAGES[:1])["rollout_kl"] == pytest.approx(
        math.exp(-off) - 1 + off, rel=1e-4
    )


def ratios(made: Trainer, rows: list[TrainRow] = ROWS) -> torch.Tensor:
    """Return how much likelier the weights as they are find each trained token than who sampled it."""
    batch = batch_of(rows, [np.zeros(len(each.spans)) for each in rows])
    return (made.logprobs(rows, batch) - batch.rollout_logp)[batch.mask].double().exp()


@pytest.mark.parametrize("pack_tokens", [1024, 64])
def test_importance_ratios_are_told_by_their_largest_and_by_how_many_tokens_they_leave(
    model: Path, pack_tokens: int
) -> None:
    made = trainer(model, pack_tokens=pack_tokens)
    many = [row([at, 12], [13], prompt=tuple(range(at, at + 20))) for at in range(10, 16)]
    ratio = ratios(made, many)
    assert len(packs(many, pack_tokens)) == (1 if pack_tokens > 64 else 3)
    told = made.step(many, [np.array([1.0, -0.5])] * 6)
    assert told["ratio_max"] == pytest.approx(float(ratio.max()), rel=1e-4)
    assert told["ratio_mean"] == pytest.approx(float(ratio.mean()), rel=1e-4)
    assert told["ess"] == pytest.approx(float(ratio.sum() ** 2 / ratio.square().sum() / len(ratio)), rel=1e-4)
    assert 0 < told["ess"] < 1
    assert told["update_tokens_per_s"] * told["seconds"] == pytest.approx(6 * 24)


def test_of_several_updates_the_largest_ratio_is_told_and_the_mean_of_all_else() -> None:
    found = [{"ratio_max": 1.5, "loss": 1.0}, {"ratio_max": 9.0, "loss": 2.0}, {"ratio_max": 2.0, "loss": 6.0}]
    assert trainer_module._over_updates(found) == {"ratio_max": 9.0, "loss": 3.0}


def test_weights_of_a_correction_are_told_and_bounded_by_its_cap(model: Path) -> None:
    made = Trainer(model, Ppo(), SETTINGS, correction=Tis(cap=0.03))
    weights_of = ratios(made).clamp(max=0.03)
    assert float(weights_of.max()) == pytest.approx(0.03), "the cap is met"
    told = made.step(ROWS, ADVANTAGES)
    assert told["correction_max"] == pytest.approx(0.03)
    assert told["correction_mean"] == pytest.approx(float(weights_of.mean()), rel=1e-4)


def test_a_clip_bounds_what_is_reused_by_the_weights_that_sampled_it(model: Path) -> None:
    """Anew each row begins at the ratio 1; reused, at what updates made of it: here so much that nothing is moved."""
    (own,) = trainer(model).logprobs(ROWS[:1], batch_of(ROWS[:1], ADVANTAGES[:1])).tolist()
    far = iter(own)
    told = tuple(next(far) - 0.5 if on else 0.0 for on in ROWS[0].loss_mask)
    fresh = ROWS[0].model_copy(update={"sampling_logprobs": told})
    reused = fresh.model_copy(update={"reused": True})
    anew, again = (trainer(model).step([each], ADVANTAGES[:1]) for each in (fresh, reused))
    assert (anew["clip_fraction"], again["clip_fraction"]) == (0, 1)
    assert again["gradient_norm"] == 0 < anew["gradient_norm"]
    assert again["approx_kl"] == pytest.approx(-0.5, rel=1e-4)
    both = trainer(model).step([reused, fresh], [ADVANTAGES[0]] * 2)
    assert both["clip_fraction"] == 0.5, "a fresh row beside it begins at 1"
    weighed = Trainer(model, Ppo(), SETTINGS, correction=Tis(cap=1.5)).step([reused], ADVANTAGES[:1])
    assert weighed["clip_fraction"] == 0, "the correction weighs the distance, the clip does not see it too"
    assert weighed["correction_mean"] == weighed["correction_max"] == 1.5


def test_how_far_the_policy_is_from_its_base_is_told_where_it_is_asked_for(model: Path) -> None:
    """Rows are scored as the base does, so the divergence is that of the numbers they were sampled with."""
    assert "reference_kl" not in trainer(model).step(ROWS, ADVANTAGES)
    made = trainer(model, reference_kl=True)
    base = ratios(trainer(model))
    expected = pytest.approx(float((base - 1 - base.log()).mean()), rel=1e-4)
    assert made.step(ROWS, ADVANTAGES)["reference_kl"] == expected
    before = weights(made)
    assert made.step(ROWS, ADVANTAGES)["reference_kl"] == expected, "the base does not move with the adapter"
    assert not torch.equal(before, weights(made)), "and the adapter is on again"


def test_rows_that_begin_alike_are_computed_once_and_their_logprobs_are_those_of_each_alone(model: Path) -> None:
    net = load_model(str(model), None)
    (pack,) = packs(ROWS, 4096)
    assert pack.size < sum(len(each.prompt_ids) + len(each.completion_ids) for each in ROWS) - 10
    batch = batch_of(ROWS, ADVANTAGES).part(pack.rows)
    logp, _ = score(net, pack, ROWS, batch, 1.0)
    for at, index in enumerate(pack.rows):
        ids = torch.tensor([[*ROWS[index].prompt_ids, *ROWS[index].completion_ids]])
        every = torch.log_softmax(net(ids).logits[0, :-1], -1).gather(-1, ids[0, 1:, None])[:, 0]
        alone = every[len(ROWS[index].prompt_ids) - 1 :][torch.tensor(ROWS[index].loss_mask, dtype=torch.bool)]
        torch.testing.assert_close(logp[at][batch.mask[at]], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("numbers", [1, 100])
def test_logits_in_parts_give_the_same_update(model: Path, monkeypatch: pytest.MonkeyPatch, numbers: int) -> None:
    """Parts of one token, and of two of the seven."""
    whole, cut = trainer(model), trainer(model)
    wanted = whole.step(ROWS, ADVANTAGES)
    shapes: list[int] = []
    monkeypatch.setattr(batch_module, "NUMBERS", numbers)
    monkeypatch.setattr(batch_module, "_opinion", seen(batch_module._opinion, shapes))
    found = cut.step(ROWS, ADVANTAGES)
    assert max(shapes) == max(1, numbers // 40)
    for name in ("loss", "entropy", "gradient_norm"):
        assert found[name] == pytest.approx(wanted[name], rel=1e-4)
    torch.testing.assert_close(weights(whole), weights(cut), rtol=0, atol=1e-6)


def seen(function: Any, sizes: list[int]) -> Any:
    """Return the function; it notes the first size of what it is given."""

    def noting(logits: torch.Tensor, *rest: Any) -> Any:
        sizes.append(len(logits))
        return function(logits, *rest)

    return noting


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (Gemma2Config, {"head_dim": 16, "final_logit_softcapping": 0.5}),
        (CohereConfig, {"logit_scale": 0.25}),
        (GraniteConfig, {"logits_scaling": 4.0}),
    ],
)
def test_logits_that_are_capped_or_scaled_are_computed_in_parts_too(
    kind: Any, named: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(2)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    made = AutoModelForCausalLM.from_config(kind(vocab_size=400, num_key_value_heads=2, **sizes, **named))
    parts = split(made)
    assert parts is not None
    assert (parts.scale, parts.cap) != (1.0, None)
    batch = batch_of(ROWS, ADVANTAGES)
    (pack,) = packs(ROWS, 1 << 20)
    whole = score(made, pack, ROWS, batch, 0.7)
    monkeypatch.setattr("policies.rl.batch.NUMBERS", 800)
    for one, other in zip(score(made, pack, ROWS, batch, 0.7, parts), whole, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_a_model_that_does_more_with_its_logits_is_not_taken_apart(model: Path) -> None:
    class Capped(LlamaForCausalLM):
        def forward(self, *inputs: Any, **more: Any) -> Any:
            found: Any = super().forward(*inputs, **more)
            found.logits = torch.tanh(found.logits)
            return found

    assert split(load_model(str(model), None)) is not None
    assert split(Capped.from_pretrained(model)) is None


def test_a_row_alone_needs_no_mask_and_what_is_not_kept_is_computed_again(model: Path) -> None:
    alone = [row([at, 12], [13], prompt=tuple(range(at, at + 30))) for at in (3, 5)]
    assert [pack.mask() for pack in packs(alone, 64)] != [None]
    assert [pack.mask() for pack in packs(alone, 40)] == [None, None]
    advantages = [np.array([1.0, -0.5]), np.array([0.5, 1.0])]
    together, apart, again = (
        trainer(model),
        trainer(model, pack_tokens=64),
        trainer(model, pack_tokens=64, gradient_checkpointing=True),
    )
    losses = [each.step(alone, advantages)["loss"] for each in (together, apart, again)]
    assert losses[1:] == pytest.approx(losses[:1] * 2, abs=1e-6)
    for each in (apart, again):
        torch.testing.assert_close(weights(together), weights(each), rtol=0, atol=2e-5)
    layers = again.accelerator.unwrap_model(again.model).get_base_model().model.layers
    assert all(layer.gradient_checkpointing for layer in layers)


@pytest.mark.parametrize(
    "settings", [{}, {"weights": "full", "learning_rate": 1e-3}, {"loss": Ppo(aggregation="seq-mean-token-mean")}]
)
def test_however_a_batch_is_cut_into_packs_the_update_is_the_same(model: Path, settings: dict[str, Any]) -> None:
    whole, cut = trainer(model, **settings), trainer(model, pack_tokens=64, **settings)
    many = [row([at, 12], [13], prompt=tuple(range(at, at + 20))) for at in range(10, 16)]
    advantages = [np.array([1.0, -0.5 * at]) for at in range(6)]
    before = weights(whole)
    assert whole.step(many, advantages)["loss"] == pytest.approx(cut.step(many, advantages)["loss"], abs=1e-6)
    assert not torch.equal(before, weights(whole))
    torch.testing.assert_close(weights(whole), weights(cut), rtol=0, atol=2e-5)


def test_what_the_world_wrote_is_no_part_of_the_loss(model: Path) -> None:
    """The last observation is seen by no later turn: another one must leave loss and gradient as they are."""
    (a, b) = (trainer(model), trainer(model))
    ended = [
        row([11, 12], [13]).model_copy(
            update={"completion_ids": (11, 12, 9, 13, last), "sampling_logprobs": (-0.5, -0.6, 0, -0.5, 0)}
        )
        for last in (30, 31)
    ]
    assert a.step([ended[0]], [ADVANTAGES[0]])["loss"] == b.step([ended[1]], [ADVANTAGES[0]])["loss"]
    assert torch.equal(weights(a), weights(b))


def test_a_positive_advantage_makes_a_turn_more_likely_and_a_negative_one_less(model: Path) -> None:
    made = trainer(model, loss=Ppo(), learning_rate=3e-3)
    two = [row([11, 12]), row([21, 22])]
    advantages = [np.array([1.0]), np.array([-1.0])]
    batch = batch_of(two, advantages)
    before = made.logprobs(two, batch)
    for _ in range(3):
        made.step(two, advantages)
    after = made.logprobs(two, batch)
    assert (after[0] > before[0]).all()
    assert (after[1] < before[1]).all()


def test_minibatches_compare_with_the_policy_before_the_batch(model: Path) -> None:
    made = trainer(model, minibatches=2, epochs=2, learning_rate=5e-2)
    metrics = made.step(ROWS, ADVANTAGES)
    assert made.updates == 4
    assert metrics["approx_kl"] != 0


def test_a_resumed_training_goes_on_as_if_it_had_not_stopped(model: Path, tmp_path: Path) -> None:
    through, first = trainer(model, minibatches=2), trainer(model, minibatches=2)
    through.step(ROWS, ADVANTAGES)
    first.step(ROWS, ADVANTAGES)
    first.checkpoint(tmp_path / "checkpoint.pt")
    second = trainer(model, minibatches=2)
    second.resume(tmp_path / "checkpoint.pt")
    through.step(ROWS, ADVANTAGES)
    second.step(ROWS, ADVANTAGES)
    assert torch.equal(weights(through), weights(second))
    with pytest.raises(PolicyRefused, match="written with"):
        trainer(model, minibatches=1).resume(tmp_path / "checkpoint.pt")


RATES = {
    "constant": [0, 1 / 2, 1, 1, 1, 1],
    "linear": [0, 1 / 2, 1, 3 / 4, 1 / 2, 1 / 4],
    "cosine": [0, 1 / 2, 1, *(0.5 + 0.5 * math.cos(math.pi * done / 4) for done in (1, 2, 3))],
}
"""Of six updates, two of them warm-up."""


@pytest.mark.parametrize("schedule", RATES)
def test_the_rate_of_each_update_is_that_of_the_schedule_killed_or_not(
    model: Path, tmp_path: Path, schedule: str
) -> None:
    settings = {"schedule": schedule, "warmup_updates": 2, "horizon": 6}
    through, first = trainer(model, **settings), trainer(model, **settings)
    rates = [through.step(ROWS, ADVANTAGES)["learning_rate"] for _ in range(6)]
    assert rates == pytest.approx([1e-2 * share for share in RATES[schedule]])
    for _ in range(3):
        first.step(ROWS, ADVANTAGES)
    first.checkpoint(tmp_path / "checkpoint.pt")
    second = trainer(model, **settings)
    second.resume(tmp_path / "checkpoint.pt")
    assert [second.step(ROWS, ADVANTAGES)["learning_rate"] for _ in range(3)] == rates[3:]
    assert torch.equal(weights(through), weights(second))


def test_the_first_update_of_a_warm_up_changes_nothing_and_its_rate_is_used(model: Path) -> None:
    made = trainer(model, warmup_updates=1, horizon=2)
    before = weights(made)
    made.step(ROWS, ADVANTAGES)
    assert torch.equal(before, weights(made))
    made.step(ROWS, ADVANTAGES)
    assert not torch.equal(before, weights(made))


def test_minibatches_are_updates_of_the_schedule(model: Path) -> None:
    made = trainer(model, minibatches=2, epochs=2, schedule="linear", horizon=8)
    assert made.step(ROWS, ADVANTAGES)["learning_rate"] == pytest.approx(1e-2 * (8 + 7 + 6 + 5) / 4 / 8)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"schedule": "linear"}, "got schedule = 'linear' and no number of updates"),
        ({"warmup_updates": 6, "horizon": 6}, "got warmup_updates = 6 in a training of 6 updates"),
    ],
)
def test_a_schedule_that_does_not_end_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        OptimiserOptions(**settings)


def test_a_checkpoint_of_an_earlier_version_is_gone_on_from(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    made = trainer(model)
    made.step(ROWS, ADVANTAGES)
    made.checkpoint(path, {"iterations": 1})
    state = torch.load(path, weights_only=True)
    state["settings"]["clip"] = state["settings"].pop("max_grad_norm")
    for since in ("dtype", "schedule", "warmup_updates", "horizon"):
        del state["settings"][since]
    state["settings"] |= {"aggregation": "token-mean", "max_tokens": 99}
    torch.save(state, path)
    assert trainer(model).resume(path) == {"iterations": 1}


def test_a_saved_adapter_says_its_modules_in_one_order(model: Path, tmp_path: Path) -> None:
    trainer = Trainer(model, Ppo(), OptimiserOptions(rank=2))
    trainer.save(tmp_path / "adapter")
    modules = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["target_modules"]
    assert modules == sorted(modules)
    assert len(modules) > 1


def test_a_saved_adapter_is_what_was_trained_and_is_never_written_over(model: Path, tmp_path: Path) -> None:
    made = trainer(model)
    made.step(ROWS, ADVANTAGES)
    made.save(tmp_path / "v1")
    loaded = load_model(str(model), str(tmp_path / "v1")).state_dict()
    for name, value in made.merged():
        torch.testing.assert_close(loaded[name], value, rtol=0, atol=1e-6)
    with pytest.raises(PolicyRefused, match="exists"):
        made.save(tmp_path / "v1")


def test_a_full_disk_is_told_as_one_and_leaves_what_was_written_before(model: Path, tmp_path: Path) -> None:
    made = trainer(model)
    path = tmp_path / "checkpoint.pt"
    made.checkpoint(path, {"iterations": 1})
    before = path.read_bytes()
    with largest_file(2000):
        with pytest.raises(OSError, match="File too large") as told:
            made.checkpoint(path, {"iterations": 2})
        assert told.value.filename == f"{path}.new"
        with pytest.raises(OSError, match="File too large"):
            made.save(tmp_path / "v1")
    assert path.read_bytes() == before
    assert not (tmp_path / "v1").exists()
    made.save(tmp_path / "v1")
    assert trainer(model).resume(path) == {"iterations": 1}


@dataclass
class Faulty:
    """A loss that is no number the first `faults` times, as a kernel now and then."""

    faults: int
    aggregation: None = None

    def __call__(
        self, logp: torch.Tensor, old_logp: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        self.faults -= 1
        loss, metrics = Ppo()(logp, old_logp, advantages, mask)
        return (loss * math.nan if self.faults >= 0 else loss), metrics


def test_a_gradient_that_is_no_number_once_is_computed_again(model: Path) -> None:
    sound, faulty = trainer(model), Trainer(model, Faulty(1), SETTINGS)
    told, expected = faulty.step(ROWS, ADVANTAGES), sound.step(ROWS, ADVANTAGES)
    assert torch.equal(weights(faulty), weights(sound))
    assert told["recomputed"] == 1
    assert told["loss"] == expected["loss"]
    assert "recomputed" not in expected
    assert "recomputed" not in faulty.step(ROWS, ADVANTAGES)


def test_log_probabilities_that_are_no_numbers_once_are_computed_again(model: Path) -> None:
    sound, faulty = (trainer(model, minibatches=2) for _ in range(2))
    faults = [math.nan]
    head = faulty.acting.get_output_embeddings()
    head.register_forward_hook(lambda module, given, logits: logits * (faults.pop() if faults else 1.0))
    told, expected = faulty.step(ROWS, ADVANTAGES), sound.step(ROWS, ADVANTAGES)
    assert torch.equal(weights(faulty), weights(sound))
    assert told["recomputed"] == 1
    assert told["loss"] == expected["loss"]


def test_a_gradient_that_is_no_number_stops_and_leaves_the_weights(model: Path) -> None:
    made = trainer(model)
    before = weights(made)
    with pytest.raises(TrainingStopped, match="lower learning_rate"):
        made.step(ROWS, [np.full_like(each, np.inf) for each in ADVANTAGES])
    assert torch.equal(before, weights(made))
    made.step(ROWS, ADVANTAGES)
    assert torch.isfinite(weights(made)).all()


def test_what_was_sampled_after_another_past_counts_as_sampled_by_the_weights_as_they_are(model: Path) -> None:
    """A correction weighs such tokens by 1, as it weighs those that the weights themselves sampled."""
    (forgotten, known) = (Trainer(model, Ppo(), SETTINGS, correction=Tis()) for _ in range(2))
    own = known.logprobs(ROWS[:1], batch_of(ROWS[:1], ADVANTAGES[:1]))[0].tolist()
    said = iter(own)
    scored = tuple(next(said) if on else 0.0 for on in ROWS[0].loss_mask)
    rewritten = ROWS[0].model_copy(update={"sampling_logprobs": (*ROWS[0].sampling_logprobs[:3], math.nan)})
    half = tuple(scored[at] if at == 3 else each for at, each in enumerate(ROWS[0].sampling_logprobs))
    told = forgotten.step([rewritten], ADVANTAGES[:1])
    expected = known.step([ROWS[0].model_copy(update={"sampling_logprobs": half})], ADVANTAGES[:1])
    assert (told.pop("unscored"), "unscored" in expected) == (1, False)
    timed = ("seconds", "update_tokens_per_s")
    assert {name: told[name] for name in told if name not in timed} == pytest.approx(
        {name: expected[name] for name in expected if name not in timed}, abs=1e-6
    )
    torch.testing.assert_close(weights(forgotten), weights(known), rtol=0, atol=1e-6)


def test_what_nobody_scored_has_a_ratio_of_one_and_takes_no_pass_of_its_own(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = [row.model_copy(update={"sampling_logprobs": (math.nan,) * len(row.completion_ids)}) for row in ROWS]
    made, known = trainer(model), trainer(model)
    scored = known.scored(unknown)
    expected = known.step(scored, ADVANTAGES)
    monkeypatch.setattr(made, "logprobs", None)
    told = made.step(unknown, ADVANTAGES)
    assert told["unscored"] == told["tokens"]
    assert (told["rollout_kl"], told["ratio_mean"], told["ratio_max"], told["ess"]) == (0, 1, 1, 1)
    assert told["loss"] == pytest.approx(expected["loss"], abs=1e-6)
    torch.testing.assert_close(weights(made), weights(known), rtol=0, atol=1e-6)


def test_only_what_nobody_scored_is_filled_in(model: Path) -> None:
    first = next(at for at, on in enumerate(ROWS[0].loss_mask) if on)
    said = list(ROWS[0].sampling_logprobs)
    said[first] = math.nan
    (filled,) = trainer(model).scored([ROWS[0].model_copy(update={"sampling_logprobs": tuple(said)})])
    own = trainer(model).logprobs(ROWS[:1], batch_of(ROWS[:1], ADVANTAGES[:1]))[0, 0]
    assert filled.sampling_logprobs[first] == pytest.approx(float(own))
    assert [*filled.sampling_logprobs[first + 1 :]] == said[first + 1 :]


def test_what_a_correction_leaves_out_is_counted_and_teaches_nothing(model: Path) -> None:
    made = Trainer(model, Ppo(), SETTINGS, correction=Masking("token", low=1e6, high=1e7))
    before = weights(made)
    assert made.step(ROWS, ADVANTAGES)["masked_share"] == 1
    assert torch.equal(before, weights(made))
    assert Trainer(model, Ppo(), SETTINGS, correction=Tis()).step(ROWS, ADVANTAGES)["masked_share"] == 0


def test_rows_without_a_trained_token_are_refused(model: Path) -> None:
    with pytest.raises(BadInput, match="without a trained token"):
        trainer(model).step([ROW.model_copy(update={"prompt_ids": (1, 2)})], [np.zeros(0)])


def test_a_base_held_in_bfloat16_trains_like_one_of_the_same_numbers(model: Path, tmp_path: Path) -> None:
    rounded = LlamaForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    rounded.save_pretrained(tmp_path)
    wide, held = trainer(tmp_path, dtype="float32"), trainer(tmp_path, dtype="bfloat16")
    frozen = [each for each in held.acting.parameters() if not each.requires_grad]
    assert {each.dtype for each in frozen} == {torch.bfloat16}
    within = 1e-2 if computes_bfloat16() else 1e-6
    for _ in range(3):
        assert wide.step(ROWS, ADVANTAGES)["loss"] == pytest.approx(held.step(ROWS, ADVANTAGES)["loss"], abs=within)
