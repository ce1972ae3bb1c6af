"""`evolve ui`: open the inspector in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from evolve.cli.opening import load
from evolve.cli.output import Json, show


def register(app: typer.Typer) -> None:
    """Add the verb to the root command."""
    app.command("ui")(ui)


def ui(
    context: typer.Context,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 = any free one.", min=0, max=65535)] = 8765,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show only; nothing can be changed.")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, open nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Open a page that shows what was learned, from which tasks and with what effect; Ctrl-C ends it."""
    import sys
    import webbrowser
    from secrets import token_urlsafe

    from evolve.inspector.server import create_app
    from evolve.serving import listen, serve

    app = create_app(load(context), read_only=read_only, file=context.obj)
    with listen(port) as socket:
        address = f"http://127.0.0.1:{socket.getsockname()[1]}/?key={app.state.desk.key}"
        show({"url": address}, as_json, f"{address}\nOnly this machine can open it, and only with this address.")
        sys.stdout.flush()
        if not (no_browser or as_json):
            ticket = token_urlsafe(24)
            app.state.desk.tickets.add(ticket)
            webbrowser.open(address.partition("=")[0] + "=" + ticket)
        serve(app, socket)
