"""`evolve config`: what applies here, and where it comes from."""

from __future__ import annotations

import typer

from evolve.cli.opening import load
from evolve.cli.output import Json, show

app = typer.Typer(help="The configuration that applies here.", no_args_is_help=True)


@app.command("show")
def show_all(context: typer.Context, as_json: Json = False) -> None:
    """Print every key with the value in force."""

    config = load(context)
    data = config.model_dump(mode="json")
    lines = [f"root = {config.root}", f"digest = {config.digest}", f"preset = {config.preset or '-'}"]
    if preset := config.applied_preset:
        lines.append(preset.sentence)
    for section, keys in data.items():
        if isinstance(keys, dict):
            lines += ["", f"[{section}]", *(f"{key} = {value!r}" for key, value in keys.items())]
    show(data | {"digest": config.digest}, as_json, "\n".join(lines))


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
