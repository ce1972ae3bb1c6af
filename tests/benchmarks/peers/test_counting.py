"""The proxy that counts, in front of a real HTTP server."""

from __future__ import annotations

import json
import socket
import struct
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.counting import key_of, machine, proxying, read_calls
from memory.errors import BadInput


def post(url: str, **body: Any) -> tuple[int, bytes]:
    """Ask for a chat completion; return status and body, whatever the status."""
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json", "X-Own": "1"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read()


def test_requests_pass_unchanged_and_are_counted_by_arm_and_phase(model_server: Any, tmp_path: Path) -> None:
    model_server.say = lambda request: request["messages"][0]["content"].upper()
    with proxying(model_server.url, tmp_path) as proxy:
        with proxy.sitting("ours", "adapt") as url:
            for _ in range(3):
                status, body = post(url, messages=[{"role": "user", "content": "ä"}], seed=5)
                assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, "Ä")
        with proxy.sitting("ours", "answer") as url:
            post(url, messages=[{"role": "user", "content": "b"}])
            with urllib.request.urlopen(f"{url}/models", timeout=30) as answer:
                assert json.load(answer)["data"][0]["id"] == "tiny"
    asked = model_server.asked[0]
    assert (asked["path"], asked["seed"], asked["headers"]["X-Own"]) == ("/v1/chat/completions", 5, "1")
    adapt, answer = read_calls(tmp_path, "ours", "adapt"), read_calls(tmp_path, "ours", "answer")
    assert (adapt.calls, adapt.prompt_tokens, adapt.completion_tokens, adapt.failed) == (3, 21, 9, 0)
    assert (answer.calls, answer.prompt_tokens, answer.most_at_once) == (1, 7, 1)
    assert adapt.wall_s > 0
    assert read_calls(tmp_path, "nobody", "adapt").calls == 0


def test_a_streamed_answer_is_counted_by_its_last_event(model_server: Any, tmp_path: Path) -> None:
    with proxying(model_server.url, tmp_path) as proxy, proxy.sitting("ours", "adapt") as url:
        status, body = post(url, messages=[], stream=True)
    assert status == 200
    assert body.endswith(b"data: [DONE]\n\n")
    found = read_calls(tmp_path, "ours", "adapt")
    assert (found.calls, found.prompt_tokens, found.completion_tokens, found.uncounted) == (1, 7, 3, 0)


@pytest.mark.parametrize(("status", "told"), [(400, 400), (503, 503), (0, 502)])
def test_what_the_server_refuses_or_breaks_off_is_told_and_counted_apart(
    model_server: Any, tmp_path: Path, status: int, told: int
) -> None:
    model_server.status = status
    with proxying(model_server.url, tmp_path) as proxy, proxy.sitting("ours", "adapt") as url:
        assert post(url, messages=[])[0] == told
    found = read_calls(tmp_path, "ours", "adapt")
    assert (found.calls, found.failed, found.prompt_tokens) == (0, 1, 0)


def test_an_answer_without_usage_is_a_call_whose_tokens_are_missing(model_server: Any, tmp_path: Path) -> None:
    with proxying(model_server.url, tmp_path) as proxy:
        proxy.url("ours", "adapt")
        proxy.note(
            "ours/adapt",
            {"path": "v1/completions", "status": 200, "prompt_tokens": None, "completion_tokens": None, "at_once": 1},
        )
    found = read_calls(tmp_path, "ours", "adapt")
    assert (found.calls, found.uncounted, found.completion_tokens) == (1, 1, 0)


def test_what_was_said_is_said_again_once_for_each_time(model_server: Any, tmp_path: Path) -> None:
    said = iter(["one", "two", "three"])
    model_server.say = lambda request: next(said)

    def content(url: str) -> str:
        words = [{"role": "user", "content": "It is late."}]
        return json.loads(post(url, messages=words)[1])["choices"][0]["message"]["content"]

    with proxying(model_server.url, tmp_path) as proxy:
        with proxy.sitting("ours", "adapt") as url:
            assert [content(url), content(url)] == ["one", "two"]
        with proxy.sitting("ours", "adapt") as url:  # begun anew
            assert [content(url), content(url), content(url)] == ["one", "two", "three"]
    assert read_calls(tmp_path, "ours", "adapt").calls == 3
    assert "late" not in (tmp_path / "ours" / "calls-adapt.jsonl").read_text()  # a request is not kept, its hash is


def test_a_request_is_the_same_on_another_day_and_in_another_order() -> None:
    body = {"model": "tiny", "messages": ["It is 2026-11-27."]}
    same = dict(reversed(body.items())) | {"messages": ["It is 2026-11-29."]}
    first, later = (json.dumps(each).encode() for each in (body, same))
    assert key_of("v1", first, "2026-11-27") == key_of("v1", later, "2026-11-29")
    assert key_of("v1", first, "2026-11-27") != key_of("v1", first, "2026-11-28")
    assert key_of("v1", first, "") != key_of("v2", first, "")
    assert key_of("v1", b"\xff", "") != key_of("v1", b"", "")


