"""Registers a function written by hand as a skill: read like every other one, kept on the operator's word.

add_skill(load_config(), find_free_room, origin="Book a free room.")
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from evolve.config.model import Config
from evolve.episode.prompting import described
from evolve.loop.assembly import make_environment, open_store
from evolve.usercode import users
from evolve.workspace.editing import OPERATOR, promote, skill_from
from memory.errors import BadInput, EvolveError
from memory.records import DeltaOp, Op, Provenance, Record, Status, Trust
from memory.store import Store
from skills.host_calls import documented
from skills.library import Library
from skills.record import Skill, SkillTest
from skills.static_checks import complaints

_TRIES = 3
"""How often a skill is written anew on top of what others wrote meanwhile."""


def add_skill(
    config: Config,
    function: Callable[..., Any] | str,
    *,
    summary: str = "",
    origin: str = "",
    tests: Sequence[SkillTest] = (),
) -> Record[Skill]:
    """Store a function, or its source, as an active skill of the workspace and return its record.

    `origin` is an instruction that it would be used for: tasks with such words are shown it. A name that is in use gets
    a new version; the same source again changes nothing. The source is read and never run here. Raises `BadInput` with
    everything that is wrong with it.
    """
    fields = {"summary": summary, "origin": origin, "tests": tuple(tests)}
    refused = ""
    with open_store(config, owner=False) as store:
        for _ in range(_TRIES):
            found = _add(store, config, _source(function), fields)
            if isinstance(found, Record):
                return found
            refused = found
    raise BadInput(f"the skill was not stored: {refused}")


def _add(store: Store, config: Config, source: str, fields: Mapping[str, Any]) -> Record[Skill] | str:
    """Return the record, or why it was refused: others may have written meanwhile."""
    namespace = config.memory.namespace
    library = Library(store.view(namespace).records(Skill.kind))
    skill = skill_from({"source": source, **fields}, library)
    wrong = held_against(skill, config, library.names)
    if wrong:
        raise BadInput(f"{skill.name} cannot be a skill: {'; '.join(wrong)}")
    old = library.get(skill.name) if skill.name in library.names else None
    if old is not None and old.payload == skill:
        return old if old.status is Status.ACTIVE else _in_use(store, namespace, old)
    overlay = library.overlay()
    _ = overlay.update(skill) if old else overlay.save(skill)
    op = DeltaOp(
        op=Op.EDIT if old else Op.ADD,
        kind=Skill.kind,
        target_id=old.id if old else None,
        base_version=old.version if old else None,
        payload=skill.model_dump(mode="json"),
        status=Status.ACTIVE,
        provenance=Provenance(trust=Trust.OPERATOR, author=OPERATOR),
    )
    (result,) = store.commit(namespace, [op], actor=OPERATOR).results
    record = store.get(result.record_id or "") if result.applied else None
    if record is not None and record.status is not Status.ACTIVE:  # an edit keeps the status
        return _in_use(store, namespace, record)
    return record or result.reason


def _in_use(store: Store, namespace: str, record: Record[Any]) -> Record[Skill] | str:
    (result,) = promote(store, namespace, record).results
    return (store.get(record.id) if result.applied else None) or result.reason


def held_against(skill: Skill, config: Config, known: Collection[str] | None = None) -> tuple[str, ...]:
    """Return what is wrong with a skill, which may call the functions that the world's own description shows.

    The world is made only where there is something to lift; one that cannot be made says nothing.
    """
    wrong = complaints(skill, known=known)
    if wrong:
        with suppress(EvolveError), users(f"environment {config.environment.name!r}"):
            shown = documented(described((), make_environment(config)))
            wrong = complaints(skill, known=known, documented=shown)
    return wrong


def _source(function: Callable[..., Any] | str) -> str:
    if isinstance(function, str):
        return function
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise BadInput(f"the source of {function!r} cannot be read ({error}); pass it as text") from error
