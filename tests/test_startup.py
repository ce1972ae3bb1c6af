"""Starting up is cheap: `import evolve` and `evolve --help` take under half a second and load no heavy package.

Time is processor time of the child (user + system), median of five runs, so that a busy machine does not decide.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

import pytest

HEAVY = (
    *("torch", "langgraph", "chromadb", "transformers", "openai", "langchain_core", "sklearn", "matplotlib"),
    *("langchain", "mcp", "uvicorn", "starlette"),
)
SECONDS = 0.5
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


def run(code: str) -> tuple[str, float]:
    """Run `code` in a fresh interpreter; return what it printed and the processor seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ran.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("code", [IMPORT, HELP], ids=["import", "help"])
def test_no_heavy_package_is_loaded(code: str) -> None:
    out, _ = run(f"{code}\nprint('LOADED', *[m for m in {HEAVY!r} if m in __import__('sys').modules])")
    assert out.splitlines()[-1].split() == ["LOADED"]


@pytest.mark.parametrize("code", [IMPORT, HELP], ids=["import", "help"])
def test_it_takes_less_than_half_a_second(code: str) -> None:
    assert statistics.median(run(code)[1] for _ in range(5)) < SECONDS


def test_help_lists_the_commands() -> None:
    out, _ = run(HELP)
    assert "run" in out
    assert "playbook" in out
