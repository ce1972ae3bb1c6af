"""pgvector as the vector index: `memory.index = "pgvector"`, in the PostgreSQL database that holds the workspace.

Each collection is a table of the workspace's schema with a graph (HNSW) of its own: one graph for all would have to be
filtered, and finds less. A graph is built when its table is large and holds all that waited.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, LiteralString, cast

from memory.errors import BadInput, IndexUnavailable
from memory.index_address import legal_name
from memory.postgres.postgres_connection import ALIVE, connected, first_line, psycopg, schema_of
from memory.protocols import Vector
from memory.vectors import check_maker, check_query, check_vectors, ranked

MOST = 2000
"""Numbers of a vector that pgvector's graph takes."""
SECONDS = 30
"""Longest wait for the server."""
WATCHED_S = 0.2
"""How often it is asked whether a graph is still wanted."""
_SETTINGS = {
    "hnsw.ef_search": "400",  # candidates of a search; with 200 it finds 80 % of the ten nearest of 100,000 vectors
    "hnsw.iterative_scan": "strict_order",  # of more than that too (pgvector 0.8)
    "lock_timeout": f"{SECONDS}s",
    "statement_timeout": f"{SECONDS}s",
    **ALIVE,
}
NEIGHBOURS = 16
GRAPH = f"m = {NEIGHBOURS}, ef_construction = 200"
NODE_BYTES = 256 + 2 * NEIGHBOURS * 32
"""What a graph in the making takes of memory for each vector, beside its numbers; rounded up."""
MEMORY_MB = 2048
"""Most memory that the server takes for one. What does not fit is added on the disk, which is several times slower."""
_HAS_GRAPH = """
    SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
    WHERE i.indrelid = to_regclass(%s) AND a.amname = 'hnsw' AND i.indisvalid
"""
_MEGABYTES = "SELECT setting::bigint / 1024 FROM pg_settings WHERE name = 'maintenance_work_mem'"
_CATALOGUE = """
    CREATE TABLE IF NOT EXISTS {} (
        name text PRIMARY KEY, held text UNIQUE NOT NULL, model text NOT NULL, dim integer NOT NULL)
"""
_EXTENSION = "SELECT nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE extname = 'vector'"


