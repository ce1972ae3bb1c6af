"""Writes what is generated in the documentation: whole references, and what stands between marks in other pages.

`python -m docs.generate` writes; `tests/test_docs.py` calls `generated()` and fails on drift. The prose around the
marks is written by hand and left alone.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import typer.main
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

import evolve.cli.main
from benchmarks import queueing
from benchmarks.table import markdown, stored
from docs import drawn, headlines, reference, scale_numbers
from evolve.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def generated() -> dict[Path, str]:
    """Return each generated page with what should stand in it."""
    return {
        DOCS / "cli.md": commands(),
        DOCS / "api.md": reference.surface(),
        DOCS / "config.md": reference.configuration(),
        DOCS / "presets.md": reference.presets(),
        DOCS / "glossary.md": reference.words(),
        DOCS / "results.md": results(),
        ROOT / "README.md": marked(ROOT / "README.md", results=headlines.table(stored())),
        DOCS / "architecture.md": marked(DOCS / "architecture.md", layers=drawn.layers(), graph=drawn.graph()),
        DOCS / "guides" / "training.md": marked(DOCS / "guides" / "training.md", slots=reference.slot_table()),
        DOCS / "guides" / "own-world.md": marked(
            DOCS / "guides" / "own-world.md", cellar=world("cellar"), bookkeeping=world("bookkeeping")
        ),
        DOCS / "guides" / "scale.md": marked(
            DOCS / "guides" / "scale.md",
            numbers=scale_numbers.table(stored()),
            model=queueing.markdown(queueing.model()),
        ),
        DOCS / "guides" / "presets.md": marked(DOCS / "guides" / "presets.md", presets=reference.preset_table()),
    }


def marked(page: Path, **parts: str) -> str:
    """Return a page with each part between its marks, `<!-- name -->` and `<!-- /name -->`."""
    text = page.read_text()
    for name, part in parts.items():
        between = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)
        text, found = between.subn(lambda _, part=part: part, text)
        if found != 1:
            raise ValueError(f"{page.name}: got {found} places marked {name!r}; expected one")
    return text


def world(name: str) -> str:
    """Return an example world as a block that names its file."""
    source = (ROOT / "examples" / "worlds" / f"{name}.py").read_text()
    return f"```python {name}.py\n{source}```\n"


def results() -> str:
    """Return an overview of the claims and every stored figure as Markdown."""
    figures = markdown(stored()) if stored() else "Nothing is measured yet."
    return f"{_RESULTS}\n{claims()}\n## Every figure\n\n{figures}\n"


_RESULTS = """\
# Results

Written by `make docs` from `benchmarks/results/`. Each claim is a script in `benchmarks/claims/`. The column *source*
names the commit that its figures were measured on, which is rarely this one.

- `make claims` prints what is stored and marks what was measured on other source than stands here.
- `make claims-quick` runs every claim on a small sample and stores nothing.
- `make bench` measures everything again, which takes hours.

A target that was missed says *no* in the second table, with the reason where it was measured.

## Claims
"""


def claims() -> str:
    """Return one line for each claim: what it says, how many of its targets were met, and on which source."""
    rows = stored()
    lines = ["| claim | says | targets met | source |", "| --- | --- | --- | --- |"]
    for script in sorted((ROOT / "benchmarks" / "claims").glob("*_[0-9]*.py")):
        said = (ast.get_docstring(ast.parse(script.read_text())) or "").partition("\n")[0]
        said = said.partition(": ")[2].rstrip(".")
        marks = [row["ok"] for row in rows.get(script.stem, ()) if row["ok"] is not None]
        met = f"{sum(marks)} of {len(marks)}" if script.stem in rows else "not measured yet"
        source = ", ".join(dict.fromkeys(row["commit"][:7] for row in rows.get(script.stem, ()))) or "-"
        lines.append(f"| `{script.stem}` | {said} | {met} | {source} |")
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Return the reference of all commands as Markdown."""
    endings = inspect.cleandoc(evolve.cli.main.__doc__ or "").partition("\n\n")[2]
    parts = [f"# Commands\n\nWritten by `make docs` from the program itself.\n\n{endings}\n"]
    for path, command in leaves("evolve", typer.main.get_command(app)):
        parts.append(f"## {path}\n\n{command.help or ''}\n\n{parameters(command)}".rstrip() + "\n")
    return "\n".join(parts).replace("\\[", "[")


def leaves(path: str, command: TyperGroup | TyperCommand) -> Iterator[tuple[str, TyperGroup | TyperCommand]]:
    """Yield every command that does something, with the words that call it."""
    if isinstance(command, TyperGroup):
        if command.invoke_without_command:
            yield path, command
        for name, child in command.commands.items():
            yield from leaves(f"{path} {name}", child)
    else:
        yield path, command


def parameters(command: TyperGroup | TyperCommand) -> str:
    """Return the arguments and options of a command as a list."""
    lines = list[str]()
    for parameter in command.params:
        if isinstance(parameter, TyperArgument):
            lines.append(f"- `{(parameter.name or '').upper()}`: {parameter.help or ''}".rstrip(": "))
        elif isinstance(parameter, TyperOption) and not parameter.hidden:
            names = ", ".join(parameter.opts + parameter.secondary_opts)
            lines.append(f"- `{names}`: {parameter.help or ''}".rstrip(": "))
    return "\n".join(lines)


def main() -> None:
    """Write every page that is not current."""
    for page, text in generated().items():
        if not page.exists() or page.read_text() != text:
            page.write_text(text)
            print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
