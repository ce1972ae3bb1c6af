"""The end of every exported script: what makes a function a command. Copied as text, from the function on.

It uses the standard library alone, and no name of the module it ends up in: that one belongs to the function.
"""

from collections.abc import Callable
from typing import Any


def skill_command(function: "Callable[..., Any]", needs: tuple[str, ...]) -> int:
    """Call the function with the JSON object on stdin and print `{"ok": true, "result": ...}`.

    Exit codes: 0 done; 1 the function raised, or returned what is no JSON; 2 wrong input; 3 host functions are missing.
    What the function prints goes to stderr.
    """
    import argparse
    import contextlib
    import inspect
    import json
    import sys

    def say(code: int, **message: "Any") -> int:
        sys.stdout.write(json.dumps({"ok": code == 0, **message}) + "\n")
        return code

    def fail(code: int, kind: str, text: str) -> int:
        sys.stderr.write(f"{kind}: {text}\n")
        return say(code, error={"type": kind, "message": text})

    signature = inspect.signature(function)
    parser = argparse.ArgumentParser(
        prog=f"{function.__name__}.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"{function.__name__}{signature}\n\n{inspect.getdoc(function) or ''}".rstrip().replace("%(", "% ("),
        epilog="Reads a JSON object with the arguments on stdin (nothing = no arguments), prints one JSON object.\n"
        f"Host functions it needs: {', '.join(needs) or 'none'}.\n"
        "Exit codes: 0 done, 1 it raised, 2 wrong input, 3 host functions are missing.",
    )
    parser.add_argument("--dry-run", action="store_true", help="check the input, call nothing")
    dry = parser.parse_args().dry_run
    try:
        given = json.loads(sys.stdin.read().strip() or "{}")
        if not isinstance(given, dict):
            raise ValueError(f"expected a JSON object of arguments, got {type(given).__name__}")
        bound = signature.bind(**given)
    except (ValueError, TypeError) as error:
        return fail(2, "BadInput", f"{error}; see --help")
    if needs:
        return fail(3, "HostFunctionMissing", f"it calls {', '.join(needs)}, which a script by itself does not have")
    if dry:
        return say(0, would_call=function.__name__, arguments=given)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            result = function(*bound.args, **bound.kwargs)
        return say(0, result=result)
    except Exception as error:
        return fail(1, type(error).__name__, str(error))
