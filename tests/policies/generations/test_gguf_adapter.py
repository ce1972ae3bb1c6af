"""Adapters in GGUF: llama.cpp computes with one what transformers and peft compute, and refuses none in silence."""

from __future__ import annotations

from pathlib import Path

import httpx
import numpy as np
import pytest
from safetensors.torch import load_file, save_file

pytest.importorskip("gguf")

from benchmarks.random_adapters import random_adapter
from memory.errors import BadInput
from policies.errors import PolicyRefused
from policies.generations.adapters import WEIGHTS
from policies.generations.errors import AdapterRefused
from policies.generations.gguf_adapter import ARCHITECTURES, check_fits, check_same_weights, to_gguf
from policies.gguf_file import inspect
from policies.llama_server import LlamaOptions, llama_server
from policies.local.adapted import AdaptedModel
from policies.server_process import HOST
from tests.policies.gguf_files import gguf_file
from tests.policies.tiny_gguf import CONTEXT, change, tiny_model

TARGETS = "all-linear"
PROMPTS = ([72, 81, 18, 38, 11, 44, 30], [5, 9, 90, 44, 17, 99, 20, 66, 31, 12, 50, 7])
EXACT = 0.02
"""llama.cpp keeps keys and values in float16."""
Pair = tuple[Path, Path]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return tiny_model(request.param, tmp_path_factory.mktemp("tiny") / request.param)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return tiny_model("llama", tmp_path_factory.mktemp("llama") / "tiny")


def completed(url: str, prompt: list[int]) -> tuple[list[int], list[float]]:
    """Return what the server says to ids greedily, with its log-probabilities."""
    body = {"prompt": prompt, "n_predict": 8, "n_probs": 1, "temperature": 0, "cache_prompt": False}
    data = httpx.post(f"{url.removesuffix('/v1')}/completion", json=body, trust_env=False, timeout=60).json()
    said = data["completion_probabilities"]
    return [each["id"] for each in said], [each["logprob"] for each in said]


def difference(model: Path, adapter: Path | None, served: list[tuple[list[int], list[float]]]) -> float:
    """Return the largest difference of a served log-probability from transformers and peft."""
    reference = AdaptedModel(str(model))
    if adapter is not None:
        reference.load("it", str(adapter))
    scored = [
        reference.logprobs(prompt, ids, "it" if adapter else None)
        for prompt, (ids, _) in zip(PROMPTS, served, strict=True)
    ]
    found = [logprobs for _, logprobs in served]
    return max(float(np.abs(np.subtract(a, b)).max()) for a, b in zip(scored, found, strict=True))


