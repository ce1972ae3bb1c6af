"""`evolve ui`, `evolve serve` and `evolve tokens`: a workspace in the browser, and for agents and people elsewhere."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evolve.cli.numbers import number
from evolve.cli.opening import load, reading, writing
from evolve.cli.output import Json, show, table

if TYPE_CHECKING:
    from evolve.integrations.client_session import Layer

tokens = typer.Typer(help="Who may use `evolve serve`: add, list, revoke.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the verbs and their tokens to the root command."""
    app.command("ui")(ui)
    app.command("serve")(serve)
    app.add_typer(tokens, name="tokens")


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


def serve(
    context: typer.Context,
    host: Annotated[
        str, typer.Option(help="Address to listen on; put TLS in front of any but 127.0.0.1.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 = any free one.", min=0, max=65535)] = 8765,
    as_json: Json = False,
) -> None:
    """Serve the workspace to agents over REST (/api/v1) and MCP (/mcp), and its pages to people; Ctrl-C ends it.

    Each request needs a token: `evolve tokens add` makes one. TLS is a proxy's in front of it.
    """
    import sys

    from evolve.archive.transfer import require_workspace
    from evolve.errors import ConfigError

    config = load(context)
    require_workspace(config)
    try:
        from evolve.service.app import create_app
        from evolve.serving import listen
        from evolve.serving import serve as answer
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"`evolve serve` needs the package {missing.name!r}: pip install 'evolve-agents[mcp,ui]'"
        ) from missing
    with listen(port, host) as socket:
        address = f"http://{host}:{socket.getsockname()[1]}"
        show({"url": address}, as_json, f"{address} (Ctrl-C ends it)")
        sys.stdout.flush()
        answer(create_app(config, context.obj), socket)


@tokens.command()
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Who holds it; the audit says this name.")],
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope", help="read (search, playbook, runs), report (outcomes, proposals), review, or admin; repeatable."
        ),
    ],
    namespace: Annotated[
        str, typer.Option(help="Namespace that it is for; none = the configured one, '*' = all.")
    ] = "",
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            help="Namespace that it reads below its own, and the most tokens: team:800; repeatable.",
        ),
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(help="Days that it is valid; none = until it is revoked.", min=0, max=36500, callback=number),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a token and print it, this once: the workspace keeps its hash alone."""
    from evolve.service.access_tokens import issue

    with writing(context) as (config, store):
        lifetime = None if days is None else timedelta(days=days)
        layers = [_layer(text) for text in over or ()]
        token, secret = issue(store, name, scope, namespace or config.memory.namespace, lifetime, layers)
    show(token.model_dump(mode="json") | {"token": secret}, as_json, secret)


def _layer(text: str) -> Layer:
    from evolve.integrations.client_session import Layer
    from memory.errors import BadInput

    namespace, _, most = text.rpartition(":")
    if not namespace or not most.isdecimal() or not int(most):
        raise BadInput(f"got --over {text!r}, expected a namespace and the most tokens of it, e.g. team:800")
    return Layer(namespace=namespace, tokens=int(most))


@tokens.command("list")
def listing(context: typer.Context, as_json: Json = False) -> None:
    """List every token with what it may, never the token itself."""
    from evolve.service.access_tokens import listed

    with reading(context) as (_, store):
        rows: list[dict[str, Any]] = [token.model_dump(mode="json") | {"valid": token.valid} for token in listed(store)]
    if not as_json:
        rows = [
            row
            | {"scopes": " ".join(row["scopes"])}
            | {"layers": " ".join(f"{layer['namespace']}:{layer['tokens']}" for layer in row["layers"])}
            for row in rows
        ]
    table(rows, as_json, empty="there is no token; `evolve tokens add NAME --scope read` makes one")


@tokens.command()
def revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name or id of the token.")],
    as_json: Json = False,
) -> None:
    """Take a token's validity, from the next request on."""
    from evolve.service.access_tokens import revoke as revoked

    with writing(context) as (_, store):
        token = revoked(store, name)
    show(token.model_dump(mode="json"), as_json, f"token {token.name!r} is revoked")
