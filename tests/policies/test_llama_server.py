"""llama.cpp's server: what cannot be served is one sentence; with weights at hand, a real model answers by schema."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel

from benchmarks.real import models
from memory.errors import BadInput
from policies.errors import PolicyUnavailable
from policies.llama_server import LlamaOptions, llama_server
from policies.openai_server import OpenAIPolicy
from policies.protocols import Message, SamplingParams
from policies.schemas import most_chars, most_items, schema_of
from tests.policies.gguf_files import gguf_file

SMALL = "smollm2-135m-instruct"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "enum": [1, 2]}}, "required": ["n"]}


class Listed(BaseModel):
    lines: Annotated[tuple[Annotated[str, most_chars(20)], ...], most_items(4)]


def serve(model: Path, options: LlamaOptions | None = None) -> None:
    with llama_server(model, log=model.with_name("log"), name="tiny", options=options, ready_within_s=600):
        pytest.fail("it was served")


def test_a_model_without_chat_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"tiny\.gguf' \(llama\) has no chat template.*expected an instruct model"):
        serve(gguf_file(tmp_path / "tiny.gguf", template=""))


def test_more_context_than_the_model_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="was trained for 512 tokens of context, got 4096"):
        serve(gguf_file(tmp_path / "tiny.gguf"))


def test_what_llama_cpp_cannot_load_is_explained_by_its_log(tmp_path: Path) -> None:
    with pytest.raises(PolicyUnavailable, match=r"(?s)llama\.cpp ended with status .*while starting.*log says"):
        serve(gguf_file(tmp_path / "tiny.gguf"), LlamaOptions(context=256, slots=1))


@pytest.mark.served
@pytest.mark.skipif(not os.environ.get("EVOLVE_MODELS"), reason="EVOLVE_MODELS names no real models")
async def test_a_real_model_is_served_and_constrained_by_a_schema(tmp_path: Path) -> None:
    options = LlamaOptions(context=512, slots=2, threads=1)
    with llama_server(models.gguf(SMALL), log=tmp_path / "log", name=SMALL, options=options) as url:
        policy = OpenAIPolicy(url, SMALL)
        try:
            found = await policy.server_features()
            asked = [Message(role="user", content="Say anything but a number.")]
            reply = await policy.generate(asked, SamplingParams(max_tokens=32, response_schema=SCHEMA))
            endless = [Message(role="user", content="List every number from 1 to 1000, in words, and go on.")]
            ended = await policy.generate(endless, SamplingParams(max_tokens=256, response_schema=schema_of(Listed)))
        finally:
            await policy.aclose()
    assert (found.server, found.json_schema, found.tools, found.logprobs) == ("llamacpp", True, True, True)
    assert json.loads(reply.text)["n"] in {1, 2}
    lines = json.loads(ended.text)["lines"]
    assert (ended.finish_reason, len(lines) <= 4, all(len(line) <= 20 for line in lines)) == ("stop", True, True)