def test_what_is_not_asked_again_does_not_count_and_what_is_told_again_counts_with_its_time(
    model_server: Any, tmp_path: Path
) -> None:
    file = tmp_path / "ours" / "calls-adapt.jsonl"
    file.parent.mkdir()

    def call(key: str, began: float, ended: float) -> dict[str, Any]:
        said = {"path": "v1/chat/completions", "key": key, "status": 200, "type": "application/json", "reply": "{}"}
        return {**said, "began": began, "ended": ended, "prompt_tokens": 5, "completion_tokens": 1, "at_once": 2}

    lines = [
        {"sitting": "began", "at": 100.0},
        call("a", 101.0, 111.0),
        call("b", 105.0, 125.0),
        call("c", 130.0, 140.0),
        {"sitting": "began", "at": 900.0},  # anew, after a kill
        {"told": "a"},
        {"told": "b"},
        call("d", 901.0, 904.0),
        {"sitting": "ended", "at": 905.0},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read_calls(tmp_path, "ours", "adapt")
    assert (found.calls, found.prompt_tokens) == (3, 15)
    assert found.wall_s == (125 - 101) + 5
    lines[4:7] = [{"sitting": "began", "goes_on": True, "at": 900.0}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_calls(tmp_path, "ours", "adapt").calls == 4


def test_a_refusal_and_an_outage_are_not_said_again(model_server: Any, tmp_path: Path) -> None:
    with proxying(model_server.url, tmp_path) as proxy:
        for status in (400, 503):
            model_server.status = status
            with proxy.sitting("ours", str(status)) as url:
                assert post(url, messages=[])[0] == status
        model_server.status = 200
        for status in (400, 503):
            with proxy.sitting("ours", str(status)) as url:
                assert post(url, messages=[])[0] == 200
            found = read_calls(tmp_path, "ours", str(status))
            assert (found.calls, found.failed) == (1, 0)


def test_a_line_that_a_kill_cut_short_swallows_no_other(model_server: Any, tmp_path: Path) -> None:
    file = tmp_path / "ours" / "calls-adapt.jsonl"
    file.parent.mkdir()
    file.write_text('{"path": "v1/chat/comp')
    with proxying(model_server.url, tmp_path) as proxy, proxy.sitting("ours", "adapt"):
        pass
    assert read_calls(tmp_path, "ours", "adapt").machines == (machine(),)


def test_arms_that_share_the_server_are_marked(model_server: Any, tmp_path: Path) -> None:
    with proxying(model_server.url, tmp_path) as proxy:
        with proxy.sitting("one", "adapt"), proxy.sitting("two", "adapt"):
            pass
        with proxy.sitting("three", "adapt"):
            pass
    assert [read_calls(tmp_path, arm, "adapt").shared for arm in ("one", "two", "three")] == [True, True, False]
    assert read_calls(tmp_path, "one", "adapt").machines == (machine(),)


def test_requests_at_the_same_time_are_seen(model_server: Any, tmp_path: Path) -> None:
    model_server.together.clear()
    with proxying(model_server.url, tmp_path) as proxy, proxy.sitting("ours", "adapt") as url:
        threads = [threading.Thread(target=post, args=(url,), kwargs={"messages": []}) for _ in range(3)]
        for thread in threads:
            thread.start()
        while len(model_server.asked) < 3:
            threading.Event().wait(0.01)
        model_server.together.set()
        for thread in threads:
            thread.join()
    assert read_calls(tmp_path, "ours", "adapt").most_at_once == 3


def test_a_stranger_is_refused_and_names_are_plain(model_server: Any, tmp_path: Path) -> None:
    with proxying(model_server.url, tmp_path) as proxy:
        assert post(f"{proxy.origin}/nobody/adapt/v1", messages=[])[0] == 404
        for name in ("", "../x", "a/b"):
            with pytest.raises(BadInput, match="name of an arm"):
                proxy.url(name, "adapt")
    assert not model_server.asked
    assert not list(tmp_path.iterdir())


def test_sittings_add_up_and_one_that_was_killed_ends_with_its_last_answer(tmp_path: Path) -> None:
    file = tmp_path / "ours" / "calls-adapt.jsonl"
    file.parent.mkdir()
    call = {"path": "v1/chat/completions", "status": 200, "prompt_tokens": 1, "completion_tokens": 1, "at_once": 1}
    lines = [
        {"sitting": "began", "at": 100.0},
        {**call, "began": 101.0, "ended": 104.0},
        {"sitting": "ended", "at": 110.0},
        {"sitting": "began", "goes_on": True, "at": 500.0},
        {**call, "began": 501.0, "ended": 507.0},  # killed here
        {"sitting": "began", "goes_on": True, "at": 900.0},
        {"sitting": "ended", "at": 901.0},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"path": "v1/chat/comp')
    found = read_calls(tmp_path, "ours", "adapt")
    assert (found.calls, found.wall_s) == (2, 10.0 + 7.0 + 1.0)


def test_a_client_that_left_is_no_error_of_the_proxy(
    model_server: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model_server.together.clear()
    with proxying(model_server.url, tmp_path) as proxy, proxy.sitting("ours", "adapt") as url:
        host, port = url.split("/")[2].split(":")
        with socket.create_connection((host, int(port)), timeout=30) as client:
            head = "POST /ours/adapt/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
            client.sendall(head.encode())
            while not model_server.asked:
                threading.Event().wait(0.01)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        model_server.status = 0
        model_server.together.set()
    found = read_calls(tmp_path, "ours", "adapt")
    assert (found.calls, found.failed) == (0, 1)
    assert "Traceback" not in capfd.readouterr().err
