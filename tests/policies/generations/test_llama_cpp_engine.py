"""What llama.cpp tells of the tokens it sampled, over HTTP: matched by id, and not a number where it tells nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, isnan, nan
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf")

from fastapi import FastAPI

from policies.errors import PolicyRefused
from policies.generations.llama_cpp_engine import LlamaCppEngine
from policies.llama_server import LlamaOptions
from policies.protocols import SamplingParams
from tests.policies.gguf_files import gguf_file
from tests.policies.model_server import serving


@dataclass
class Telling:
    """A server that answers every completion alike."""

    answer: dict[str, Any] = field(default_factory=dict)
    url: str = ""

    def app(self) -> FastAPI:
        app = FastAPI()
        app.post("/completion")(lambda: self.answer)
        return app


async def told(folder: Path, tokens: list[int], chances: list[dict[str, float]]) -> tuple[float, ...]:
    """Return the probabilities that an engine takes from an answer."""
    engine = LlamaCppEngine(gguf_file(folder / "tiny.gguf"), folder / "llama", LlamaOptions(context=256, slots=1))
    answer = {"tokens": tokens, "completion_probabilities": chances, "stop_type": "word"}
    with serving(Telling(answer)) as server:
        engine._url, engine._version = server.url.removesuffix("/v1"), "v1"
        done = await engine.sample((1, 2), SamplingParams(), "v1")
    assert (done.token_ids, done.finish_reason) == (tuple(tokens), "stop")
    return tuple(exp(each) for each in done.logprobs)


def chance(token: int, prob: float) -> dict[str, float]:
    return {"id": token, "prob": prob}


@pytest.mark.parametrize(
    ("tokens", "chances", "expected"),
    [
        ([5, 6], [chance(5, 0.5), chance(6, 0.25)], (0.5, 0.25)),
        ([5, 6, 7], [chance(5, 0.5), chance(7, 0.25)], (0.5, nan, 0.25)),
        ([5, 6, 7], [chance(5, 0.5)], (0.5, nan, nan)),
        ([5, 6, 6], [chance(5, 0.5), chance(6, 0.25)], (0.5, nan, nan)),
        ([5, 6], [chance(5, 0.0), chance(6, 0.25)], (nan, 0.25)),
    ],
    ids=["all", "half a character", "a stop string", "which of two", "none at all"],
)
async def test_a_probability_is_of_the_token_it_was_told_for(
    tmp_path: Path, tokens: list[int], chances: list[dict[str, float]], expected: tuple[float, ...]
) -> None:
    found = await told(tmp_path, tokens, chances)
    assert found == pytest.approx(expected, nan_ok=True)
    assert [isnan(each) for each in found] == [isnan(each) for each in expected]


@pytest.mark.parametrize("chances", [[chance(9, 0.5)], [chance(6, 0.5), chance(5, 0.5)], [{"prob": 0.5}]])
async def test_a_probability_of_another_token_is_refused(tmp_path: Path, chances: list[dict[str, float]]) -> None:
    with pytest.raises(PolicyRefused, match="without tokens and their probabilities"):
        await told(tmp_path, [5, 6], chances)
