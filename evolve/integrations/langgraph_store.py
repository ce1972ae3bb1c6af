"""A LangGraph `BaseStore` over the journal: what agents remember survives, is inspected and is rolled back with it.

    with open_journal_store(load_config()) as store:
        graph = builder.compile(store=store)

Each item is a record of kind `item` in a namespace of its own; a put is an ADD or EDIT, a delete a REMOVE, with their
events. Putting what is there already changes nothing. Differences from LangGraph's own stores: values are JSON; secrets
in them are redacted; a text that was forgotten is refused; time to live is refused; a search with a query ranks by
recall (words and vectors), and its score is the fused one. What is put through one store object is one run.

Which items and paths a LangGraph query means: filters over values, conditions over paths. Pure.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
    validate_op_namespace,
)

from evolve.config.model import Config
from evolve.loop.assembly import open_store
from evolve.loop.runs import LANGGRAPH, RunRecord
from evolve.loop.sessions import Session, session_record
from memory.content import clean
from memory.errors import BadInput
from memory.records import DeltaOp, Event, Provenance, RecallQuery, Record, Trust, new_id
from memory.records import Op as Kind
from memory.store import Store
from memory.stored_item import StoredItem, texts_in

NAMESPACE = "langgraph"
ACTOR = "langgraph"
LARGEST = 1_000_000
"""Characters of one item's value as JSON."""
DIGEST = 12
"""Hexadecimal digits of the digest by which redacted labels of an address are told apart."""
_FIRST_LOOK = 64
"""Records that a search recalls at first; four times as many as long as the filter leaves too few."""

Address = tuple[tuple[str, ...], str]
Items = dict[Address, Record[StoredItem]]


@contextmanager
def open_journal_store(config: Config, namespace: str = NAMESPACE) -> Generator[JournalStore]:
    """Open the workspace, beside a run if one is under way, and give its store. Raises `BadInput` as `JournalStore`."""
    if namespace == config.memory.namespace:
        raise BadInput(f"got namespace {namespace!r}, in which the loop keeps its knowledge; expected one of its own")
    with open_store(config, owner=False) as store:
        opened = JournalStore(store, namespace, record=session_record(new_id(), LANGGRAPH, config))
        try:
            yield opened
        finally:
            opened.close()


