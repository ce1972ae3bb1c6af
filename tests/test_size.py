"""Ceilings on files and functions: what fits in one head.

S1  a file has at most 500 lines, an `__init__.py` at most 30
S2  a function has at most 50 lines, its docstring not counted
S3  a function has at most 6 parameters, keyword-only ones included, `self` and `cls` not; a command (in `evolve/cli/`
    or a `__main__.py`) has one per option of its own and is not counted
S4  an `__init__.py` has no effects: it imports and defines, it calls nothing but what ALLOWED_CALLS names
S5  every module has a docstring, and in the packages so has every public function and class; a module's says what it
    is or does, and does not open with a question word
S6  what a module does as a program stands last in it: what is defined below would not be there yet
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("evolve", "memory", "skills", "policies", "playbooks", "contrib")
SCRIPTS = ("benchmarks", "examples", "labs")
FILE_LINES, INIT_LINES, FUNCTION_LINES, PARAMETERS = 500, 30, 50, 6
QUESTION = re.compile(r"(What|Which|How|Who|Whose|When|Where|Whether|Why)\b")
ALLOWED_CALLS = (
    "refuse_shadowed_packages()",
    "sorted(HOME)",
    "os.environ.setdefault('OMP_WAIT_POLICY', 'passive')",  # has to come before the first import of torch
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> Iterator[Function]:
    """Yield every function and method, nested ones included."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def body_lines(function: Function) -> int:
    """Count the lines from `def` to the end, without the docstring."""
    total = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is None:
        return total
    text = function.body[0]
    return total - ((text.end_lineno or 0) - text.lineno + 1)


def parameters(function: Function) -> int:
    """Count all parameters but the receiver."""
    args = function.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    receiver = bool(names) and names[0] in {"self", "cls", "mcs"}
    return len(names) - receiver + len(args.kwonlyargs) + (args.vararg is not None) + (args.kwarg is not None)


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Yield public top-level functions, and classes, that have no docstring; overloads and properties excepted."""
    for node in tree.body:
        public = isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_")
        if public and not ast.get_docstring(node):
            yield node.name


def effects(tree: ast.Module) -> Iterator[str]:
    """Yield top-level calls of an `__init__.py`; an error that it raises is none."""
    for statement in tree.body:
        if isinstance(statement, Function | ast.ClassDef | ast.Import | ast.ImportFrom):
            continue
        raised = {id(node) for part in ast.walk(statement) if isinstance(part, ast.Raise) for node in ast.walk(part)}
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and id(node) not in raised and ast.unparse(node) not in ALLOWED_CALLS:
                yield ast.unparse(node)


def program_before_others(tree: ast.Module) -> bool:
    """Return whether something stands below `if __name__ == "__main__"`."""
    return any(isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) for node in tree.body[:-1])


def complaints(name: str, source: str) -> list[str]:
    """Return every ceiling that `source` breaks."""
    tree = ast.parse(source)
    lines, is_init = len(source.splitlines()), name.endswith("__init__.py")
    is_command_line = name.startswith("evolve/cli/") or name.endswith("__main__.py")
    ceiling = INIT_LINES if is_init else FILE_LINES
    found = [f"{name}: {lines} lines, at most {ceiling}"] if lines > ceiling else []
    text = ast.get_docstring(tree)
    if not text:
        found.append(f"{name}: no module docstring")
    elif asked := QUESTION.match(text):
        found.append(f"{name}: its docstring opens with {asked[0]}; say what the module is or does")
    if program_before_others(tree):
        found.append(f"{name}: its program does not stand last")
    if name.split("/")[0] not in SCRIPTS:
        found += [f"{name}: {undoc} has no docstring" for undoc in undocumented(tree)]
    for function in functions(tree):
        where = f"{name}:{function.lineno} {function.name}"
        if (long := body_lines(function)) > FUNCTION_LINES:
            found.append(f"{where}: {long} lines, at most {FUNCTION_LINES}")
        if (many := parameters(function)) > PARAMETERS and not is_command_line:
            found.append(f"{where}: {many} parameters, at most {PARAMETERS}")
    if is_init:
        found += [f"{name}: calls {call} when imported" for call in effects(tree)]
    return found


@pytest.mark.parametrize("package", [*PACKAGES, *SCRIPTS])
def test_every_file_keeps_the_ceilings(root: Path, package: str) -> None:
    files = sorted((root / package).rglob("*.py"))
    found = [c for file in files for c in complaints(str(file.relative_to(root)), file.read_text())]
    assert not found, "\n" + "\n".join(found)


def test_tests_stand_in_the_rooms_of_what_they_test(root: Path) -> None:
    def rooms(folder: Path) -> set[str]:
        return {each.name for each in folder.iterdir() if each.is_dir() and each.name != "__pycache__"}

    assert not rooms(root / "tests" / "evolve") - rooms(root / "evolve")


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("a.py", '"""Doc."""\n' * 501, "501 lines"),
        ("__init__.py", '"""Doc."""\n' * 31, "31 lines"),
        ("__init__.py", '"""Doc."""\nimport os\nHOME = os.getcwd()\n', "calls os.getcwd() when imported"),
        ("a.py", "x = 1\n", "no module docstring"),
        ("a.py", '"""What a run came to."""\n', "opens with What"),
        ("a.py", 'if __name__ == "__main__":\n    print(X)\nX = 1\n', "does not stand last"),
        ("a.py", '"""Doc."""\ndef f(): pass\n', "f has no docstring"),
        ("a.py", '"""Doc."""\ndef _f(a, b, c, *, d, e, f, g): pass\n', "7 parameters"),
        ("a.py", '"""Doc."""\ndef _f():\n' + "    x = 1\n" * 50, "51 lines"),
    ],
)
def test_each_ceiling_can_be_hit(name: str, source: str, complaint: str) -> None:
    assert any(complaint in found for found in complaints(name, source))


def test_a_method_at_the_ceiling_passes() -> None:
    source = '''
        """Doc."""
        class _A:
            def f(self, a, b, c, *, d, e, f):
                """Doc

                of three lines."""
    '''
    assert complaints("a.py", textwrap.dedent(source).lstrip() + "        x = 1\n" * 49) == []
