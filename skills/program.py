"""An episode as one program that calls skills: what a replay runs where the skills are defined already."""

from __future__ import annotations

import ast
from collections.abc import Collection

from memory.records import Trajectory
from skills.names import Function, parsed


def program(trajectory: Trajectory, names: Collection[str]) -> str:
    """Return the code of the steps that did not fail, in order, without the definitions of `names`.

    Comments and layout go with the definitions. Empty where nothing else was done.
    """
    steps = (step for step in trajectory.steps if step.error is None and not step.tool_calls)
    trees = (tree for step in steps if (tree := parsed(step.action)) is not None)
    return "\n".join(
        ast.unparse(statement)
        for tree in trees
        for statement in tree.body
        if not (isinstance(statement, Function) and statement.name in names)
    )
