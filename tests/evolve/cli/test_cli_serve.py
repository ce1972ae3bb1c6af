"""`evolve policy serve FILE.gguf`, and what a run says of the server that answers it."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.real import models
from benchmarks.shell import MODEL, ModelServer, serving, settings
from evolve.config.file import load_config
from evolve.config.model import PolicySection
from evolve.loop import servers
from evolve.loop.assembly import make_policy, open_store
from evolve.loop.role_policies import lines as role_lines
from evolve.loop.role_policies import used
from evolve.loop.runs import spent
from policies.openai_server import OpenAIPolicy
from tests.evolve.command import complaint, finish, invoke, start
from tests.policies.gguf_files import gguf_file

SMALL = "smollm2-135m-instruct"


def test_what_cannot_be_served_is_one_sentence_and_leaves_no_workspace(tmp_path: Path) -> None:
    gguf = gguf_file(tmp_path / "tiny.gguf")
    (tmp_path / "cut.gguf").write_bytes(gguf.read_bytes()[:-1])
    gguf_file(tmp_path / "base.gguf", template="")
    for name, said in (
        ("absent.gguf", "there is no file 'absent.gguf'; expected a model in GGUF format"),
        ("cut.gguf", "'cut.gguf' is cut short: it has"),
        ("base.gguf", "'base.gguf' (llama) has no chat template"),
    ):
        assert said in complaint(tmp_path, "policy", "serve", name, code=2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = complaint(tmp_path, "policy", "serve", "tiny.gguf", "--port", port, "--ctx", "256", code=1)
    assert said.startswith(f"llama.cpp cannot listen on port {port} of 127.0.0.1")
    assert said.endswith("or give another with --port")
    assert "--threads is for a GGUF file" in complaint(tmp_path, "policy", "serve", ".", "--threads", "1", code=2)
    for option in ("--tensor-parallel", "--replicas"):
        said = complaint(tmp_path, "policy", "serve", "tiny.gguf", option, "2", code=2)
        assert "--replicas and --vllm-arg are for a folder, which vLLM serves" in said
    assert not (tmp_path / ".evolve").exists()


def test_a_run_says_and_journals_what_its_server_can_do(tmp_path: Path) -> None:
    with serving(ModelServer()) as server:
        folder = settings(tmp_path, tasks=1, policy=server.settings)
        said = invoke(folder, "run")
    assert said.exit_code == 0, said.output
    line = f"{MODEL} at {server.url} (here): replies by JSON schema no, tools yes, log-probabilities no, token ids no"
    assert line in " ".join(said.stderr.split())
    with open_store(load_config(folder / "evolve.toml"), read_only=True) as store:
        (event,) = store.events(type="run.server")
        assert event.run_id == store.runs()[0]["run_id"]
    assert (event.subject, event.data["server"], event.data["json_schema"]) == (server.url, "here", False)


def test_finding_out_counts_and_is_not_done_again_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(ModelServer()) as server:
        folder = settings(tmp_path, tasks=1, policy=server.settings + "\n[budget]\ncalls = 3")
        first, answered = invoke(folder, "run"), server.answered
        second, again = invoke(folder, "run"), server.answered
        monkeypatch.setattr(servers, "KEPT", timedelta())
        third = invoke(folder, "run")
        config = load_config(folder / "evolve.toml")
        with open_store(config) as store:
            one, other, _ = store.events(type="run.server")
            assert spent(store, one.run_id).calls == answered == 3
            assert spent(store, other.run_id).calls == again - answered == 3
            report = role_lines(used(store, one.run_id, "", {}))
    assert "asked by 3 calls" in " ".join(first.stderr.split())
    assert "3 of 3 calls" in " ".join(first.stderr.split())
    assert report == ["asked what the servers can do: 3 calls, 0 tokens"]
    said = " ".join(second.stderr.split())
    assert "as found" in said
    assert "not asked again" in said
    assert "asked by 3 calls" in " ".join(third.stderr.split())


def test_the_server_of_each_role_is_asked_what_it_can_do(tmp_path: Path) -> None:
    with serving(ModelServer()) as acting, serving(ModelServer()) as judging:
        sections = "".join(f"[policy.{role}]\n{judging.settings}\n" for role in ("reflector", "judge"))
        folder = settings(tmp_path, tasks=1, policy=f"{acting.settings}\n{sections}")
        said = " ".join(invoke(folder, "run").stderr.split())
    assert [said.count(f"at {server.url} (here)") for server in (acting, judging)] == [1, 1]


def test_a_run_goes_on_where_its_server_is_by_now(tmp_path: Path) -> None:
    with serving(ModelServer(lives=6)) as server:
        folder = settings(tmp_path, tasks=4, policy=f"{server.settings}\ntimeout_s = 5")
        said = invoke(folder, "run")
        assert (said.exit_code, "gave no answer" in said.output) == (1, True), said.output
    with serving(ModelServer()) as moved:
        settings(folder, tasks=4, policy=moved.settings)
        said = invoke(folder, "resume")
        assert said.exit_code == 0, said.output
        assert moved.answered > 0


class Silent(ModelServer):
    """Its model thinks until its tokens are used up, and says nothing."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        choice = {"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "length"}
        return {
            "id": "1",
            "model": MODEL,
            "choices": [choice],
            "usage": {"prompt_tokens": 8, "completion_tokens": body["max_tokens"]},
        }


def test_empty_replies_are_told_and_lose_nothing(tmp_path: Path) -> None:
    with serving(Silent()) as server:
        folder = settings(tmp_path, tasks=2, policy=f"{server.settings}\nmax_tokens = 64")
        said = invoke(folder, "run")
    assert said.exit_code == 0, said.output
    told = " ".join(said.stdout.split())
    assert "warning: 32 of 32 replies were empty: raise policy.max_tokens where the model thinks" in told
    assert "32 of 32 replies took all of policy.max_tokens = 64, so they may be cut" in told
    with serving(ModelServer()) as moved:
        settings(folder, tasks=2, policy=moved.settings)
        after = invoke(folder, "run")
    assert after.exit_code == 0, after.output
    assert "replies" not in after.stdout.split("whole stream")[1].split("tasks solved")[0]
    assert invoke(folder, "memory", "doctor").exit_code == 0


def test_the_configuration_says_how_long_an_answer_may_take() -> None:
    policy = make_policy(PolicySection(name="openai", timeout_s=7))
    assert isinstance(policy, OpenAIPolicy)
    assert policy.connection.timeout_s == 7


@pytest.mark.served
@pytest.mark.skipif(not os.environ.get("EVOLVE_MODELS"), reason="EVOLVE_MODELS names no real models")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_a_real_model_is_served_until_the_command_ends(tmp_path: Path, sign: signal.Signals) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    sizes = ("--port", str(port), "--slots", "2", "--ctx", "512", "--threads", "1")
    process = start(tmp_path, "policy", "serve", str(models.gguf(SMALL)), *sizes, "--json")
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] != "}\n":
        lines.append(process.stdout.readline())
        assert process.poll() is None, process.communicate()
    said = json.loads("".join(lines))
    assert (said["model"], said["slots"], said["ctx"]) == (SMALL, 2, 512)
    slots = httpx.get(said["url"].removesuffix("v1") + "slots", trust_env=False).json()
    assert [slot["n_ctx"] for slot in slots] == [512, 512]
    process.send_signal(sign)
    finish(process, code=-sign if sign == signal.SIGKILL else 0)
    assert gone(said["url"])


def gone(url: str) -> bool:
    """Tell whether the server ends within ten minutes."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/models", trust_env=False)
        except httpx.ConnectError:
            return True
        time.sleep(0.1)
    return False
