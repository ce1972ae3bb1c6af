"""`evolve init`, `backup`, `export` and `workspace move`: begin a workspace, keep a copy, carry one elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evolve.cli.opening import load, reading, writing
from evolve.cli.output import Json, show

_TEMPLATE = """\
# What `evolve run` does here. Every key and its default: `evolve config show`.

[run]
mode = "online"
tasks = 60
concurrency = 8       # calls of pocket that are answered together take a third of the time

[policy]
name = "pocket"

[environment]
name = "office"
deployment = 0
max_steps = 16

[memory]
embedder = "hashing"

[gate]
names = ["default"]   # a lesson counts once tasks were measured with and without it; "static" only reads it
"""


def register(app: typer.Typer) -> None:
    """Add the verbs to the root command."""
    app.command("init")(init)
    app.command("backup")(backup)
    app.command("merge")(merge)
    app.add_typer(exports, name="export")
    app.add_typer(workspaces, name="workspace")


def init(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Where; made when missing.")] = Path(),
    source: Annotated[Path | None, typer.Option("--from", help="Archive of `evolve export --workspace`.")] = None,
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Take settings over that name code, which the next command runs.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Begin a workspace: write evolve.toml and make .evolve/, empty or from an archive with all its trust."""
    from evolve.archive.transfer import import_workspace
    from evolve.config.file import load_config
    from evolve.loop.assembly import open_store
    from memory.errors import BadInput

    file = folder / "evolve.toml"
    if file.exists() and source is None:
        raise BadInput(f"{str(file)!r} exists already; edit it, or choose another folder")
    arrived = import_workspace(source, folder, code=allow_code) if source else None
    folder.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        file.write_text(_TEMPLATE, encoding="utf-8")
    config = load_config(file)
    with open_store(config, owner=False) as store:
        records = len(store.records(config.memory.namespace))
    text = f"workspace ready at {config.workspace} (settings: {file})"
    if arrived:
        text += f"\n{records} records with their trust; the database is what was exported, sha256 {arrived.sha256}"
    if arrived and arrived.settings:
        model = " ".join(filter(None, (config.policy.name, config.policy.model)))
        text += f"\nits settings came along: policy {model}, environment {config.environment.name}"
    data = {"workspace": str(config.workspace), "sha256": arrived and arrived.sha256, "records": records}
    show(data, as_json, text)


def backup(
    context: typer.Context,
    folder: Annotated[Path | None, typer.Argument(help="Where; default: backups/ beside evolve.toml.")] = None,
    as_json: Json = False,
) -> None:
    """Copy the workspace into a dated folder while it is in use, and check the copy.

    Database, policies and curves are in it; the vector index is made again. To restore it, stop what uses the
    workspace, move .evolve away, copy the dated folder to its place and run `evolve memory doctor`.
    """
    from evolve.archive.backup import make_backup
    from evolve.loop.assembly import register_kinds

    config = load(context)
    register_kinds()
    made = make_backup(config, folder)
    told = [
        f"backed up to {made.path}, and checked: {made.records} records, {made.episodes} episodes, "
        f"{made.bytes / 1e6:.1f} MB",
        f"to restore it: move {config.workspace} away, then cp -r {made.path} {config.workspace}",
    ]
    if config.memory.database:
        told.append("and take `database` out of [memory]: the copy is a file, and not read while a server is named")
    show(made.model_dump(mode="json"), as_json, "\n".join(told))


def merge(
    context: typer.Context,
    place: Annotated[Path, typer.Argument(help="The other workspace: its .evolve, its folder, or its evolve.toml.")],
    namespace: Annotated[str, typer.Option(help="Namespace of the other one; none = its configured one.")] = "",
    as_json: Json = False,
) -> None:
    """Take what another workspace has in use into this one, quarantined, to be measured again by your gates.

    What both know is joined; what contradicts something here waits for you (`evolve review list`). The same again
    brings what the other one learned since. `evolve playbook test` measures what came.
    """
    from evolve.workspace.exchange import merge_place

    with writing(context) as (config, store):
        done = merge_place(store, config, place, namespace or None)
    told = [
        f"from {done.source}: {len(done.added)} records quarantined, {len(done.joined)} known here already, "
        f"{len(done.conflicts)} wait for you, {done.repeated} merged before",
        *(f"conflict: {text}" for text in done.conflicts),
        *(f"refused: {text}" for text in done.refused),
    ]
    if done.added:
        told.append("nothing of it is in a prompt yet: `evolve playbook test` measures it")
    if done.conflicts:
        told.append("decide on conflicts with `evolve review list`")
    show(done.model_dump(mode="json"), as_json, "\n".join(told))


workspaces = typer.Typer(help="Where the workspace is kept: move.", no_args_is_help=True)


@workspaces.command()
def move(
    context: typer.Context,
    to: Annotated[str, typer.Option("--to", help="`postgresql://user@host:5432/name`, or `sqlite`: back into a file.")],
    as_json: Json = False,
) -> None:
    """Copy the workspace to a PostgreSQL server or back into a file, and check what arrived. The old one stays."""
    from evolve.workspace.relocation import SQLITE, move_workspace

    moved = move_workspace(load(context), to)
    keys = (
        "take `database` out of [memory]" if to == SQLITE else f'write in [memory]: database = "{to}", index = "exact"'
    )
    told = f"{moved.events} events moved from {moved.source} to {moved.target}, sha256 {moved.sha256}\n{keys}"
    show(moved.model_dump(mode="json"), as_json, told)


exports = typer.Typer(
    help="Carry a workspace elsewhere (--workspace), or write what was learned as a page (html).",
    invoke_without_command=True,
)


@exports.callback()
def export(
    context: typer.Context,
    workspace: Annotated[Path | None, typer.Option("--workspace", help="Archive to write (.tar.gz).")] = None,
    as_json: Json = False,
) -> None:
    """Write the whole workspace into one archive, which `evolve init --from` takes up elsewhere; or a page (html)."""
    from evolve.archive.transfer import export_workspace
    from memory.errors import BadInput

    if context.invoked_subcommand is not None:
        return
    if workspace is None:
        raise BadInput("got nothing to write; name an archive (--workspace FILE), or a page (html FILE)")
    digest = export_workspace(load(context), workspace)
    show({"archive": str(workspace), "sha256": digest}, as_json, f"wrote {workspace}, database sha256 {digest}")


@exports.command("html")
def export_html(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="File to write (.html).")],
    as_json: Json = False,
) -> None:
    """Write the pages of `evolve ui` as one file to share: no server, no network, nothing that can be changed."""
    from evolve.inspector.page_context import PageContext
    from evolve.inspector.static_page import export as write

    with reading(context) as (config, store):
        done = write(PageContext(config, store, key="", read_only=True), file)
    left = f"; not in it: {done.left_out}" if done.left_out else ""
    data = {"file": str(file), "pages": done.sheets, "bytes": done.bytes, "left_out": done.left_out}
    show(data, as_json, f"wrote {file}, {done.sheets} pages, {done.bytes / 1e6:.1f} MB{left}")