@pytest.mark.served
@pytest.mark.parametrize("settings", [{}, {"use_rslora": True, "r": 8}], ids=["lora", "rslora"])
def test_llama_cpp_computes_what_peft_computes(pair: Pair, settings: dict[str, int], tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    folder, base = pair
    adapter = random_adapter(folder, tmp_path / "adapter", 1, target_modules=TARGETS, scale=0.2, **settings)
    made = to_gguf(adapter, base, tmp_path / "adapter.gguf")
    said: dict[str, list[tuple[list[int], list[float]]]] = {}
    for name, options in {
        "base": LlamaOptions(context=CONTEXT, slots=1, threads=1),
        "adapted": LlamaOptions(context=CONTEXT, slots=1, threads=1, adapter=made),
    }.items():
        with llama_server(base, log=tmp_path / "log", name="tiny", options=options) as url:
            said[name] = [completed(url, prompt) for prompt in PROMPTS]
            listed = httpx.get(f"http://{HOST}:{url.split(':')[2].split('/')[0]}/lora-adapters", trust_env=False).json()
            assert [Path(each["path"]).name for each in listed] == ([made.name] if name == "adapted" else [])
    assert difference(folder, None, said["base"]) < EXACT, "the control: the GGUF file holds the folder's weights"
    assert difference(folder, adapter, said["adapted"]) < EXACT
    assert difference(folder, None, said["adapted"]) > 20 * EXACT, "the adapter changes what is said"


def test_an_adapter_of_other_sizes_is_refused(llama: Pair, tmp_path: Path) -> None:
    other, _ = tiny_model("llama", tmp_path / "wide", width=128)
    adapter = random_adapter(other, tmp_path / "adapter", 1, target_modules=TARGETS)
    said = r"'model\.layers\.0\.\S+' has 128 outputs, there it is 64 outputs; it was trained on another base model"
    with pytest.raises(BadInput, match=said):
        to_gguf(adapter, llama[1], tmp_path / "adapter.gguf")
    assert not list(tmp_path.glob("adapter.gguf"))


def test_a_gguf_adapter_of_another_model_is_refused(llama: Pair, tmp_path: Path) -> None:
    other, wide = tiny_model("llama", tmp_path / "wide", width=128)
    adapter = random_adapter(other, tmp_path / "adapter", 1, target_modules=TARGETS)
    made = to_gguf(adapter, wide, tmp_path / "adapter.gguf")
    check_fits(made, wide)
    with pytest.raises(BadInput, match=r"does not fit .*tiny\.gguf': 'blk\.0\.\S+' is 4 x 128.*another base model"):
        check_fits(made, llama[1])
    _, kin = tiny_model("qwen2", tmp_path / "kin", width=128)
    with pytest.raises(BadInput, match="the adapter is of architecture 'llama', there it is qwen2"):
        check_fits(made, kin)


def test_what_is_no_adapter_or_no_model_is_refused(llama: Pair, tmp_path: Path) -> None:
    folder, base = llama
    adapter = random_adapter(folder, tmp_path / "adapter", 1)
    made = to_gguf(adapter, base, tmp_path / "adapter.gguf")
    with pytest.raises(BadInput, match="is a GGUF file, and no adapter of one"):
        check_fits(base, base)
    with pytest.raises(BadInput, match="is an adapter; expected the GGUF file of its base model"):
        to_gguf(adapter, made, tmp_path / "again.gguf")
    with pytest.raises(AdapterRefused, match=r"no adapter_config\.json"):
        to_gguf(folder, base, tmp_path / "again.gguf")
    change(adapter, alpha_pattern={"q_proj": 4})
    with pytest.raises(PolicyRefused, match="got an alpha_pattern, expected one lora_alpha"):
        to_gguf(adapter, base, tmp_path / "again.gguf")


def test_an_architecture_that_is_not_known_is_refused(tmp_path: Path, llama: Pair) -> None:
    adapter = random_adapter(llama[0], tmp_path / "adapter", 1)
    other = tmp_path / "other.gguf"
    other.write_bytes(
        llama[1].read_bytes().replace(b"\x05\x00\x00\x00\x00\x00\x00\x00llama", b"\x05\0\0\0\0\0\0\0gemma")
    )
    with pytest.raises(BadInput, match=r"architecture 'gemma'; adapters are converted for llama and qwen2"):
        to_gguf(adapter, other, tmp_path / "adapter.gguf")


def test_modules_that_llama_cpp_would_not_find_are_refused(llama: Pair, tmp_path: Path) -> None:
    adapter = random_adapter(llama[0], tmp_path / "adapter", 1)
    tensors = load_file(adapter / WEIGHTS)
    for old, new in (("q_proj", "rotary"), ("layers.0.", "towers.0.")):
        save_file({name.replace(old, new): value for name, value in tensors.items()}, adapter / WEIGHTS)
        with pytest.raises(
            AdapterRefused, match=r"got an adapted '\S+', expected modules of a block: .*target_modules"
        ):
            to_gguf(adapter, llama[1], tmp_path / "adapter.gguf")
    assert not list(tmp_path.glob("adapter.gguf"))


@pytest.mark.parametrize(("factor", "same"), [(1.007, True), (1.009, False)])
def test_what_bfloat16_rounds_off_makes_no_other_model(llama: Pair, tmp_path: Path, factor: float, same: bool) -> None:
    folder, base = llama
    for path in folder.glob("*.safetensors"):
        made = {name: value * factor if "norm" in name else value for name, value in load_file(path).items()}
        save_file(made, tmp_path / path.name)
    if same:
        check_same_weights(tmp_path, base)
    else:
        with pytest.raises(BadInput, match="are not the same model"):
            check_same_weights(tmp_path, base)


def test_a_gguf_file_of_other_weights_is_noticed(pair: Pair, tmp_path: Path) -> None:
    folder, base = pair
    check_same_weights(folder, base)
    tuned, _ = tiny_model(inspect(base).architecture, tmp_path / "tuned", seed=1)
    with pytest.raises(BadInput, match=r"are not the same model: '\S+layernorm\.weight' differs"):
        check_same_weights(tuned, base)


def test_a_file_without_modules_is_refused(llama: Pair, tmp_path: Path) -> None:
    adapter = random_adapter(llama[0], tmp_path / "adapter", 1)
    with pytest.raises(BadInput, match="there it is no such module"):
        to_gguf(adapter, gguf_file(tmp_path / "small.gguf"), tmp_path / "adapter.gguf")
