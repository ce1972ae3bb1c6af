"""What may be served: every fault of an adapter's directory is refused with got, expected and what to do."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.random_adapters import random_adapter
from policies.errors import PolicyRefused
from policies.generations.adapters import BASE, CONFIG, WEIGHTS, check_adapter
from policies.generations.base_model import Base, base_of, hash_files
from policies.generations.errors import AdapterRefused
from policies.generations.tensors import shapes, values


@pytest.fixture
def adapter(adapters, base: Base, tmp_path: Path) -> Path:
    """A good one, with its base beside it."""
    path = Path(shutil.copytree(adapters(1), tmp_path / "adapter"))
    (path / BASE).write_text(base.model_dump_json())
    return path


def configured(**changes: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        file = path / CONFIG
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return change


def renamed(old: str, new: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        tensors = load_file(path / WEIGHTS)
        save_file({name.replace(old, new): value for name, value in tensors.items()}, path / WEIGHTS)

    return change


def cut(path: Path) -> None:
    file = path / WEIGHTS
    file.write_bytes(file.read_bytes()[:-100])


def other_base(key: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        file = path / BASE
        file.write_text(json.dumps(json.loads(file.read_text()) | {key: "f" * 64}))

    return change


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda path: (path / WEIGHTS).unlink(), "got no adapter_model.safetensors, expected a PEFT adapter"),
    "no json": (lambda path: (path / CONFIG).write_text("{"), "no JSON"),
    "no lora": (configured(peft_type="IA3"), "got peft_type 'IA3', expected 'LORA'"),
    "a pickle": (lambda path: (path / "adapter_model.bin").write_bytes(b"x"), r"adapter_model\.bin.*they run code"),
    "a link": (lambda path: (path / "x").symlink_to("/etc"), "links"),
    "dora": (configured(use_dora=True), "use_dora = True, expected a plain LoRA"),
    "saved modules": (configured(modules_to_save=["lm_head"]), "modules_to_save"),
    "bias": (configured(bias="all"), "bias = 'all'"),
    "pissa": (configured(init_lora_weights="pissa"), "init_lora_weights = 'pissa'"),
    "rank above the server's": (configured(rank_pattern={"q_proj": 64}), "got rank 64, expected at most 16"),
    "no rank": (configured(r="four"), "whole numbers above 0"),
    "no base": (lambda path: (path / BASE).unlink(), "no readable base.json"),
    "other weights": (other_base("weights"), "got base weights ffffffffffff, expected"),
    "other tokenizer": (other_base("tokenizer"), "got tokenizer ffffffffffff, expected"),
    "cut off": (cut, "damaged or cut off.*ends at byte"),
    "empty": (lambda path: (path / WEIGHTS).write_bytes(b""), "damaged or cut off: got 0 bytes"),
    "garbage": (lambda path: (path / WEIGHTS).write_bytes(b"\x09" + b"\0" * 7 + b"not json!"), "unreadable header"),
    "names that match nothing": (renamed("self_attn", "attention"), "'model.layers.0.attention.*one that the base"),
    "embeddings": (renamed("model.layers.0.mlp.down_proj", "model.embed_tokens"), "'model.embed_tokens'"),
    "head": (renamed("model.layers.0.mlp.down_proj", "lm_head"), "an adapted 'lm_head'"),
    "half a pair": (renamed("0.self_attn.q_proj.lora_A", "0.self_attn.k_proj.lora_A"), "no matching A and B"),
    "other tensors": (renamed("lora_A", "lora_magnitude"), "train a plain LoRA"),
    "sizes of another model": (renamed("mlp.down_proj", "mlp.gate_up"), "one that the base model has"),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_is_refused(adapter: Path, base: Base, fault: str) -> None:
    damage, message = FAULTS[fault]
    damage(adapter)
    with pytest.raises(AdapterRefused, match=message):
        check_adapter(adapter, base)


def test_a_plain_lora_passes(adapter: Path, base: Base) -> None:
    found = check_adapter(adapter, base)
    assert found.rank == 4
    assert "model.layers.1.self_attn.q_proj" in found.modules
    with pytest.raises(AdapterRefused, match="got rank 4, expected at most 2"):
        check_adapter(adapter, base, max_rank=2)


def test_sizes_that_do_not_fit_are_refused(model: Path, base: Base, adapter: Path) -> None:
    tensors = load_file(adapter / WEIGHTS)
    name = next(name for name in tensors if "q_proj.lora_A" in name)
    save_file(tensors | {name: tensors[name][:, :-1].contiguous()}, adapter / WEIGHTS)
    with pytest.raises(AdapterRefused, match="64 x 63, expected 64 x 64"):
        check_adapter(adapter, base)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings")
def test_a_real_dora_and_a_real_head_are_refused(model: Path, base: Base, tmp_path: Path) -> None:
    for name, settings, message in (
        ("dora", {"use_dora": True}, "use_dora"),
        ("head", {"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ):
        made = random_adapter(model, tmp_path / name, 1, **settings)
        (made / BASE).write_text(base.model_dump_json())
        with pytest.raises(AdapterRefused, match=message):
            check_adapter(made, base)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [*((f"{kind}{8 * size}", size) for kind in "FIU" for size in (2, 4, 8)), ("BF16", 2), ("U8", 1), ("BOOL", 1)],
)
def test_a_tensor_takes_the_bytes_of_its_type(tmp_path: Path, dtype: str, size: int) -> None:
    path = tmp_path / "one.safetensors"
    for begin, end, whole in ((0, 6 * size, True), (0, 6 * size - 1, False), (0, 6 * size + 1, False)):
        entry = {"dtype": dtype, "shape": [2, 3], "data_offsets": [begin, end]}
        header = json.dumps({"it": entry}).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + b"\1" * end)
        if whole:
            assert shapes(path) == {"it": (2, 3)}
        else:
            with pytest.raises(AdapterRefused, match=f"got {end} bytes for 'it' of {dtype}"):
                shapes(path)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_are_read_as_they_were_written(tmp_path: Path, kind: torch.dtype) -> None:
    path = tmp_path / "some.safetensors"
    tensors = {"a": torch.tensor([[1.5, -2.25, 0.0]], dtype=kind), "b": torch.tensor([-1e-3, 300.0], dtype=kind)}
    save_file(tensors, path)
    assert {name: value.tolist() for name, value in values(path)} == {
        name: value.float().tolist() for name, value in tensors.items()
    }
    save_file({"whole": torch.tensor([1, 2])}, path)
    with pytest.raises(AdapterRefused, match="'whole' of I64, where weights are F32, F16 or BF16"):
        list(values(path))


def test_the_hash_of_files_is_that_of_their_names_sizes_and_contents(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"\1" * 3_000_001)
    two.write_bytes(b"")
    said = b"one 3000001\n" + one.read_bytes() + b"two 0\n"
    assert hash_files([one, two]) == hashlib.sha256(said).hexdigest() != hash_files([two, one])


def test_the_base_is_named_by_weights_and_tokenizer(model: Path, base: Base, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "copy"))
    assert base_of(copy).same(base)
    with (copy / "chat_template.jinja").open("a") as file:
        file.write(" ")
    assert base_of(copy).weights == base.weights
    assert not base_of(copy).same(base)
    with pytest.raises(PolicyRefused, match="no base model in"):
        base_of(tmp_path)


def test_weights_are_hashed_once_for_as_long_as_their_files_are_unchanged(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    (tmp_path / "tokenizer.json").write_text("{}")
    weights.write_bytes(b"one")
    as_it_was = weights.stat().st_mtime_ns
    first = base_of(tmp_path)
    weights.write_bytes(b"two")
    os.utime(weights, ns=(as_it_was, as_it_was))
    assert base_of(tmp_path) == first
    os.utime(weights, ns=(as_it_was, as_it_was + 1))
    assert not base_of(tmp_path).same(first)
