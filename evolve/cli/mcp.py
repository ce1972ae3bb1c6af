"""`evolve mcp`: hands a workspace's knowledge to any MCP client."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from evolve.cli.opening import load
from evolve.cli.output import Json, as_text, say, show


def register(app: typer.Typer) -> None:
    """Add the verb to the root command."""
    app.command("mcp")(serve)


def serve(
    context: typer.Context,
    http: Annotated[bool, typer.Option("--http", help="Streamable HTTP on 127.0.0.1 instead of stdio.")] = False,
    port: Annotated[
        int, typer.Option("--port", help="Port for --http; 0 = any that is free.", min=0, max=65535)
    ] = 8765,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse the tools that write.")] = False,
    client_config: Annotated[
        bool, typer.Option("--client-config", help="Print the JSON that a client is to be given, and serve nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Serve the workspace to an MCP client: search, get_playbook, get_skill, record_outcome, propose.

    Over stdio the client starts this command, and stdout is the protocol's. Each session is a run in the journal.
    """
    import asyncio

    from evolve.archive.transfer import require_workspace
    from evolve.loop.assembly import open_store

    config = load(context)
    require_workspace(config)
    if client_config:
        say(as_text(_client_config(context, read_only=read_only)))
        return
    try:
        from evolve.integrations.mcp_server import make_server, serve_http
    except ModuleNotFoundError as missing:
        from evolve.errors import ConfigError

        raise ConfigError(
            f"`evolve mcp` needs the package {missing.name!r}: pip install 'evolve-agents[mcp]'"
        ) from missing
    with open_store(config, read_only=read_only, owner=False) as store:
        server = make_server(config, store, read_only=read_only)

        def ready(url: str) -> None:
            show({"url": url, "read_only": read_only}, as_json, f"{url} (Ctrl-C ends it)")
            sys.stdout.flush()

        asyncio.run(serve_http(server, port, ready) if http else server.run_stdio_async())


def _client_config(context: typer.Context, *, read_only: bool) -> dict[str, Any]:
    """Return what a client's settings are given: how it starts this command for this workspace, from any folder.

    Raises `ConfigError` where no evolve.toml says which workspace.
    """
    from evolve.config.file import FILE, find_config
    from evolve.errors import ConfigError

    beside = Path(sys.executable).with_name("evolve")
    file = context.obj or find_config()
    if file is None:
        raise ConfigError(
            f"no {FILE} in {str(Path.cwd())!r} or above, by which a client finds the workspace; run `evolve init`"
        )
    arguments = ["--config", str(file.resolve()), "mcp", *(["--read-only"] if read_only else [])]
    return {"mcpServers": {"evolve": {"command": str(beside) if beside.exists() else "evolve", "args": arguments}}}
