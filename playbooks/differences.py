"""Differences between the call that worked and the failing one: pure comparison of two attempts at the same function.

Values that belong to the task (they stand in its instruction or came back from the environment) are no convention and
give no finding. What is found is said in one fixed wording, `<call>: <argument> must be <value>`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from playbooks.calls import Call, call_name

_ENUM = re.compile(r"[A-Za-z][A-Za-z_-]{0,19}|-?\d{1,3}|True|False|None")


@dataclass(frozen=True)
class Finding:
    """One difference that may be a rule. `cue` and `action` are its machine-readable form."""

    content: str
    cue: str
    action: str
    refuted: tuple[str, ...] = ()
    """The same rule with the values that were seen to be wrong, in the same wording."""


def order_finding(call: str, other: str, when: str) -> Finding:
    """Return the rule that `other` must come before or after (`when`) `call`."""
    same_app = "." in call and other.rpartition(".")[0] == call.rpartition(".")[0]
    said = other.rpartition(".")[2] if same_app else other
    return Finding(f"{call}: {when} it must come {said}", f"{when} {call}", other)


def value_finding(call: str, arg: str, value: str) -> Finding:
    """Return the rule that `arg` of `call` must be `value`."""
    said = f"argument {int(arg) + 1}" if arg.isdigit() else arg
    return Finding(f"{call}: {said} must be {value}", f"{call} {said}", value)


def inserted_calls(before_failed: Sequence[Call], before_worked: Sequence[Call]) -> list[Call]:
    """Return the calls made on the way to the working attempt that had not been made on the way to the failing one."""
    names = {call.name for call in before_failed}
    found: dict[str, Call] = {}
    for call in before_worked:
        if call.name not in names:
            found.setdefault(call.name, call)
    return list(found.values())


def changed_arguments(failed: Call, worked: Call, task_words: Collection[str]) -> Iterator[Finding]:
    """Yield a finding for each argument that was changed, wrapped, added or left out, and looks like a convention.

    `task_words` are the words of the instruction and of the observations: a literal among them is the task's own.
    """
    for arg, new in worked.args.items():
        old = failed.args.get(arg)
        if old is not None and ast.dump(old) == ast.dump(new):
            continue
        value = _added(new, task_words) if old is None else _changed(old, new, task_words)
        if value:
            yield value_finding(worked.name, arg, value)
    for arg in failed.args:
        if arg not in worked.args and not arg.isdigit():
            yield value_finding(worked.name, arg, "left out")


def differs(failed: Call, worked: Call) -> bool:
    """Return True when the two attempts passed other arguments."""
    return {k: ast.dump(v) for k, v in failed.args.items()} != {k: ast.dump(v) for k, v in worked.args.items()}


def _added(new: ast.expr, task_words: Collection[str]) -> str:
    if isinstance(new, ast.Constant):
        return _convention(new, task_words)
    name = call_name(new.func) if isinstance(new, ast.Call) else None
    return f"the result of {name}" if name else ""


def _changed(old: ast.expr, new: ast.expr, task_words: Collection[str]) -> str:
    if isinstance(new, ast.Call):
        return _wrapper(old, new)
    key, base = _key(new)
    if key and base and _key(old)[1] == base:
        return f"the {base}'s {key}" if len(base) > 2 else f"the {key}"
    if isinstance(old, ast.Constant) and isinstance(new, ast.Constant):
        return _convention(new, task_words) if _is_enum(old) else _shape(old.value, new.value)
    return ""


def _wrapper(old: ast.expr, new: ast.Call) -> str:
    """Return the function that turned the old value into the new one (`dmy` for `"..."` -> `dmy("...")`)."""
    function = new.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    inside = [*new.args, *(keyword.value for keyword in new.keywords)]
    if isinstance(function, ast.Attribute) and call_name(function) is None:
        inside.append(function.value)
    before = [old]
    if isinstance(old, ast.Call):
        before += [*old.args, *(keyword.value for keyword in old.keywords)]
    shared = {ast.dump(part) for part in before} & {ast.dump(part) for part in inside}
    return name if shared else ""


def _key(node: ast.expr) -> tuple[str, str]:
    """Return (key, base) of `base["key"]` or `base.key`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value, ast.unparse(node.value) if isinstance(node.value, ast.Name) else ""
    if isinstance(node, ast.Attribute):
        return node.attr, ast.unparse(node.value) if isinstance(node.value, ast.Name) else ""
    return "", ""


def _is_enum(node: ast.Constant) -> bool:
    return _ENUM.fullmatch(str(node.value)) is not None


def _convention(new: ast.Constant, task_words: Collection[str]) -> str:
    text = str(new.value)
    return text if _is_enum(new) and text.lower() not in task_words else ""


def _shape(old: object, new: object) -> str:
    """Return how a literal was rewritten without changing what it says: its type, letter case, joints or layout."""
    if type(old) is not type(new) and str(old) == str(new):
        return f"of type {type(new).__name__}"
    if not isinstance(old, str) or not isinstance(new, str) or _alnum(old) != _alnum(new):
        return ""
    if any(c.isdigit() for c in new):
        return f"written as {re.sub(r'[A-Za-z]', 'a', re.sub(r'[0-9]', '9', new))}"
    for joint, name in (("-", "kebab"), ("_", "snake")):
        if joint in new and joint not in old:
            return name
    return "upper" if new.isupper() else "lower" if new.islower() else "title" if new.istitle() else ""


def _alnum(text: str) -> list[str]:
    return sorted(c.lower() for c in text if c.isalnum())
