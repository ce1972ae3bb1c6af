"""Opens a workspace database: pragmas, migrations with a backup, refusal of a downgrade, clear errors.

WAL with `synchronous=NORMAL`: a killed process loses no committed transaction; after a power loss the last ones may
be gone, the file is intact. Writers of many processes wait for each other (`BEGIN IMMEDIATE`, busy timeout).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from memory.errors import JournalError, NotFound, SchemaTooNew, not_unicode
from memory.sqlite.schema import APPLICATION_ID, MIGRATIONS
from memory.sqlite.sql import Database, Migrations, sqlite3

BUSY_SECONDS = 30.0
"""How long a writer waits for another one before it gives up with `JournalError`."""
PATIENCE = f"PRAGMA busy_timeout = {round(1000 * BUSY_SECONDS)}"
"""Makes a connection that others opened wait as long."""
_BESIDE = ("index", "runs", "checkpoints.db")
"""What a workspace leaves beside its database, and never makes before it."""
DAMAGED = (
    "The file is damaged. Restore your newest backup (`evolve backup` makes them), or save what can still be read with "
    "`evolve memory salvage`"
)


@contextmanager
def clear_errors(path: str, *, damaged: str = "") -> Generator[None]:
    """Turn sqlite3's errors into `JournalError` with what to do. Nothing of the failed transaction was kept.

    An id that is no Unicode text (half of a surrogate pair) is `BadInput`: in texts it is replaced, in ids never.

    `damaged` is the advice for a file that SQLite cannot read, if it is another than for a workspace's journal.
    """
    try:
        yield
    except UnicodeEncodeError as error:
        raise not_unicode(error) from error
    except sqlite3.IntegrityError:
        raise
    except sqlite3.DatabaseError as error:
        unreadable = damaged and any(sign in str(error) for sign in ("not a database", "malformed"))
        raise JournalError(f"{path}: {error}. {damaged if unreadable else _advice(str(error))}") from error


def _advice(message: str) -> str:
    hints = {
        "locked": "Another process has kept it busy for too long; nothing was written. Stop that process or try again",
        "busy": "Another process is using it; nothing was written. Try again",
        "full": "The disk is full; this change was rolled back, earlier ones are safe. Free some space and repeat it",
        "not a database": "This is no evolve workspace; give another path or run `evolve init` in an empty folder",
        "malformed": DAMAGED,
        "readonly": "Even reading needs a file and a folder that may be written, since SQLite keeps two files beside "
        "the database. Get the permission, or copy the whole folder to a place of your own and go on there",
        "unable to open": "Check that the folder exists and may be written",
        "disk I/O": "The disk reported an error; this change was rolled back. Check the disk and its free space",
    }
    return next((hint for key, hint in hints.items() if key in message), "Run `evolve memory doctor`") + "."


def open_database(path: Path, *, read_only: bool = False, migrations: Migrations = MIGRATIONS) -> sqlite3.Connection:
    """Return a connection to the workspace database at `path`, created or migrated as needed.

    The connection is in autocommit mode (transactions are explicit) and may be shared by threads that hold one lock.
    Raises `SchemaTooNew` for a database of a newer version, `NotFound` for a missing one with `read_only`,
    `JournalError` for a file that is no workspace, is locked, or is damaged.
    """
    if read_only:
        _refuse_lost(path)
        if not path.exists():
            raise NotFound(f"no workspace database at {str(path)!r}; run `evolve init` first")
    if not read_only:
        with clear_errors(str(path)):
            _migrate_file(path, migrations)
    with clear_errors(str(path)):
        uri = f"{path.resolve().as_uri()}?mode={'ro' if read_only else 'rw'}"
        conn = sqlite3.connect(
            uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            _configure(conn)
            if read_only:
                _check_read_only(conn, path, migrations)
        except BaseException:
            conn.close()
            raise
    return conn


@contextmanager
def writing(conn: sqlite3.Connection) -> Generator[None]:
    """Keep all that is written meanwhile in one transaction, or nothing. Raises `sqlite3.Error`."""
    conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        conn.execute("COMMIT")
    except BaseException:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise


def use_wal(path: Path) -> None:
    """Bring the SQLite file at `path`, made if it is missing, into WAL mode: one opener at a time.

    SQLite does not wait for others at this one change: of several that open a new file at once, some would be told
    that it is locked. A file that is in WAL mode stays in it. Raises `JournalError` when the wait was too long,
    `sqlite3.Error`.
    """
    with _alone(path, "preparing"), closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as conn:
        conn.execute("PRAGMA journal_mode = WAL")


@contextmanager
def _alone(path: Path, doing: str) -> Generator[None]:
    lock = FileLock(f"{path}.migrate.lock", timeout=BUSY_SECONDS)
    try:
        with lock:
            yield
    except Timeout as error:
        raise JournalError(f"{path}: another process is {doing} it; wait for it and try again") from error


def _configure(conn: sqlite3.Connection) -> None:
    conn.execute("PRAGMA synchronous = NORMAL")
    conn.execute("PRAGMA foreign_keys = ON")
    conn.execute("PRAGMA temp_store = MEMORY")


def _check_read_only(conn: sqlite3.Connection, path: Path, migrations: Migrations) -> None:
    check_version(conn, path, migrations)
    if migrations.pending(Database(conn)):
        raise JournalError(
            f"{path}: made by an older version, or not to its end; open it once for writing, with `evolve memory "
            "reindex` say (an older one is backed up and migrated)"
        )


def check_version(conn: sqlite3.Connection, path: Path, migrations: Migrations) -> None:
    """Raise `SchemaTooNew` when the database holds migrations this version does not know."""
    known = {migration.name for migration in migrations.pending(Database(memory=True))}
    unknown = [m.name for m in migrations.applied(Database(conn)) if m.name not in known]
    if unknown:
        raise SchemaTooNew(
            f"{path}: written by a newer evolve (schema steps {', '.join(unknown)} are unknown here). "
            "Nothing was changed. Upgrade with `pip install -U evolve-agents`, or open the backup beside the file"
        )


def _migrate_file(path: Path, migrations: Migrations) -> None:
    if not path.parent.is_dir():
        raise JournalError(f"{path}: its folder does not exist; create it or run `evolve init`")
    if _is_current(path, migrations):
        return
    with _alone(path, "migrating"):
        _refuse_lost(path)
        _migrate(path, migrations)


def _migrate(path: Path, migrations: Migrations) -> None:
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as conn:
        check_version(conn, path, migrations)
        _refuse_foreign(conn, path)
        conn.execute("PRAGMA journal_mode = WAL")
        conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")  # before any table: a half-made file is ours, too
        db = Database(conn)
        if migrations.pending(db):
            _backup(conn, path, migrations)
            migrations.apply(db)


def _is_current(path: Path, migrations: Migrations) -> bool:
    """Return True when the file exists and needs no migration; looks without writing."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as conn:
        check_version(conn, path, migrations)
        return not migrations.pending(Database(conn))


