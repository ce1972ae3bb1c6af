"""Recorded replies of a claim: a life begun anew from them is where it was, and asks only for what is new."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.claim import Run
from benchmarks.real import recorded
from benchmarks.real.arms import lived, recording
from benchmarks.real.lives import Life
from benchmarks.real.recorded import Recorded, pack
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.benchmarks.real.test_arms import FORMULA, SECTIONS, knowing
from tests.policies.model_server import MODEL, ModelServer, serving

ASKED, GREEDY = [Message(role="user", content="a question")], SamplingParams(max_tokens=8)
SCRIPT = ["said"]


def test_a_life_begun_anew_elsewhere_asks_for_nothing(tmp_path: Path) -> None:
    packed = tmp_path / "repository" / "claim.jsonl.gz"
    with serving(ModelServer(answer=knowing)) as server:
        first = Recorded(tmp_path / "here", packed)
        life = Life(tmp_path / "here" / "life", server.url, MODEL, FORMULA, SECTIONS, recorded=first)
        arms = lived(life, 2, 2)
        asked = len(server.requests)
        assert first.asked == (0, asked)
        assert pack(tmp_path / "here", packed) == asked

    whole = packed.read_bytes()
    with serving(ModelServer(answer=lambda body: "print(-2)")) as other:
        second = Recorded(tmp_path / "there", packed)
        again = replace(life, root=tmp_path / "there" / "life", url=other.url, recorded=second)
        assert lived(again, 2, 2) == arms
        assert (second.asked, other.requests) == ((asked, 0), [])
        pack(tmp_path / "there", packed)
        assert packed.read_bytes() == whole

        more = replace(again, root=tmp_path / "there" / "more")
        lived(more, 2, 2, sections={"exemplars": {"enabled": False}})
        taken, new = second.asked
        assert taken > asked
        assert new < asked


def test_equal_requests_of_two_who_ask_are_two(tmp_path: Path) -> None:
    known = Recorded(tmp_path, tmp_path / "none.gz")
    with serving(ModelServer(answer=knowing)) as server:
        for who in ("", "untrained", ""):
            lives = Life(tmp_path / f"life-{who}", server.url, MODEL, FORMULA, SECTIONS, recorded=known, who=who)
            lives.bare(2)
        assert known.asked == (2, 4)


def test_no_prompt_can_be_read_from_what_is_recorded(tmp_path: Path) -> None:
    known = Recorded(tmp_path, tmp_path / "none.gz")
    with serving(ModelServer(answer=knowing, vllm=True)) as server:
        Life(tmp_path / "life", server.url, MODEL, FORMULA, SECTIONS, recorded=known).bare(2)
    entries = [json.loads(line)["reply"] for line in known.file.read_text().splitlines()]
    assert [entry["text"] for entry in entries] == ["```python\nprint(-1)\n```"] * 2
    assert not any(entry[name] for entry in entries for name in ("prompt_token_ids", "token_ids", "logprobs"))


def test_replies_of_two_machines_come_together(tmp_path: Path) -> None:
    packed = tmp_path / "packed.gz"
    for name, lines in (("one", '{"key": "a", "n": 1}\n'), ("two", '{"key": "b", "n": 2}\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "replies.jsonl").write_text(lines)
        pack(tmp_path / name, packed)
    Recorded(tmp_path / "one", packed)
    assert (tmp_path / "one" / "replies.jsonl").read_text() == '{"key": "a", "n": 1}\n{"key": "b", "n": 2}\n'


def test_a_key_that_was_recorded_twice_is_packed_as_it_was_said_last(tmp_path: Path) -> None:
    (tmp_path / "replies.jsonl").write_text('{"key": "b", "n": 1}\n{"key": "a", "n": 2}\n{"key": "b", "n": 3}\n')
    packed = tmp_path / "packed.gz"
    assert pack(tmp_path, packed) == 2
    elsewhere = Recorded(tmp_path / "elsewhere", packed)
    assert elsewhere.file.read_text() == '{"key": "a", "n": 2}\n{"key": "b", "n": 3}\n'


async def test_a_claim_takes_what_another_one_recorded_and_packs_only_its_own(tmp_path: Path) -> None:
    mine, others = tmp_path / "repository" / "mine.jsonl.gz", tmp_path / "repository" / "others.jsonl.gz"
    await Recorded(tmp_path / "other").policy(ScriptedPolicy(SCRIPT), "").generate(ASKED, GREEDY)
    pack(tmp_path / "other", others)
    known = Recorded(tmp_path / "mine", mine, others)
    policy = known.policy(ScriptedPolicy(SCRIPT), "")
    assert (await policy.generate(ASKED, GREEDY)).text == "said"
    assert known.asked == (1, 0)
    await policy.generate([Message(role="user", content="something else")], GREEDY)
    assert known.asked == (1, 1)
    assert pack(tmp_path / "mine", mine) == 1


def test_a_claim_reads_what_all_packed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A key that two claims recorded is packed by one: neither may lose it on another machine."""
    monkeypatch.setattr(recorded, "PACKED", tmp_path / "repository")
    monkeypatch.setattr(recorded, "ROOT", tmp_path)
    for name, key in (("one", "a"), ("two", "a"), ("two", "b")):
        recorded.home_of(name).mkdir(parents=True, exist_ok=True)
        with (recorded.home_of(name) / "replies.jsonl").open("a") as file:
            file.write(json.dumps({"key": key, "reply": {}, "sha256": ""}) + "\n")
    assert recorded.main(["one", "two"]) == 0
    shutil.rmtree(tmp_path / "build")
    for name in ("one", "two"):
        lines = recording(Run(name, quick=False, commit="")).file.read_text().splitlines()
        assert {json.loads(line)["key"] for line in lines} == {"a", "b"}
