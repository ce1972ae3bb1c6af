"""Arms as folders: what is done is not done again, an outage is nobody's wrong answer, and one grader serves all."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.claims.real_4_peers import one
from benchmarks.peers import install
from benchmarks.peers.counting import machine, proxying
from benchmarks.peers.grading import grade, grade_generously, grading, right_answer
from benchmarks.peers.ours import ARMS, FRUGAL, OFF, merged, ours
from benchmarks.peers.ring import ADAPT, ANSWER, BARE, STATE, TOLD, PeerFailed, Ring, bare, peer
from benchmarks.peers.unfinished import pack
from evolve.environments.formula import Formula, FormulaConfig
from memory.errors import BadInput
from memory.records import Task

CONTEXT = 'Use formula Sum to answer the question. Sum = a + b. Question: "What is {a} plus {b}?". Answer:'
Section = dict[str, Any]


@pytest.fixture
def section(tmp_path: Path) -> Section:
    """Write the two files of a tiny Formula; return `[environment]`."""
    files = {"train": range(10, 14), "validation": range(20, 26)}
    for name, numbers in files.items():
        lines = [json.dumps({"context": CONTEXT.format(a=n, b=1), "target": str(n + 1.0)}) for n in numbers]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    paths = {name: str(tmp_path / f"{name}.jsonl") for name in files}
    return {"name": "formula", **paths, "dev": 2, "seed": 0}


@pytest.fixture
def ring(model_server: Any, section: Section, tmp_path: Path) -> Iterator[Ring]:
    """Put a scripted server and the tiny Formula into a ring: 4 train tasks, 2 to select on, 4 held out."""
    model_server.say = adding
    world = Formula(FormulaConfig(**{key: value for key, value in section.items() if key != "name"}))
    train, dev, held_out = (world.tasks(split) for split in ("train", "dev", "test_normal"))
    home = tmp_path / "arms"
    with proxying(model_server.url, home) as proxy, grading(world, [*train, *dev]) as grader:
        yield Ring(home, world, proxy, grader, "tiny", train, dev, held_out)


def adding(request: dict[str, Any]) -> str:
    """Add to the number of the last question, in code, where it is even; know nothing else."""
    found = re.findall(r"What is (\d+) plus", str(request["messages"][-1]["content"]))
    return f"```python\nprint({found[-1]} + 1)\n```" if found and int(found[-1]) % 2 == 0 else "I do not know."


async def test_one_grader_reads_code_and_bare_numbers(ring: Ring) -> None:
    task = ring.train[0]
    assert (await grade(ring.environment, task, "So:\n```python\nprint(10 + 1)\n```")).success
    assert (await grade(ring.environment, task, "11.00")).success
    wrong = await grade(ring.environment, task, "```python\nprint(12)\n```")
    assert not wrong.success
    assert "expected 11" in wrong.feedback
    assert not (await grade(ring.environment, task, "eleven")).success
    assert not (await grade(ring.environment, task, "")).success
    prose = "To add 10 and 1, we write $10 + 1$. The answer is \\boxed{11}."
    assert not (await grade(ring.environment, task, prose)).success
    assert (await grade_generously(ring.environment, task, prose)).success
    for wrong_reply in ("It is 11, not 12.", "eleven", "```python\nprint(12)\n```\nThat is 11."):
        assert not (await grade_generously(ring.environment, task, wrong_reply)).success
    assert float(await right_answer(ring.environment, task)) == 11


def test_the_grader_tells_nothing_of_held_out_tasks(ring: Ring) -> None:
    def asked(task: Task) -> Any:
        body = json.dumps({"task": task.id, "reply": "11"}).encode()
        with urllib.request.urlopen(urllib.request.Request(ring.grader, body), timeout=30) as answer:
            return json.load(answer)

    assert asked(ring.train[0])["success"] is True
    with pytest.raises(urllib.error.HTTPError, match="400") as refused:
        asked(ring.held_out[0])
    refused.value.close()


def test_a_runner_answers_through_the_proxy_and_is_graded(ring: Ring, model_server: Any) -> None:
    found = bare(ring)
    even = {task.id: int(task.instruction.split()[2]) % 2 == 0 for task in ring.held_out}
    assert found.passed == even
    assert any(even.values())
    assert not all(even.values())
    assert (found.adapt.calls, found.answer.calls, found.errors) == (0, len(ring.held_out), 0)
    assert found.answer.completion_tokens == 3 * len(ring.held_out)
    told = json.loads((ring.home / BARE / "assignment-answer.json").read_text())
    assert (told["train"], {each["answer"] for each in told["held_out"]}) == ([], {""})
    before = len(model_server.asked)
    assert bare(ring) == found
    assert len(model_server.asked) == before
    assert bare(ring, TOLD).passed == even
    said = model_server.asked[-1]["messages"][0]["content"]
    assert "numpy and scipy are missing." in said


def test_a_result_stays_with_its_source_and_its_machine_and_answers_for_its_tasks_alone(
    ring: Ring, model_server: Any, tmp_path: Path
) -> None:
    kept = replace(ring, cells=tmp_path / "cells", commit="0123abc")
    found = bare(kept)
    assert (found.commit, found.machine) == ("0123abc", machine())
    shutil.rmtree(ring.home / BARE)
    before = len(model_server.asked)
    assert bare(replace(kept, commit="later")) == found  # elsewhere, without the folder it worked in
    assert len(model_server.asked) == before
    with pytest.raises(BadInput, match="answers other tasks than the 3 held-out ones"):
        bare(replace(kept, held_out=ring.held_out[:3]))


def forgets_one_answer(ring: Ring, arm: str) -> None:
    """Undo the last answer of the server and what came of all, as a kill before it would have left the arm."""
    (ring.home / f"{arm}-0.json").unlink()
    calls = ring.home / arm / "calls-answer.jsonl"
    lines = [line for line in calls.read_text().splitlines() if "sitting" not in line]
    calls.write_text("".join(f"{line}\n" for line in lines[:-1]))


def test_what_was_killed_begins_anew_and_is_told_what_it_was_told(ring: Ring, model_server: Any) -> None:
    whole = bare(ring)
    forgets_one_answer(ring, BARE)
    before = len(model_server.asked)
    again = bare(ring)
    assert len(model_server.asked) == before + 1
    assert again.passed == whole.passed
    assert again.answer.calls == whole.answer.calls  # no answer counts twice


def test_our_own_arm_that_was_killed_goes_on_with_its_life(ring: Ring, model_server: Any, section: Section) -> None:
    whole = ours(ring, FRUGAL, section)
    (ring.home / f"{FRUGAL}-0.json").unlink()
    before = len(model_server.asked)
    again = ours(ring, FRUGAL, section)
    assert len(model_server.asked) == before
    assert (again.passed, again.learned) == (whole.passed, whole.learned)
    assert (again.adapt.calls, again.answer.calls) == (whole.adapt.calls, whole.answer.calls)


def test_a_peer_that_keeps_its_state_goes_on_from_it_and_all_its_calls_count(ring: Ring, model_server: Any) -> None:
    folder = ring.home / "one"
    with ring.sitting("one", ADAPT) as url:
        ask(url, "a")
    (folder / STATE).write_text("{}")
    ring._begin("one")
    before = len(model_server.asked)
    with ring.sitting("one", ADAPT) as url:
        ask(url, "a")
    with ring.sitting("one", ANSWER) as url:
        ask(url, "b")
    (folder / "calls-adapt.jsonl").rename(folder / "kept")
    with ring.sitting("one", ANSWER) as url:
        ask(url, "b")  # answering begins anew
    (folder / "kept").rename(folder / "calls-adapt.jsonl")
    assert len(model_server.asked) == before + 2
    assert (ring.used("one", ADAPT).calls, ring.used("one", ANSWER).calls) == (2, 1)


def ask(url: str, text: str) -> None:
    """Ask for one chat completion."""
    body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body), timeout=30).close()


def test_another_machine_goes_on_with_what_was_packed(ring: Ring, model_server: Any, tmp_path: Path) -> None:
    here = replace(ring, cells=tmp_path / "cells", home=ring.home / "seed-0")
    with proxying(model_server.url, here.home) as proxy:
        whole = bare(replace(here, proxy=proxy))
    (tmp_path / "cells" / f"{BARE}-0.json").unlink()
    (file, _) = pack(ring.home, tmp_path / "cells")
    assert file.name == f"{BARE}-0.calls-adapt.jsonl.gz"
    shutil.rmtree(ring.home)
    before = len(model_server.asked)
    with proxying(model_server.url, here.home) as proxy:
        again = bare(replace(here, proxy=proxy))
    assert len(model_server.asked) == before
    assert (again.passed, again.answer.calls) == (whole.passed, whole.answer.calls)
    (left,) = (tmp_path / "cells").glob("*.json")
    left.rename(tmp_path / "cell")
    calls = here.home / BARE / "calls-answer.jsonl"
    more, _ = calls.read_text(), calls.write_text("")
    assert not any(gzip.decompress(each.read_bytes()) == b"" for each in pack(ring.home, tmp_path / "cells"))
    calls.write_text(more)
    (tmp_path / "cell").rename(left)
    assert pack(ring.home, tmp_path / "cells") == []  # what has a cell is not packed, and no longer there
    assert not list((tmp_path / "cells" / "unfinished").iterdir())


def test_a_peer_that_takes_too_long_is_not_begun_and_is_read_where_it_has_a_cell(ring: Ring, section: Section) -> None:
    with pytest.raises(PeerFailed, match="kayba: 170 calls learned from less than ten of 200 tasks"):
        one(ring, "kayba", section)
    known = bare(ring).model_copy(update={"arm": "kayba"})
    ring.cell("kayba").write_text(known.model_dump_json())
    assert one(ring, "kayba", section) == known


def test_an_outage_ends_the_runner_and_leaves_no_wrong_answer(ring: Ring, model_server: Any, tmp_path: Path) -> None:
    with proxying("http://127.0.0.1:9/v1", ring.home) as dead:
        broken = replace(ring, proxy=dead)
        with pytest.raises(PeerFailed, match="does not answer"):
            bare(broken)
    assert not list((ring.home / BARE / "answers").glob("*.json"))
    assert all(each is not None for each in bare(ring).passed.values())


def test_a_refusal_of_one_request_is_that_arms_failure(ring: Ring, model_server: Any) -> None:
    model_server.status = 400
    found = bare(ring)
    assert not any(found.passed.values())
    assert (found.errors, found.answer.failed, found.answer.calls) == (len(ring.held_out), len(ring.held_out), 0)


def test_our_arms_live_in_the_same_ring(ring: Ring, model_server: Any, section: Section) -> None:
    off = ours(ring, OFF, section)
    assert set(off.passed) == {task.id for task in ring.held_out}
    assert (off.adapt.calls, off.learned) == (0, 0)
    learned = ours(ring, FRUGAL, section, again=True)
    assert learned.learned == sum(int(task.instruction.split()[2]) % 2 == 0 for task in ring.train)
    assert learned.adapt.calls >= len(ring.train)
    assert learned.again == learned.passed == off.passed
    before = len(model_server.asked)
    assert ours(ring, FRUGAL, section, again=True) == learned
    assert len(model_server.asked) == before


def test_arms_differ_in_what_they_keep_alone() -> None:
    exemplars, skills, everything = (merged(ARMS[arm]) for arm in ("exemplars", "skills", "all"))
    assert exemplars["gate"] == skills["gate"] == everything["gate"]
    assert exemplars["run"] == skills["run"] == everything["run"]
    assert "skills" not in exemplars
    assert "exemplars" not in skills
    assert set(everything) >= set(exemplars) | set(skills)


def calling(request: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Fill in the form that is asked for; add one skill first, where skills can be added."""
    forms = {tool["function"]["name"]: tool["function"]["parameters"] for tool in request.get("tools", ())}
    done = any(message["role"] == "tool" for message in request["messages"])
    if "add_skill" in forms and not done:
        return "add_skill", {"section": "sums", "issue": "sums are asked for", "keywords": ["plus"], "insight": "add"}
    form = next((name for name in forms if name.startswith("final_result")), None)
    if form is None:
        return None
    said = adding(request).removeprefix("I do not know.") or "0"
    return form, dict.fromkeys(forms[form]["required"], said)


@pytest.mark.slow
def test_a_peer_that_works_with_tools_keeps_what_it_learned(ring: Ring, model_server: Any) -> None:
    if reason := install.missing(install.find("kayba")):
        pytest.skip(f"peer kayba: {reason}")
    model_server.call_tool = calling
    found = peer(ring, "kayba")
    assert found.learned > 0
    assert found.errors == 0
    assert found.adapt.calls == 4 * len(ring.train)  # the agent, the reflector, the skill manager twice
    assert found.answer.calls == len(ring.held_out)
    assert any(found.passed.values())
    assert "sums are asked for" in json.dumps(model_server.asked[-1]["messages"])


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.name for each in install.PEERS])
def test_a_peer_that_is_installed_adapts_and_answers(ring: Ring, name: str) -> None:
    if reason := install.missing(install.find(name)):
        pytest.skip(f"peer {name}: {reason}")
    found = peer(ring, name)
    assert set(found.passed) == {task.id for task in ring.held_out}
    assert ring.used(name, ADAPT).calls >= len(ring.train)
    before = found.model_dump()
    assert peer(ring, name).model_dump() == before
