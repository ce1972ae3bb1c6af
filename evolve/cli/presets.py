"""`evolve presets`: the published methods that can be had by name."""

from __future__ import annotations

from typing import Annotated

import typer

from evolve.cli.output import Json, show, table

app = typer.Typer(help="Published methods by name: list, show.", no_args_is_help=True)


@app.command("list")
def listing(as_json: Json = False) -> None:
    """List the presets with their papers."""
    from evolve.config.preset import find_preset, preset_names

    presets = [find_preset(name) for name in preset_names()]
    rows = [{"preset": p.name, "method": p.about.title, "paper": p.about.paper} for p in presets]
    table(rows, as_json)


@app.command("show")
def show_one(name: Annotated[str, typer.Argument(help="Name of a preset.")], as_json: Json = False) -> None:
    """Show what a preset sets, which paper it reproduces, and where it deviates."""
    from evolve.config.preset import find_preset

    preset = find_preset(name)
    lines = [f"{preset.name}: {preset.about.title} ({preset.about.paper})", preset.about.summary, "", "sets"]
    lines += [f"  {key} = {value!r}" for key, value in preset.keys().items()]
    lines += ["", "deviates", *(f"  - {text}" for text in preset.about.deviates)] if preset.about.deviates else []
    show(preset.model_dump(mode="json"), as_json, "\n".join(lines))
