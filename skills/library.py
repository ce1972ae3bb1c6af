"""The skills in use, by name: what each requires, the code that defines them, and overlays that change nothing.

A library is a value: made from records, it never changes. A rollout chain works on an overlay (SAGE, arXiv 2512.17102:
every member of a group grows its own library), which is a library that can be changed without its base noticing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from typing import Any

from memory.errors import BadInput, NotFound
from memory.records import RECALLABLE, Provenance, Record
from skills.names import imported
from skills.record import Skill


class Library:
    """The skills among `records` that are in use (provisional or active). Other records are left aside.

    Of two skills with one name the newer one is in use; `hidden` says which, in one sentence each.
    """

    def __init__(self, records: Iterable[Record[Any]] = ()) -> None:
        self._skills: dict[str, Record[Skill]] = {}
        hidden: list[str] = []
        for record in sorted(filter(_in_use, records), key=lambda r: (r.number, r.created_at, r.id)):
            older = self._skills.pop(record.payload.name, None)
            if older is not None:
                hidden.append(f"{older.label} is hidden by the newer {record.label}: both are named {_name(record)}")
            self._skills[_name(record)] = record
        self.hidden = tuple(hidden)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the skills, oldest first."""
        return tuple(self._skills)

    @property
    def records(self) -> tuple[Record[Skill], ...]:
        """The skills' records, oldest first."""
        return tuple(self._skills.values())

    def get(self, name: str) -> Record[Skill]:
        """Return the skill with that name. Raises `NotFound` that names the nearest ones."""
        if name not in self._skills:
            near = get_close_matches(name, self._skills, n=3) or sorted(self._skills)[:10]
            known = f"did you mean {', '.join(near)}?" if near else "the library is empty"
            raise NotFound(f"no skill {name!r} in use; {known}")
        return self._skills[name]

    def required_by(self, name: str) -> tuple[str, ...]:
        """Return the names of the skills that call this one, oldest first."""
        return tuple(_name(record) for record in self._skills.values() if name in record.payload.requires)

    def require_uncalled(self, name: str) -> None:
        """Raise `BadInput` where other skills call this one: it cannot be put out of use before them."""
        if users := self.required_by(name):
            raise BadInput(f"skill {name!r} is called by {', '.join(users)}; retire these first")

    def closure(self, names: Iterable[str]) -> tuple[Record[Skill], ...]:
        """Return these skills and all they require, each once, callees before callers.

        Raises `NotFound` for a name or a requirement that is not in use, and `BadInput` for skills that require each
        other in a circle.
        """
        order: TopologicalSorter[str] = TopologicalSorter()
        waiting = [(name, "") for name in names]
        seen: set[str] = set()
        while waiting:
            name, caller = waiting.pop(0)
            if caller and name not in self._skills:
                raise NotFound(f"skill {caller!r} requires {name!r}, which is not in use; restore or save {name!r}")
            if name not in seen:
                seen.add(name)
                requires = self.get(name).payload.requires
                order.add(name, *requires)
                waiting += [(each, name) for each in requires]
        try:
            return tuple(self._skills[name] for name in order.static_order())
        except CycleError as error:
            circle = " -> ".join(reversed(error.args[1]))
            raise BadInput(f"skills require each other in a circle: {circle}; remove one of the calls") from error

    def prelude(self, names: Iterable[str]) -> str:
        """Return the code that defines these skills and all they require: shared imports once, then callees first.

        Each function is the stored one to the byte. Raises as `closure`, and `BadInput` when two imports, or an import
        and a skill, give one name to different things.
        """
        skills = [record.payload for record in self.closure(names)]
        meaning = {skill.name: f"skill {skill.name}" for skill in skills}
        imports: dict[str, None] = {}
        for skill in skills:
            for node in skill.imports:
                imports[ast.unparse(node)] = None
                for bound, means in imported(node):
                    if meaning.setdefault(bound, means) != means:
                        raise BadInput(
                            f"skill {skill.name!r} imports {means} as {bound!r}, which is {meaning[bound]} elsewhere "
                            "in the prelude; import the module as a whole, or rename the skill"
                        )
        return "\n\n".join(filter(None, ["\n".join(imports), *(skill.definition for skill in skills)])) + "\n"

    def overlay(self) -> Overlay:
        """Return a library that starts as this one and can be changed; this one stays as it is."""
        return Overlay(self)


class Overlay(Library):
    """A library of one rollout chain: what is saved, updated or deleted here is seen here alone."""

    def __init__(self, base: Library) -> None:
        super().__init__()
        self.hidden = base.hidden
        self._skills = {_name(record): record for record in base.records}

    def save(self, skill: Skill, provenance: Provenance | None = None) -> Record[Skill]:
        """Add a skill and return its record: id from its source, number 0, for the journal has not seen it.

        Raises `BadInput` when the name is taken, and as `closure` when what it requires is missing.
        """
        if skill.name in self._skills:
            raise BadInput(f"there is a skill {skill.name!r} already; update it, or choose another name")
        return self.put(skill, provenance)

    def put(self, skill: Skill, provenance: Provenance | None = None) -> Record[Skill]:
        """Add a skill as `save`, in place of the one of its name, where there is one. Raises as `closure`."""
        origin = provenance or Provenance()
        return self._put(
            Record[Skill](id=skill.sha256[:26], kind=Skill.kind, slug=skill.slug(), payload=skill, provenance=origin)
        )

    def update(self, skill: Skill) -> Record[Skill]:
        """Replace the skill of that name and return its next version. Raises as `get` and `closure`."""
        old = self.get(skill.name)
        return self._put(old.model_copy(update={"payload": skill, "version": old.version + 1, "content_hash": ""}))

    def delete(self, name: str) -> None:
        """Take a skill out. Raises as `get`, and `BadInput` when other skills require it."""
        self.get(name)
        if users := self.required_by(name):
            raise BadInput(f"skill {name!r} is required by {', '.join(users)}; delete or update these first")
        del self._skills[name]

    def _put(self, record: Record[Skill]) -> Record[Skill]:
        before = dict(self._skills)
        self._skills[_name(record)] = record
        try:
            self.closure([_name(record)])
        except (BadInput, NotFound):
            self._skills = before
            raise
        return record


def _in_use(record: Record[Any]) -> bool:
    return record.kind == Skill.kind and record.status in RECALLABLE


def _name(record: Record[Skill]) -> str:
    return record.payload.name
