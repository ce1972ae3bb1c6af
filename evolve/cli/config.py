"""`evolve config` and `evolve presets`: what applies here and where it comes from, and published methods by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from evolve.cli.opening import load
from evolve.cli.output import Json, show, table

app = typer.Typer(help="The configuration that applies here.", no_args_is_help=True)
presets = typer.Typer(help="Published methods by name: list, show.", no_args_is_help=True)


@app.command("show")
def show_all(context: typer.Context, as_json: Json = False) -> None:
    """Print every key with the value in force."""

    from evolve.workspace.config_check import in_force

    config = load(context)
    data = in_force(config)
    lines = [f"root = {config.root}", f"digest = {config.digest}", f"preset = {config.preset or '-'}"]
    if preset := config.applied_preset:
        lines.append(preset.sentence)
    lines += _tables(data)
    show(data | {"digest": config.digest}, as_json, "\n".join(lines))


def _tables(data: dict[str, Any], above: str = "") -> Iterator[str]:
    """Yield each table with its keys, then those in it."""
    for name, keys in ((name, keys) for name, keys in data.items() if isinstance(keys, dict)):
        yield from ("", f"[{above}{name}]")
        yield from (f"{key} = {value!r}" for key, value in keys.items() if not isinstance(value, dict))
        yield from _tables(keys, f"{above}{name}.")


@app.command()
def path(context: typer.Context, as_json: Json = False) -> None:
    """Print the evolve.toml in use."""
    from evolve.config.file import find_config

    found = context.obj or find_config()
    show({"path": found and str(found)}, as_json, str(found or "no evolve.toml here or above; defaults apply"))


@app.command()
def check(context: typer.Context, as_json: Json = False) -> None:
    """Read the configuration, look up every name in it and build nothing; exit 2 when something is wrong."""
    from evolve.config.file import find_config
    from evolve.workspace.config_check import check_names

    config, found = load(context), context.obj or find_config()
    check_names(config)
    where = str(found) if found else "no evolve.toml here or above: the defaults apply, and `evolve init` writes one"
    data = {"ok": True, "digest": config.digest, "path": found and str(found)}
    show(data, as_json, f"the configuration is valid, every name in it is known ({where})")


@app.command()
def migrate(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="The evolve.toml; none = the one in use.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and write nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Rewrite keys of an earlier version, with their comments; the diff that is shown is the way back."""
    from evolve.config.file import FILE, find_config
    from evolve.config.migration import migrate_file
    from evolve.errors import ConfigError

    found = file or context.obj or find_config()
    if found is None or not found.is_file():
        raise ConfigError(f"no file {str(found or FILE)!r} to rewrite; name one: `evolve config migrate FILE`")
    diff, moves = migrate_file(found, write=not dry_run)
    told = [{"old": each.old, "new": dict(each.new)} for each in moves]
    data = {"path": str(found), "moves": told, "written": bool(moves) and not dry_run, "diff": diff}
    show(data, as_json, diff or f"{found} has no key of an earlier version; nothing to do")


@presets.command("list")
def list_presets(as_json: Json = False) -> None:
    """List the presets with their papers."""
    from evolve.config.preset import find_preset, preset_names

    known = [find_preset(name) for name in preset_names()]
    rows = [{"preset": p.name, "method": p.about.title, "paper": p.about.paper} for p in known]
    table(rows, as_json)


@presets.command("show")
def show_preset(name: Annotated[str, typer.Argument(help="Name of a preset.")], as_json: Json = False) -> None:
    """Show what a preset sets, which paper it reproduces, and where it deviates."""
    from evolve.config.preset import find_preset

    preset = find_preset(name)
    lines = [f"{preset.name}: {preset.about.title} ({preset.about.paper})", preset.about.summary, "", "sets"]
    lines += [f"  {key} = {value!r}" for key, value in preset.keys().items()]
    lines += ["", "deviates", *(f"  - {text}" for text in preset.about.deviates)] if preset.about.deviates else []
    show(preset.model_dump(mode="json"), as_json, "\n".join(lines))
