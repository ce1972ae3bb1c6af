"""The runner of a vLLM server, with small programs in vLLM's place: it starts, waits, explains, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from policies import server_process as module
from policies.errors import PolicyUnavailable
from policies.server_process import free_port
from policies.vllm_server import ARGUMENTS, GPU_ARGUMENTS, gpus_seen, number_of, vllm_server, vllm_servers

ANSWERING = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
port = int(sys.argv[sys.argv.index("--port") + 1])
print(*sys.argv[1:], flush=True)
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""

STUBBORN_CHILD = """
import pathlib, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
                          "print('deaf', flush=True); time.sleep(600)"], stdout=subprocess.PIPE)
child.stdout.readline()
pathlib.Path(sys.argv[2], "child").write_text(str(child.pid))
"""


STARTER = """
import pathlib, sys, time
from policies.vllm_server import vllm_server
folder = pathlib.Path(sys.argv[1])
with vllm_server(folder, executable=folder / "vllm", log=folder / "log", ready_within_s=60):
    print("up", flush=True)
    time.sleep(600)
"""


def program(folder: Path, code: str) -> Path:
    """Write a program that is started as the `vllm` command would be."""
    path = folder / "vllm"
    path.write_text(f"#!{sys.executable}\n{code}")
    path.chmod(0o755)
    return path


def running(pid: int) -> bool:
    """Tell whether a process runs; one that ended and was not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_serves_and_is_gone_afterwards(tmp_path: Path) -> None:
    executable, log = program(tmp_path, ANSWERING), tmp_path / "log"
    with vllm_server(tmp_path, executable=executable, log=log, name="mine", ready_within_s=60) as base_url:
        assert base_url.endswith("/v1")
        assert httpx.get(base_url.removesuffix("v1") + "health", trust_env=False).status_code == 200
        assert log.read_text().startswith(f"serve {tmp_path} --served-model-name mine --host 127.0.0.1")
    with pytest.raises(httpx.ConnectError):
        httpx.get(base_url, trust_env=False)


@pytest.mark.parametrize("own", [None, "nobind"])
def test_it_computes_on_every_core_unless_the_operator_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    name = "VLLM_CPU_OMP_THREADS_BIND"
    monkeypatch.delenv(name, raising=False)
    if own:
        monkeypatch.setenv(name, own)
    executable, log = (
        program(tmp_path, f"import os\nprint(os.environ[{name!r}], flush=True)\n{ANSWERING}"),
        tmp_path / "log",
    )
    with vllm_server(tmp_path, executable=executable, log=log, ready_within_s=60):
        expected = own or ",".join(map(str, sorted(os.sched_getaffinity(0))))
        assert log.read_text().splitlines()[0] == expected