class JournalStore(BaseStore):
    """Safe between threads and processes: the last put wins, as a batch or not at all."""

    supports_ttl = False

    def __init__(self, store: Store, namespace: str = NAMESPACE, *, record: RunRecord | None = None) -> None:
        """Take an open workspace, which stays the caller's to close; `record` is the session's as a run."""
        self._store, self._namespace = store, namespace
        record = record or RunRecord(run_id=new_id(), kind=LANGGRAPH, mode=LANGGRAPH)
        self.run_id = record.run_id
        self._session = Session(store, record)
        self._seen: tuple[object, Items] = (None, {})

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer all reads from before the batch, then apply its puts as one commit."""
        todo = list(ops)
        for op in todo:
            validate_op_namespace(op)
        results = [None if isinstance(op, PutOp) else self._read(op) for op in todo]
        puts = {_address(op.namespace, op.key): op for op in todo if isinstance(op, PutOp)}
        if puts:
            self._write({address: _payload(address, op) for address, op in puts.items()})
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch`, in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def close(self) -> None:
        """Journal that the session ended; the workspace stays open."""
        self._session.end()

    def history(self, namespace: tuple[str, ...], key: str) -> list[Event]:
        """Return every event about what was ever kept at an address, oldest first."""
        address = _address(namespace, key)
        kept = (record for record in self._store.records(self._namespace) if record.payload.address == address)
        return [event for record in kept for event in self._store.history(record.id)]

    def _items(self) -> Items:
        """Return what is stored, in order of creation."""
        view = self._store.view(self._namespace)
        seen, items = self._seen
        if seen is not view:
            items = {record.payload.address: record for record in view.records(StoredItem.kind)}
            self._seen = (view, items)
        return items

    def _read(self, op: Op) -> Result:
        match op:
            case GetOp():
                record = self._items().get(_address(op.namespace, op.key))
                return None if record is None else Item(**_fields(record))
            case SearchOp():
                return self._search(op)
            case ListNamespacesOp():
                return self._namespaces(op)
            case _:
                raise BadInput(f"got operation {op!r}, expected a GetOp, SearchOp, ListNamespacesOp or PutOp")

    def _search(self, asked: SearchOp) -> list[SearchItem]:
        op = asked._replace(namespace_prefix=_path(asked.namespace_prefix))
        until = op.offset + op.limit
        if op.query and op.query.strip():
            ranked = self._ranked(op, until)
            rest = (record for record in self._items().values() if not record.payload.searched and _meant(record, op))
            found = [*ranked, *((record, None) for record in rest)]
        else:
            found = [(record, None) for record in self._items().values() if _meant(record, op)]
        return [SearchItem(**_fields(record), score=score) for record, score in found[op.offset : until]]

    def _ranked(self, op: SearchOp, until: int) -> list[tuple[Record[StoredItem], float | None]]:
        """Return at least `until` items that a search means, best first, or all there are."""
        k, total = max(_FIRST_LOOK, until), len(self._items())
        while True:
            query = RecallQuery(
                text=op.query or "",
                namespace=self._namespace,
                kinds=(StoredItem.kind,),
                k=k,
                min_score=-1.0,
                mmr_lambda=1.0,
            )
            found = self._store.recall(query)
            meant = [hit for hit in found if hit.record.payload.searched and _meant(hit.record, op)]
            if len(meant) >= until or k >= total:
                return [(hit.record, hit.scores["rrf"]) for hit in meant]
            k *= 4

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        wanted = [each._replace(path=_path(each.path)) for each in op.match_conditions or ()]
        paths = {path for path, _ in self._items() if all(matches(path, each) for each in wanted)}
        if op.max_depth is not None:
            paths = {path[: op.max_depth] for path in paths}
        return sorted(paths)[op.offset : op.offset + op.limit]

    def _write(self, wanted: dict[Address, StoredItem | None]) -> None:
        """Commit the changes in one transaction, so that two processes never make two items of one address.

        They are made ready before it begins, and made anew where another writer came between: no writer waits for it.
        """
        self._session.begin()
        while True:
            version = self._store.version(self._namespace)
            items = self._items()
            changes = [_change(items.get(address), payload) for address, payload in wanted.items()]
            ready = self._store.prepare([op for op in changes if op is not None])
            if not ready:
                return
            with self._store.journal.transaction():
                if self._store.version(self._namespace) != version:
                    continue
                commit = self._store.commit(self._namespace, ready, actor=ACTOR, run_id=self.run_id)
                if commit.refused:
                    why = commit.refused[0].reason
                    raise BadInput(f"the item was refused: {why}; nothing of the batch was stored")
                return


def _address(path: Sequence[str], name: str) -> Address:
    """Return the address as it is stored."""
    return _path(path), _label(name)


def _path(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(_label, path))


def _label(text: str) -> str:
    """Return a label as it is stored: a secret in it is redacted like everywhere, and a digest tells two apart."""
    kept = clean(text)
    return kept if kept == text else f"{kept}#{sha256(text.encode()).hexdigest()[:DIGEST]}"


def _payload(address: Address, op: PutOp) -> StoredItem | None:
    """Return what is to be stored; None for a delete. Raises `BadInput` for what cannot be."""
    if op.ttl is not None:
        raise BadInput(f"got ttl={op.ttl!r} for {op.key!r}; the journal keeps what it was given: delete it instead")
    if op.value is None:
        return None
    try:
        body = json.dumps(op.value, allow_nan=False)
        value = clean(json.loads(body))
    except (TypeError, ValueError) as wrong:
        raise BadInput(
            f"got a value for {op.key!r} that is no JSON ({wrong}); store texts, numbers, lists and dicts"
        ) from wrong
    if len(body) > LARGEST:
        raise BadInput(
            f"got a value of {len(body):,} characters for {op.key!r}, expected at most {LARGEST:,}; store large "
            "texts as files and keep their names here"
        )
    fields = [] if op.index is False else op.index
    texts = texts_in(value) if fields is None else (text for each in fields for text in get_text_at_path(value, each))
    return StoredItem(path=address[0], name=address[1], value=value, searched=tuple(texts))


def _change(record: Record[StoredItem] | None, payload: StoredItem | None) -> DeltaOp | None:
    """Return the op that makes a record say what is wanted; None where it does."""
    if payload is None:
        return None if record is None else _op(Kind.REMOVE, record, None)
    if record is None:
        return _op(Kind.ADD, None, payload)
    return None if record.payload == payload else _op(Kind.EDIT, record, payload)


def _op(op: Kind, record: Record[StoredItem] | None, payload: StoredItem | None) -> DeltaOp:
    return DeltaOp(
        op=op,
        kind=StoredItem.kind,
        target_id=record.id if record else None,
        base_version=record.version if record else None,
        payload=payload.model_dump(mode="json") if payload else None,
        provenance=Provenance(trust=Trust.IMPORTED, author=ACTOR),
    )


def _meant(record: Record[StoredItem], op: SearchOp) -> bool:
    prefix = op.namespace_prefix
    return record.payload.path[: len(prefix)] == prefix and passes(record.payload.value, op.filter)


def _fields(record: Record[StoredItem]) -> dict[str, Any]:
    return {
        "namespace": record.payload.path,
        "key": record.payload.name,
        "value": copy.deepcopy(record.payload.value),
        "created_at": record.created_at,
        "updated_at": record.updated_at,
    }


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, wanted: value == wanted,
    "$ne": lambda value, wanted: value != wanted,
    "$gt": lambda value, wanted: float(value) > float(wanted),
    "$gte": lambda value, wanted: float(value) >= float(wanted),
    "$lt": lambda value, wanted: float(value) < float(wanted),
    "$lte": lambda value, wanted: float(value) <= float(wanted),
}


def passes(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Tell whether a value fits every part of a filter. Raises `BadInput` for an operator that does not exist."""
    return all(_fits(value.get(key), part) for key, part in (wanted or {}).items())


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compares(value, str(name), bound) for name, bound in wanted.items())
        return isinstance(value, dict) and all(_fits(value.get(key), part) for key, part in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(_fits(one, other) for one, other in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def _compares(value: Any, operator: str, bound: Any) -> bool:
    if operator not in _OPERATORS:
        raise BadInput(f"got filter operator {operator!r}, expected one of {', '.join(_OPERATORS)}")
    try:
        return _OPERATORS[operator](value, bound)
    except (TypeError, ValueError):  # no number, so neither more nor less
        return False


def matches(path: tuple[str, ...], condition: MatchCondition) -> bool:
    """Tell whether a path begins or ends as a condition says; `*` stands for any label."""
    wanted = tuple(condition.path)
    if len(path) < len(wanted):
        return False
    part = path[: len(wanted)] if condition.match_type == "prefix" else path[len(path) - len(wanted) :]
    return all(pattern in ("*", label) for label, pattern in zip(part, wanted, strict=True))
