"""Starting up is cheap: `import evolve` and `evolve --help` load few modules, and no heavy package, nor does the page.

Modules are counted, not seconds: how long they take depends on the machine.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    *("torch", "langgraph", "chromadb", "transformers", "openai", "langchain_core", "sklearn", "matplotlib"),
    *("langchain", "mcp", "uvicorn", "starlette"),
)
IMPORT = "import evolve"
HELP = """
import sys
sys.argv = ["evolve", "--help"]
from evolve.cli.main import main
try:
    main()
except SystemExit:
    pass
"""


MOST = {IMPORT: 120, HELP: 600}
"""Modules in all, those of Python included: 70 and 433 when this was written, thousands with a heavy package."""


def run(code: str) -> str:
    """Run `code` in a fresh interpreter; return what it printed."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("code", [IMPORT, HELP], ids=["import", "help"])
def test_no_heavy_package_is_loaded(code: str) -> None:
    out = run(f"{code}\nprint('LOADED', *[m for m in {HEAVY!r} if m in __import__('sys').modules])")
    assert out.splitlines()[-1].split() == ["LOADED"]


@pytest.mark.parametrize("code", [IMPORT, HELP], ids=["import", "help"])
def test_few_modules_are_loaded(code: str) -> None:
    out = run(f"{code}\nprint(len(__import__('sys').modules))")
    assert int(out.splitlines()[-1]) <= MOST[code]


def test_the_server_of_the_page_loads_nothing_that_no_page_needs() -> None:
    out = run(
        "import sys, evolve.inspector.server; print(sorted({'sklearn', 'pandas', 'scipy', 'torch'} & set(sys.modules)))"
    )
    assert out.strip() == "[]"


def test_help_lists_the_commands() -> None:
    out = run(HELP)
    assert "run" in out
    assert "playbook" in out