def test_it_is_stopped_when_the_body_fails(tmp_path: Path) -> None:
    executable = program(tmp_path, ANSWERING)
    urls: list[str] = []

    def broken() -> None:
        with vllm_server(tmp_path, executable=executable, log=tmp_path / "log", ready_within_s=60) as base_url:
            urls.append(base_url)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        broken()
    with pytest.raises(httpx.ConnectError):
        httpx.get(urls[0], trust_env=False)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processes_it_started_are_stopped_too_even_deaf_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", ((signal.SIGTERM, 0.5), (signal.SIGKILL, 5.0)))
    executable = program(tmp_path, STUBBORN_CHILD + ANSWERING)
    with vllm_server(tmp_path, executable=executable, log=tmp_path / "log", ready_within_s=60):
        child = int((tmp_path / "child").read_text())
        assert running(child)
    deadline = time.monotonic() + 300
    while running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running(child)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    program(
        tmp_path, f"import os, pathlib, sys\npathlib.Path(sys.argv[2], 'pid').write_text(str(os.getpid()))\n{ANSWERING}"
    )
    with subprocess.Popen([sys.executable, "-c", STARTER, str(tmp_path)], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"up\n"
        starter.kill()
    server, deadline = int((tmp_path / "pid").read_text()), time.monotonic() + 300
    while running(server) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(server)


def test_a_file_that_is_no_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vllm").write_text("not to be run")
    with (
        pytest.raises(PolicyUnavailable, match=r"vllm' is not a program that this user may run"),
        vllm_server(tmp_path, executable=tmp_path / "vllm", log=tmp_path / "log"),
    ):
        pass


def test_a_server_that_ends_while_starting_is_explained_by_its_log(tmp_path: Path) -> None:
    executable = program(tmp_path, "import sys\nprint('no such architecture')\nsys.exit(3)")
    with (
        pytest.raises(PolicyUnavailable, match=r"(?s)ended with status 3 while starting.*no such architecture"),
        vllm_server(tmp_path, executable=executable, log=tmp_path / "log", ready_within_s=60),
    ):
        pass


def test_a_server_that_never_answers_is_given_up_and_stopped(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys, time\npathlib.Path(sys.argv[2], 'pid').write_text(str(os.getpid()))\ntime.sleep(600)"
    )
    with (
        pytest.raises(PolicyUnavailable, match=r"did not answer http://127.0.0.1:\d+/health within 4 s"),
        vllm_server(tmp_path, executable=program(tmp_path, code), log=tmp_path / "log", ready_within_s=4),
    ):
        pass
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_absent_command_names_the_script_that_installs_it(tmp_path: Path) -> None:
    with (
        pytest.raises(PolicyUnavailable, match=r"no vLLM at .*absent.*scripts/install_vllm_cpu\.sh installs it"),
        vllm_server(tmp_path, executable=tmp_path / "absent", log=tmp_path / "log"),
    ):
        pass


@pytest.mark.parametrize(("gpus", "each", "seen"), [(4, 2, ["0,1", "2,3"]), (1, 1, ["0", "0"]), (0, 1, ["all", "all"])])
def test_servers_share_the_machine_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, each: int, seen: list[str]
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    names = ("CUDA_VISIBLE_DEVICES", "VLLM_CPU_OMP_THREADS_BIND")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    told = f"import os\nprint(*(os.environ.get(name, 'all') for name in {names}), flush=True)\n{ANSWERING}"
    logs = {free_port(): tmp_path / f"log-{at}" for at in range(2)}
    arguments = (*ARGUMENTS, "--tensor-parallel-size", str(each))
    executable = program(tmp_path, told)
    with vllm_servers(tmp_path, executable=executable, logs=logs, name="m", arguments=arguments, gpus=gpus) as urls:
        assert urls == [f"http://127.0.0.1:{port}/v1" for port in logs]
    found = [log.read_text().split()[:2] for log in logs.values()]
    assert [visible for visible, _ in found] == seen
    halves = cores[: len(cores) // 2], cores[len(cores) // 2 :]
    assert [bound for _, bound in found] == [",".join(map(str, half or cores)) for half in halves]


def test_the_last_value_of_an_option_counts_as_it_does_for_vllm() -> None:
    assert number_of(ARGUMENTS, "--max-num-seqs") == 32
    assert number_of([*ARGUMENTS, "--max-num-seqs=64"], "--max-num-seqs") == 64
    assert number_of(["--max-num-seqs=64", *ARGUMENTS], "--max-num-seqs") == 32
    assert number_of(GPU_ARGUMENTS, "--max-num-seqs") is None


@pytest.mark.parametrize("gpus", [0, 2])
def test_the_python_of_the_command_says_what_it_computes_on(tmp_path: Path, gpus: int) -> None:
    python, executable = tmp_path / "python", tmp_path / "vllm"
    python.write_text(f"#!/bin/sh\necho {gpus}\n")
    python.chmod(0o755)
    executable.write_text(f"#!{python}\n")
    assert gpus_seen(executable) == gpus


def test_a_wrapper_in_shell_has_its_python_beside_it(tmp_path: Path) -> None:
    home = tmp_path / "environment"
    home.mkdir()
    for name, code in (("python", "echo 1"), ("vllm", "exec python")):
        (home / name).write_text(f"#!/bin/sh\n{code}\n")
        (home / name).chmod(0o755)
    (tmp_path / "vllm").symlink_to(home / "vllm")
    assert gpus_seen(tmp_path / "vllm") == 1


@pytest.mark.parametrize("arguments", [ARGUMENTS, GPU_ARGUMENTS])
def test_only_what_computes_eagerly_is_kept_from_compiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    code = f"import os\nprint('no compiler:', os.environ.get('TORCHDYNAMO_DISABLE'), flush=True)\n{ANSWERING}"
    executable, log = program(tmp_path, code), tmp_path / "log"
    with vllm_server(tmp_path, executable=executable, log=log, arguments=arguments, ready_within_s=60):
        eager = "--enforce-eager" in arguments
        assert log.read_text().startswith(f"no compiler: {'1' if eager else None}")


@pytest.mark.parametrize("arguments", [ARGUMENTS, GPU_ARGUMENTS])
def test_sampling_takes_nothing_from_what_a_model_ships_with(arguments: tuple[str, ...]) -> None:
    assert ("--generation-config", "vllm") in pairwise(arguments)


def test_a_command_without_torch_is_named(tmp_path: Path) -> None:
    executable = tmp_path / "vllm"
    executable.write_text("#!/bin/false\n")
    with pytest.raises(PolicyUnavailable, match="vllm does not start with a Python that has torch"):
        gpus_seen(executable)
