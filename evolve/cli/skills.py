"""`evolve skills`: the functions that were learned."""

from __future__ import annotations

import typer

app = typer.Typer(help="The functions that were learned.", no_args_is_help=True)