def _refuse_lost(path: Path) -> None:
    """Raise `JournalError` for a missing or empty database whose workspace is still there: it is no new one."""
    if path.exists() and path.stat().st_size:
        return
    wal = Path(f"{path}-wal")
    left = [name for name in _BESIDE if _holds(path.parent / name)]
    left += [wal.name] if wal.exists() and wal.stat().st_size else []
    if left:
        state = "is empty" if path.exists() else "is missing"
        logs = " and ".join(log.name for log in logs_of(path))
        away = f"Move {logs} away first, or SQLite mixes two databases. Then put" if logs else "Put"
        raise JournalError(
            f"{path}: {state}, but its workspace is not new (there: {', '.join(left)}), so the database was lost. "
            f"{away} your newest backup in its place (`evolve backup` makes them). To begin anew instead, move the "
            f"folder {str(path.parent)!r} away first"
        )


def copy_database(source: Path, copy: Path) -> None:
    """Copy a SQLite file as it is at one moment, even while a run writes to it."""
    with (
        clear_errors(str(source)),
        closing(sqlite3.connect(source)) as reader,
        closing(sqlite3.connect(copy)) as writer,
    ):
        reader.backup(writer)


def logs_of(path: Path) -> list[Path]:
    """Return which of the two files that SQLite keeps beside the database at `path` are there."""
    return [log for log in (Path(f"{path}-wal"), Path(f"{path}-shm")) if log.exists()]


def _holds(beside: Path) -> bool:
    """Tell whether a file or folder is there; a folder of locks is not, since a first command takes one early."""
    inside = list(beside.iterdir()) if beside.is_dir() else []
    return beside.exists() and not (inside and all(each.suffix == ".lock" for each in inside))


def _refuse_foreign(conn: sqlite3.Connection, path: Path) -> None:
    application = conn.execute("PRAGMA application_id").fetchone()[0]
    tables = conn.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables and application != APPLICATION_ID:
        raise JournalError(f"{path}: an SQLite file of another program; give another path for the workspace database")


def _backup(conn: sqlite3.Connection, path: Path, migrations: Migrations) -> None:
    applied = len(migrations.applied(Database(conn)))
    if not applied:
        return
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    with closing(sqlite3.connect(f"{path}.v{applied}-{stamp}.backup")) as target:
        conn.backup(target)
