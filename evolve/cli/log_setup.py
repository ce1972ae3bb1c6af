"""Logging of the command, as `[log]` says: to stderr (stdout is for results), and to a file of the workspace if wanted.

Everything goes through here, also what libraries log: each line says which run it belongs to, and no value reaches it
that `memory.redact` takes for a secret. A program that imports `evolve` keeps its own logging; this is the command's.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.stdlib import ExtraAdder, ProcessorFormatter
from structlog.typing import EventDict, Processor

from evolve.cli.output import plain, say
from evolve.config.sections import LogSection
from evolve.loop.runlog import LINES, this_run
from memory.content import clean

OURS = ("evolve", "memory", "playbooks", "policies", "skills", "contrib")
"""Loggers that `level` is about; those of other packages warn, and no more."""


class Lines(logging.Handler):
    """Writes to whatever is stderr when a line comes."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


class DayFile(logging.Handler):
    """Appends JSON lines to `<folder>/<day>.jsonl`; a line that cannot be written is said once, and dropped.

    A malformed line of whatever library is told of on stderr, as `logging` does it, and ends nothing.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.INFO)
        self._folder, self._day = folder, ""
        self._file: TextIO | None = None
        self._said = False

    def emit(self, record: logging.LogRecord) -> None:
        """Append one line, in one write: lines of several processes do not mix."""
        try:
            day = datetime.now(UTC).strftime("%Y-%m-%d")
            if self._file is None or day != self._day:
                self.shut()
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file, self._day = (self._folder / f"{day}.jsonl").open("a", encoding="utf-8"), day
            self._file.write(self.format(record) + "\n")
            self._file.flush()
        except OSError as error:
            if not self._said:
                say(f"warning: log lines are lost, {self._folder}: {error.strerror}", error=True)
            self._said = True
        except Exception:
            self.handleError(record)

    def shut(self) -> None:
        """Close the file, whatever its last line came to."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError:
                self._said = True  # the line that could not be flushed was said already

    def close(self) -> None:
        """Close the handler."""
        self.shut()
        super().close()


def configure(section: LogSection, workspace: Path) -> None:
    """Let the command log as the section says. Called again, it takes the place of what it did before."""
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _of_this_run,
        _redacted,
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, Lines | DayFile)]:
        root.removeHandler(old)
        old.close()
    level = logging.getLevelNamesMapping()[section.level.upper()]
    lines = Lines(level)
    lines.setFormatter(_formatter(shared, as_json=section.format == "json"))
    root.addHandler(lines)
    if section.file:
        file = DayFile(workspace / LINES)
        file.setFormatter(_formatter(shared, as_json=True))
        root.addHandler(file)
    for name in OURS:
        logging.getLogger(name).setLevel(min(level, logging.INFO) if section.file else level)


def _formatter(shared: list[Processor], *, as_json: bool) -> ProcessorFormatter:
    drawn: Processor = ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain_traceback)
    last: list[Processor] = [structlog.processors.JSONRenderer(ensure_ascii=True)] if as_json else [_plain, drawn]
    return ProcessorFormatter(
        foreign_pre_chain=shared, processors=[ProcessorFormatter.remove_processors_meta, *last], use_get_message=True
    )


def _plain(logger: Any, method: str, line: EventDict) -> EventDict:
    """Return the line for a terminal: colours are the renderer's, a value commands nothing."""
    return {name: plain(value) if isinstance(value, str) else value for name, value in line.items()}


def _of_this_run(logger: Any, method: str, line: EventDict) -> EventDict:
    if "_record" in line:
        line.pop("message", None)  # a formatter before this one left it: the event itself
    return {**this_run(), **line}


def _redacted(logger: Any, method: str, line: EventDict) -> EventDict:
    """Return the line as plain JSON values without secrets; what structlog added for itself stays."""
    own = {name: value for name, value in line.items() if not name.startswith("_")}
    rest = {name: value for name, value in line.items() if name.startswith("_")}
    return {**clean(json.loads(json.dumps(own, default=repr))), **rest}
