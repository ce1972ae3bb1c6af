"""`evolve mcp`: hands a workspace's knowledge to any MCP client."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from evolve.cli.output import Json, load, show


def register(app: typer.Typer) -> None:
    """Add the verb to the root command."""
    app.command("mcp")(serve)


def serve(
    context: typer.Context,
    http: Annotated[bool, typer.Option("--http", help="Streamable HTTP on 127.0.0.1 instead of stdio.")] = False,
    port: Annotated[int, typer.Option("--port", help="Port for --http; 0 = any that is free.")] = 8765,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse the tools that write.")] = False,
    as_json: Json = False,
) -> None:
    """Serve the workspace to an MCP client: search, get_playbook, get_skill, record_outcome, propose.

    Over stdio the client starts this command, and stdout is the protocol's. Each session is a run in the journal.
    """
    import asyncio

    from evolve.app import open_store
    from memory.errors import NotFound

    config = load(context)
    if not (config.workspace / "evolve.db").is_file():
        raise NotFound(f"no workspace at {str(config.workspace)!r}; run `evolve init` or go to the folder that has one")
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