class PgvectorIndex:
    """Approximate cosine search in PostgreSQL. Safe to share between threads.

    Raises `IndexUnavailable` where the server or its extension does not answer, and `EmbedderMismatch` on a collection
    that another embedder made.
    """

    def __init__(self, address: str, database: str, *, model: str, dim: int) -> None:
        """Raises `BadInput` for a workspace that is not on a server; that is not asked yet."""
        if address or not database:
            raise BadInput(
                f"got index 'pgvector{':' * bool(address)}{address}' and memory.database = {database!r}; pgvector "
                "stands in the workspace's own database: name that in memory.database, and nothing after 'pgvector'"
            )
        if dim > MOST:
            raise BadInput(f"got an embedder of {dim} dimensions; pgvector takes at most {MOST}: use another index")
        self._database, self._model, self._dim = database, model, dim
        self._raw: psycopg.Connection[Any] | None = None

    def connect(self) -> None:
        """Connect, and make what is missing. Raises `IndexUnavailable`."""
        with self._errors():
            self.close()
            self._raw = self._connected()
            schema = schema_of(self._rows("SHOW search_path")[0][0])
            if not self._rows(_EXTENSION):
                self._run("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
            ((home,),) = self._rows(_EXTENSION)
            self._path = f'"{schema}", "{home}"'
            for setting in {"search_path": self._path, **_SETTINGS}.items():
                self._rows("SELECT set_config(%s, %s, false)", setting)
            self._catalogue = f'"{schema}".index_collections'
            self._schema = schema
            self._run(_CATALOGUE.format(self._catalogue))

    def _connected(self) -> psycopg.Connection[Any]:
        return connected(self._database, "evolve index")

    def upsert(self, collection: str, ids: Sequence[str], vectors: Vector) -> None:
        """Insert or replace vectors `(n, dim)`. Raises `BadInput` on a zero vector or another dimension."""
        check_vectors(ids, vectors, self._dim)
        if not ids:
            return
        table = self._table(collection) or self._create(collection)
        statement = f"INSERT INTO {table} VALUES (%s, %s::vector) ON CONFLICT (id) DO UPDATE SET v = excluded.v"
        with self._errors(), self._conn.cursor() as cursor:
            rows = [(key, _text(row)) for key, row in zip(ids, vectors, strict=True)]
            cursor.executemany(cast("LiteralString", statement), rows)

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """Forget ids; unknown ones are ignored."""
        if ids and (table := self._table(collection)):
            with self._errors():
                self._run(f"DELETE FROM {table} WHERE id = ANY(%s)", (list(ids),))

    def search(self, collection: str, vector: Vector, k: int) -> list[tuple[str, float]]:
        """Return up to `k` (id, cosine in [-1, 1]), best first; equal ones by id."""
        check_query(vector, self._dim)
        table = self._table(collection) if k > 0 else None
        if table is None:
            return []
        statement = f"SELECT id, 1 - (v <=> %s::vector) FROM {table} ORDER BY v <=> %s::vector LIMIT %s"
        with self._errors():
            found = self._rows(statement, (_text(vector), _text(vector), k))
        hits = ((str(key), round(max(-1.0, min(1.0, float(cosine))), 6)) for key, cosine in found)
        return ranked(hits)

    def count(self, collection: str) -> int:
        """Return how many vectors the collection holds."""
        table = self._table(collection)
        if table is None:
            return 0
        with self._errors():
            return int(self._rows(f"SELECT count(*) FROM {table}")[0][0])

    def collections(self) -> list[str]:
        """Return the names of all collections."""
        with self._errors():
            return [row[0] for row in self._rows(f"SELECT name FROM {self._catalogue} ORDER BY name")]

    def ids(self, collection: str) -> list[str]:
        """Return every id in a collection, sorted."""
        table = self._table(collection)
        if table is None:
            return []
        with self._errors():
            return sorted(str(row[0]) for row in self._rows(f"SELECT id FROM {table}"))

    def build(self, collection: str, stopped: Callable[[], bool]) -> None:
        """Build the graph of a collection that has none; end early, without one, once `stopped` says so.

        Built at once it takes a third of the time that it takes to grow by each vector (docs/LOG.md). Searches compare
        all vectors meanwhile. Processes of the server share the work where it has the shared memory for them.
        """
        table = self._table(collection)
        if table is None:
            return
        with self._errors():
            if self._rows(_HAS_GRAPH, (table,)):
                return
            with self._connected() as own, _watched(own, stopped):
                vectors = self.count(collection)
                try:
                    self._build(own, table, vectors, shared=True)
                except (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory):
                    self._build(own, table, vectors, shared=False)

    def _build(self, connection: psycopg.Connection[Any], table: str, vectors: int, *, shared: bool) -> None:
        """Build a graph in one transaction of a connection of its own: searches go on by the other one."""
        needed = vectors * (4 * self._dim + NODE_BYTES) // 2**20 + 1
        with connection.transaction():
            ((given,),) = connection.execute(_MEGABYTES).fetchall()
            settings = {"maintenance_work_mem": f"{max(given, min(needed, MEMORY_MB))}MB", "statement_timeout": "0"}
            settings |= {"lock_timeout": f"{SECONDS}s", "search_path": self._path, **ALIVE}
            settings |= {} if shared else {"max_parallel_maintenance_workers": "0"}
            for setting in settings.items():
                connection.execute("SELECT set_config(%s, %s, true)", setting)
            statement = f"CREATE INDEX ON {table} USING hnsw (v vector_cosine_ops) WITH ({GRAPH})"
            connection.execute(cast("LiteralString", statement))

    def erase(self) -> None:
        """Delete every collection of this workspace."""
        with self._errors(), self._conn.transaction():
            for (table,) in self._rows(f"SELECT held FROM {self._catalogue}"):
                self._run(f"DROP TABLE IF EXISTS {table}")
            self._run(f"DELETE FROM {self._catalogue}")

    def close(self) -> None:
        """Disconnect; closing twice is allowed."""
        if self._raw is not None:
            self._raw.close()
            self._raw = None

    @property
    def _conn(self) -> psycopg.Connection[Any]:
        assert self._raw is not None, "connect it first"
        return self._raw

    def _run(self, statement: str, parameters: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        return self._conn.execute(cast("LiteralString", statement), parameters)

    def _rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._run(statement, parameters).fetchall()

    def _table(self, collection: str) -> str | None:
        """Return the table of a collection; None where there is none. Asked each time: others may drop it."""
        with self._errors():
            found = self._rows(f"SELECT held, model, dim FROM {self._catalogue} WHERE name = %s", (collection,))
        if not found:
            return None
        ((table, model, dim),) = found
        check_maker(collection, (model, dim), (self._model, self._dim))
        return str(table)

    def _create(self, collection: str) -> str:
        table = f'"{self._schema}".index_{legal_name(collection)[-16:]}'
        with self._errors(), self._conn.transaction():
            self._run(f"CREATE TABLE {table} (id text PRIMARY KEY, v vector({self._dim}) NOT NULL)")
            row = (collection, table, self._model, self._dim)
            self._run(f"INSERT INTO {self._catalogue} VALUES (%s, %s, %s, %s)", row)
        return table

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except psycopg.Error as error:
            hint = "Has the server the extension `vector`, 0.8 or newer, and this user the right to create it?"
            said = f"{type(error).__name__}: {first_line(error)}"
            raise IndexUnavailable.of("pgvector", said, hint) from error


@contextmanager
def _watched(connection: psycopg.Connection[Any], stopped: Callable[[], bool]) -> Generator[None]:
    """Cancel what the server does for this connection once `stopped` says so; that is no error."""
    done = Event()

    def watch() -> None:
        while not done.wait(WATCHED_S):
            if stopped():
                connection.cancel_safe(timeout=SECONDS)

    watcher = Thread(target=watch, name="evolve-index-build", daemon=True)
    watcher.start()
    try:
        yield
    except psycopg.errors.QueryCanceled:
        if not stopped():
            raise
    finally:
        done.set()
        watcher.join()


def _text(vector: Vector) -> str:
    """Return a vector as pgvector reads it."""
    return f"[{','.join(map(str, vector.tolist()))}]"


MEMBER = PgvectorIndex
