"""The command's root: sub-commands, the global options, and how errors end.

Exit codes: 0 done, 1 refused or failed (one sentence on stderr), 2 wrong usage or configuration, 3 stopped by a budget
and resumable, 130 interrupted. With `--json` the sentence is a JSON object on stdout instead.
"""

from __future__ import annotations

import errno
import re
import warnings
from importlib.metadata import version as installed
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from evolve.cli import (
    compare,
    config,
    cycle,
    env,
    exemplars,
    gates,
    logs,
    mcp,
    memory,
    notebook,
    playbook,
    policy,
    policy_serve,
    review,
    run,
    serve,
    skills,
    traces,
    train,
    workspace,
)
from evolve.cli.output import Json, as_text, say, show
from evolve.errors import ConfigError, UserCodeError
from memory.errors import BadInput, EvolveError
from policies.errors import BudgetExceeded

FAILED, USAGE, STOPPED, INTERRUPTED = 1, 2, 3, 130
_BRACKET = re.compile(r"(?<!\\)\[(?=[a-z@#/])")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Root(TyperGroup):
    """Ends expected errors of every verb with one sentence and an exit code; bugs fly with their traceback."""

    def __init__(self, **settings: Any) -> None:
        """Take what typer gives, and keep brackets in help texts from being read as markup."""
        super().__init__(**settings)
        _keep_brackets(self)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb that was asked for."""
        as_json = "--json" in ctx.args
        try:
            return super().invoke(ctx)
        except EvolveError as error:
            if ctx.params.get("debug"):
                raise
            if isinstance(error, UserCodeError) and not as_json:
                _show_code(error)
            _complain(type(error).__name__, str(error), as_json)
            code = _code(error)
        except typer.TyperException as error:
            if not as_json:
                raise
            _complain("UsageError", getattr(error, "format_message", error.__str__)(), as_json)
            code = USAGE
        except BrokenPipeError:
            raise
        except OSError as error:
            _complain(type(error).__name__, _sentence(error), as_json)
            code = FAILED
        except KeyboardInterrupt:
            _complain(
                "Interrupted",
                "interrupted; nothing committed is lost. `evolve resume` goes on with a run, `evolve train resume` "
                "with a training",
                as_json,
            )
            code = INTERRUPTED
        raise typer.Exit(code)


def _keep_brackets(command: Any) -> None:
    """Escape `[train]` and the like in the help of a command, its options and the commands below it."""
    for owner in (command, *command.params):
        for name in ("help", "short_help"):
            if text := getattr(owner, name, None):
                setattr(owner, name, _BRACKET.sub(r"\\[", text))
    for child in getattr(command, "commands", {}).values():
        _keep_brackets(child)


app = typer.Typer(
    name="evolve",
    cls=Root,
    help="Let an agent learn from its own tasks: run, inspect what it learned, roll it back.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
memory.register(playbook.app)
review.register(playbook.app)
app.add_typer(playbook.app, name="playbook")
app.add_typer(notebook.app, name="notebook")
app.add_typer(exemplars.app, name="exemplars")
app.add_typer(memory.app, name="memory")
app.add_typer(logs.app, name="logs")
app.add_typer(traces.app, name="traces")
app.add_typer(gates.app, name="gates")
app.add_typer(review.app, name="review")
policy_serve.register(policy.app)
app.add_typer(policy.app, name="policy")
app.add_typer(config.app, name="config")
app.add_typer(env.app, name="env")
app.add_typer(config.presets, name="presets")
skills.register(skills.app)
app.add_typer(skills.app, name="skills")
app.add_typer(train.app, name="train")
workspace.register(app)
run.register(app)
compare.register(app)
cycle.register(app)
mcp.register(app)
serve.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"evolve {installed('evolve-agents')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Option("--config", "-c", help="evolve.toml to use; else the nearest one above here.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="End an error with its whole traceback.")] = False,
    number: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the installed version.")
    ] = False,
) -> None:
    """Let an agent learn from its own tasks."""
    context.obj = file


@app.command()
def version(as_json: Json = False) -> None:
    """Print the installed version."""
    number = installed("evolve-agents")
    show({"version": number}, as_json, f"evolve {number}")


def main() -> None:
    """Run the command."""
    ignore_warnings_about_read_code()
    app()


def ignore_warnings_about_read_code() -> None:
    """Keep Python from warning whoever runs a command of code that a model wrote, which is parsed and not theirs."""
    warnings.filterwarnings("ignore", category=SyntaxWarning, module="<unknown>")


def _show_code(error: UserCodeError) -> None:
    """Print the lines of the user's code that an error passed through, and how to go on."""
    from evolve.usercode import trace

    for line in (*trace(error), error.resume, "the whole traceback: `evolve --debug ...`"):
        if line:
            say(line, error=True)


def _code(error: EvolveError) -> int:
    if isinstance(error, BudgetExceeded):
        return STOPPED
    return USAGE if isinstance(error, ConfigError | BadInput) else FAILED


def _sentence(error: OSError) -> str:
    about = f": {error.filename}" if error.filename else ""
    fix = "; free some space and repeat it, what was stored before is safe" if error.errno in _FULL else ""
    return f"{error.strerror or error}{about}{fix}"


def _complain(kind: str, message: str, as_json: bool) -> None:
    if as_json:
        say(as_text({"error": {"type": kind, "message": message}}, indent=None))
    else:
        say(f"error: {message}", error=True)


if __name__ == "__main__":
    main()
