"""Registry of generations, with the live one and their history: `policies.db` and the adapters beside it.

Exactly one generation is live. `promote` and `rollback` move that in one transaction, each with its entries in an
append-only history; a process killed in between leaves what was before. The order of c.3 in the reference (canary
before promotion) is held here: only what passed its canary can go live.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from memory.errors import NotFound
from memory.sqlite.generations_file import GenerationsFile
from policies.generations.adapters import fingerprint, inspect_weights
from policies.generations.base_model import Base
from policies.generations.errors import AdapterRefused, WrongState
from policies.generations.generation_records import Change, Generation, State
from policies.generations.storage import FOLDER, numbering, version_name, write_adapter

DATABASE = "policies.db"


class Registry:
    """The generations of one workspace's policy. Threads may share it; each process opens its own."""

    def __init__(self, folder: Path, base: Base | None = None, *, read_only: bool = False) -> None:
        """Open the registry in `folder` (`.evolve/policies`), made when missing and `base` is given: as generation 0.

        Raises `NotFound` where there is none, `WrongState` when it was begun for another base.
        """
        self.folder = folder.resolve()
        path = self.folder / DATABASE
        if base is None and not path.exists():
            raise NotFound(f"no generations in {str(folder)!r}; publish an adapter first: training does that")
        if not read_only:
            self.folder.mkdir(parents=True, exist_ok=True)
        self._file = GenerationsFile(path, read_only=read_only)
        try:
            if base is not None:
                self._begin(base, read_only=read_only)
        except BaseException:
            self.close()
            raise

    @property
    def base(self) -> Base:
        """The model that all generations adapt."""
        return self.get(version_name(0)).base

    def generations(self) -> tuple[Generation, ...]:
        """Return all of them, in order."""
        return tuple(map(self._generation, self._file.rows()))

    def get(self, version: str) -> Generation:
        """Return one generation by name or number. Raises `NotFound` and says which there are."""
        name = version_name(int(version)) if version.isdigit() else version
        rows = self._file.rows(version=name)
        if not rows:
            known = ", ".join(row["version"] for row in self._file.rows())
            raise NotFound(f"no generation {version!r}; there are {known}")
        return self._generation(rows[0])

    def live(self) -> Generation:
        """Return the generation that answers new requests."""
        (row,) = self._file.rows(state="live")
        return self._generation(row)

    def previous(self) -> Generation | None:
        """Return where a rollback would go, None when the live one replaced nothing."""
        before = self.live().before
        return None if before is None else self.get(before)

    def history(self, version: str | None = None) -> tuple[Change, ...]:
        """Return what happened, in order, to one generation or to all."""
        return tuple(Change(**row | {"data": json.loads(row["data"])}) for row in self._file.events(version))

    def publish(
        self,
        source: Path,
        *,
        base: Base,
        parent: str | None = None,
        metrics: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Generation:
        """Copy an adapter's directory to its place and register it as a candidate.

        `base`: what it was trained on. Raises `AdapterRefused` for another base than the registry's and for what may
        not be served; then nothing is left behind. `parent`: default the live one.
        """
        if not base.same(self.base):
            raise AdapterRefused(
                f"adapter {str(source)!r} was trained on weights {base.weights[:12]} and tokenizer "
                f"{base.tokenizer[:12]}, expected {self.base.weights[:12]} and {self.base.tokenizer[:12]} "
                f"({self.base.model!r}); train on that base, or begin another workspace"
            )
        origin = self.live() if parent is None else self.get(parent)
        adapter = inspect_weights(source, Path(self.base.model))
        with numbering(self.folder, self.generations()[-1].number) as number:
            place = write_adapter(self.folder, number, source, base)
            name = version_name(number)
            made = {"adapter": place.name, "sha256": adapter.sha256, "parent": origin.version, "state": "candidate"}
            with self._file.transaction():
                self._add(number, base, {**made, "metrics": _json(metrics), "config": _json(config)})
                self._event(name, "published", "candidate", f"trained from {origin.version}")
        return self.get(name)

    def accept(self, version: str, report: Mapping[str, Any]) -> None:
        """Record that a generation passed its canary: it may be promoted. Its files must still be what they were."""
        with self._file.transaction():
            generation = self.get(version)
            self._require_files(generation)
            state: State = "live" if generation.state == "live" else "canary"
            self._file.change(generation.version, state=state)
            self._event(generation.version, "accepted", state, "passed its canary", report)

    def refuse(self, version: str, reason: str, report: Mapping[str, Any] | None = None) -> None:
        """Record why a generation was not let live; one that had passed earlier must pass again."""
        with self._file.transaction():
            generation = self.get(version)
            state: State = "candidate" if generation.state == "canary" else generation.state
            self._file.change(generation.version, state=state)
            self._event(generation.version, "refused", state, reason, report)

    def measure(self, version: str, metrics: Mapping[str, Any]) -> Generation:
        """Add metrics to a generation, for `evolve policy diff` and for gates."""
        with self._file.transaction():
            generation = self.get(version)
            self._file.change(generation.version, metrics=_json({**generation.metrics, **metrics}))
            self._event(generation.version, "measured", generation.state, "", metrics)
        return self.get(version)

    def promote(self, version: str, reason: str = "") -> Generation:
        """Let a generation answer from now on. Raises `WrongState` unless it passed its canary; the base needs none."""
        with self._file.transaction():
            generation, live = self.get(version), self.live()
            if generation.state == "live":
                raise WrongState(f"{generation.version} is live already; nothing to promote")
            if generation.state != "canary" and generation.adapter is not None:
                raise WrongState(
                    f"{generation.version} is {generation.state}, expected one that passed its canary; run "
                    f"`evolve policy canary {generation.version}`"
                )
            self._require_files(generation)
            self._swap(live.version, generation.version)
            self._file.change(generation.version, before=live.version)
            self._event(live.version, "retired", "retired", f"replaced by {generation.version}")
            self._event(generation.version, "promoted", "live", reason, {"before": live.version})
        return self.get(version)

    def rollback(self, reason: str = "") -> Generation:
        """Let the generation before the live one answer again, and return it. Raises `WrongState` where none was."""
        with self._file.transaction():
            live, previous = self.live(), self.previous()
            if previous is None:
                raise WrongState(f"{live.version} is live and replaced nothing; there is nothing to roll back to")
            self._require_files(previous)
            self._swap(live.version, previous.version)
            self._event(live.version, "rolled_back", "retired", reason, {"to": previous.version})
            self._event(previous.version, "restored", "live", f"{live.version} was rolled back")
        return self.get(previous.version)

    def close(self) -> None:
        """Close the database; closing twice is allowed."""
        self._file.close()

    def __enter__(self) -> Registry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, base: Base, *, read_only: bool) -> None:
        """Make generation 0, or see that it is this base."""
        if not read_only:
            with self._file.transaction():
                if not self._file.rows():
                    self._add(0, base, {"sha256": "", "metrics": "{}", "config": "{}", "state": "live"})
                    self._event(version_name(0), "published", "live", "the base model")
        if not self.base.same(base):
            known = self.base
            raise WrongState(
                f"the generations in {str(self.folder)!r} adapt {known.model!r} (weights {known.weights[:12]}, "
                f"tokenizer {known.tokenizer[:12]}), got {base.model!r} ({base.weights[:12]}, {base.tokenizer[:12]}); "
                "configure that base again, or begin another workspace"
            )

    def _require_files(self, generation: Generation) -> None:
        if generation.adapter is None:
            return
        try:
            found = fingerprint(generation.adapter)
        except OSError as error:
            raise WrongState(
                f"{generation.version}: its adapter cannot be read ({error}); restore that file"
            ) from error
        if found != generation.sha256:
            raise WrongState(
                f"{generation.version}: its adapter in {str(generation.adapter)!r} has sha256 {found[:12]}, expected "
                f"{generation.sha256[:12]}; adapters are never changed: restore the files, or publish it anew"
            )

    def _swap(self, live: str, new: str) -> None:
        """Move the alias: the old one first, since there can be only one."""
        self._file.change(live, state="retired")
        self._file.change(new, state="live")

    def _add(self, number: int, base: Base, row: Mapping[str, str]) -> None:
        self._file.add({**base.model_dump(), **row, "number": number, "version": version_name(number)})

    def _event(self, version: str, kind: str, state: State, reason: str, data: Mapping[str, Any] | None = None) -> None:
        self._file.happened(version, kind, state, reason, _json(data))

    def _generation(self, row: Mapping[str, Any]) -> Generation:
        own = {name: value for name, value in row.items() if name not in Base.model_fields}
        read = {
            "adapter": None if row["adapter"] is None else self.folder / FOLDER / row["adapter"],
            "base": Base.model_validate({name: row[name] for name in Base.model_fields}),
            "metrics": json.loads(row["metrics"]),
            "config": json.loads(row["config"]),
        }
        return Generation.model_validate(own | read)


def _json(value: Mapping[str, Any] | None) -> str:
    return json.dumps(value or {}, sort_keys=True, default=str)
