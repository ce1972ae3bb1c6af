"""A reverse proxy that counts and records: it stands between every arm and the model's server, and asks nobody how much
was used.

An arm is given a base URL of its own, `http://127.0.0.1:PORT/ARM/PHASE/v1`. What it sends there is passed on unchanged,
and each answer leaves one line in a file of that arm and phase: what was asked for, when, how it ended, and the tokens
that the server itself counted (`usage`, also in the last event of a streamed answer), with the answer and a hash of the
request. The files only grow. An arm that was killed begins anew: what it asks again is answered from its file, at once,
and counts as it did, with its time; what it does not ask again does not count.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import platform
import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from memory.errors import BadInput
from memory.records import Frozen

HOST = "127.0.0.1"
WAIT_S = 900.0
"""Longest wait for the server, in seconds: a small machine may need minutes for one answer."""
SETTLE_S = 30.0
"""Longest wait for requests that are still under way when a sitting ends, in seconds."""
HOP = {"connection", "host", "keep-alive", "proxy-connection", "transfer-encoding", "content-length", "accept-encoding"}
"""Headers that belong to one connection and are not passed on; nor is a compression, since the usage is read."""
GENERATING = ("completions", "completion", "responses", "messages")
"""Last parts of the paths that ask a model for text."""


class Calls(Frozen):
    """What one phase of one arm used."""

    calls: int = 0
    """Answers of the model, those that failed left out."""
    failed: int = 0
    """Requests for an answer that the server refused, or that broke off."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    """Answers without a `usage`: their tokens are missing above."""
    most_at_once: int = 0
    """Most requests that were under way at the same time."""
    wall_s: float = 0.0
    """Seconds of all sittings together."""
    shared: bool = False
    """Whether another arm used the server at the same time: its seconds are not compared."""
    machines: tuple[str, ...] = ()
    """Processor and cores of each kind of machine that the sittings were on."""


class CountingProxy:
    """Passes requests on to one server. Start it with `proxying`."""

    def __init__(self, upstream: str, home: Path) -> None:
        """Count into `home/ARM/calls-PHASE.jsonl`. `upstream` is the server's base URL (`.../v1`)."""
        self.upstream, self.home = urlsplit(upstream), home
        self.origin = ""
        self._lock = threading.Condition()
        self._under_way: dict[str, int] = {}
        self._sitting: dict[str, _Sitting] = {}

    def url(self, arm: str, phase: str) -> str:
        """Return the base URL of a phase of an arm. Raises `BadInput` for a name that is no plain word."""
        for name in (arm, phase):
            if not name.replace("-", "").isalnum():
                raise BadInput(f"got {name!r} as the name of an arm or a phase; expected letters, digits and dashes")
        self._file(arm, phase).parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._under_way.setdefault(f"{arm}/{phase}", 0)
        return f"{self.origin}/{arm}/{phase}/v1"

    @contextmanager
    def sitting(self, arm: str, phase: str, *, goes_on: bool = False) -> Generator[str]:
        """Yield the base URL, and note when the phase began and ended.

        It begins anew: what the file holds of earlier sittings is said again to equal requests, each answer once.
        `goes_on`: the arm itself knows where it was; nothing is said again, and all sittings count.
        """
        url, label = self.url(arm, phase), f"{arm}/{phase}"
        file = self._file(arm, phase)
        said = _said(_entries(file)) if file.exists() and not goes_on else {}
        with self._lock:
            others = set(self._sitting)
            self._sitting[label] = _Sitting(said, date.today().isoformat())
        began = {"sitting": "began", "goes_on": goes_on, "at": time.time(), "machine": machine()}
        self.note(label, began)
        for each in {label, *others} if others else ():
            self.note(each, {"shared": sorted({label, *others} - {each})})
        ended: float | None = None
        try:
            yield url
            ended = time.time()
            with self._lock:  # the last answer is noted a moment after it was sent
                self._lock.wait_for(lambda: not self._under_way[label], SETTLE_S)
        finally:
            self.note(label, {"sitting": "ended", "at": ended or time.time()})
            with self._lock:
                self._sitting.pop(label)

    def note(self, label: str, entry: dict[str, Any]) -> None:
        """Append one line to the file of a phase."""
        arm, phase = label.split("/")
        with self._lock, self._file(arm, phase).open("a+b") as file:
            cut = file.tell() and _last_byte(file) != b"\n"  # by a kill
            file.write(b"\n" * bool(cut) + json.dumps(entry).encode() + b"\n")

    def enter(self, label: str) -> int | None:
        """Count one more request under way; return how many there are, None for a label that nobody asked for."""
        with self._lock:
            if label not in self._under_way:
                return None
            self._under_way[label] += 1
            return self._under_way[label]

    def leave(self, label: str) -> None:
        """Count one less."""
        with self._lock:
            self._under_way[label] -= 1
            self._lock.notify_all()

    def told(self, label: str, key: str) -> dict[str, Any] | None:
        """Return what an earlier sitting was told to an equal request, each time another answer; None = nothing."""
        with self._lock:
            answers = self._sitting[label].said.get(key) if label in self._sitting else None
            found = answers.popleft() if answers else None
        if found:
            self.note(label, {"told": key})
        return found

    def key_of(self, label: str, path: str, body: bytes) -> str:
        """Return a hash of all that decides an answer; the date is left out, which kayba tells to its agent."""
        with self._lock:
            day = self._sitting[label].day if label in self._sitting else ""
        return key_of(path, body, day)

    def _file(self, arm: str, phase: str) -> Path:
        return self.home / arm / f"calls-{phase}.jsonl"


def machine() -> str:
    """Return what kind of machine this is: its processor, and the cores that this process may use."""
    cpuinfo = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return f"{named[1] if named else platform.processor()}, {len(os.sched_getaffinity(0))} cores"


def key_of(path: str, body: bytes, day: str) -> str:
    """Return a hash of a request in which the day of its sitting is no date."""
    try:
        text = json.dumps(json.loads(body), sort_keys=True)
    except ValueError:
        text = body.decode(errors="replace")
    return hashlib.sha256(f"{path} {text.replace(day, 'today') if day else text}".encode()).hexdigest()[:24]


@dataclass(frozen=True)
class _Sitting:
    """A phase that is under way."""

    said: Mapping[str, deque[dict[str, Any]]]
    """Key -> answers of earlier sittings that were not said again yet."""
    day: str
    """When it began: kayba reads the date once."""


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read(1)


def _said(entries: Iterable[dict[str, Any]]) -> dict[str, deque[dict[str, Any]]]:
    """Return key -> recorded answers, in their order."""
    found: dict[str, deque[dict[str, Any]]] = defaultdict(deque)
    for entry in entries:
        if "reply" in entry and entry["status"] == 200:  # a refusal may be mended, and an outage pass
            found[entry["key"]].append(entry)
    return found


def read_calls(home: Path, arm: str, phase: str) -> Calls:
    """Return what a phase of an arm has used since it began anew, with what it was told again; nothing, where it never
    began."""
    file = home / arm / f"calls-{phase}.jsonl"
    entries = list(_entries(file)) if file.exists() else []
    since, told = _since_begun(entries)
    used = [*told, *since]
    made = [entry for entry in used if "path" in entry and entry["path"].split("/")[-1] in GENERATING]
    right = [entry for entry in made if entry["status"] == 200]
    return Calls(
        calls=len(right),
        failed=len(made) - len(right),
        prompt_tokens=sum(entry["prompt_tokens"] or 0 for entry in right),
        completion_tokens=sum(entry["completion_tokens"] or 0 for entry in right),
        uncounted=sum(entry["completion_tokens"] is None for entry in right),
        most_at_once=max((entry["at_once"] for entry in made), default=0),
        wall_s=_wall(since) + _under_way(told),
        shared=any("shared" in entry for entry in entries),
        machines=tuple(sorted({entry["machine"] for entry in entries if "machine" in entry})),
    )


def _entries(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file, but one that a kill cut short."""
    for line in file.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def _since_begun(entries: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the entries since the arm began anew for the last time, and the earlier ones that it was told again."""
    begun = [at for at, e in enumerate(entries) if e.get("sitting") == "began" and not e.get("goes_on")]
    start = begun[-1] if begun else 0
    said, since = _said(entries[:start]), entries[start:]
    return since, [said[entry["told"]].popleft() for entry in since if "told" in entry]


def _under_way(entries: list[dict[str, Any]]) -> float:
    """Return the seconds in which one of some requests was under way, or several."""
    total, until = 0.0, 0.0
    for began, ended in sorted((float(entry["began"]), float(entry["ended"])) for entry in entries):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


def _wall(entries: list[dict[str, Any]]) -> float:
    """Add up the sittings. One that was killed ended with its last answer."""
    total, last = 0.0, 0.0
    began: float | None = None
    for entry in entries:
        if entry.get("sitting") == "began":
            total += last - began if began is not None else 0.0
            began = last = float(entry["at"])
        elif entry.get("sitting") == "ended" and began is not None:
            total += float(entry["at"]) - began
            began = None
        elif "ended" in entry:
            last = float(entry["ended"])
    return total + (last - began if began is not None else 0.0)


@contextmanager
def proxying(upstream: str, home: Path) -> Generator[CountingProxy]:
    """Count what goes to `upstream` until the block ends. It listens on this machine only."""
    proxy = CountingProxy(upstream, home)
    server = ThreadingHTTPServer((HOST, 0), type("Handler", (_Handler,), {"proxy": proxy}))
    server.daemon_threads = True
    proxy.origin = f"http://{HOST}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, name="counting-proxy", daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    proxy: CountingProxy
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Pass it on; only answers of a model are counted."""
        self._pass_on()

    def do_POST(self) -> None:
        """Pass it on, and count it."""
        self._pass_on()

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing to the terminal."""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        _, arm, phase, *rest = [*self.path.split("/"), "", ""]
        label, path = f"{arm}/{phase}", "/".join(rest).rstrip("/")
        at_once = self.proxy.enter(label)
        if at_once is None:
            self._refuse(404, f"no arm and phase {label!r} here")
            return
        key = self.proxy.key_of(label, path, body)
        if self.command == "POST" and (told := self.proxy.told(label, key)):
            self.proxy.leave(label)
            self._send(told["status"], told["type"], told["reply"].encode())
            return
        entry: dict[str, Any] = {
            "path": path.split("?")[0],
            "key": key,
            "began": time.time(),
            "at_once": at_once,
            "status": 0,
            "prompt_tokens": None,
            "completion_tokens": None,
        }
        try:
            self._ask("/" + path.removeprefix("/"), body, entry)
        finally:
            if self.command == "POST":
                self.proxy.note(label, {**entry, "ended": time.time()})
            self.proxy.leave(label)

    def _ask(self, path: str, body: bytes, entry: dict[str, Any]) -> None:
        to = self.proxy.upstream
        prefix = to.path.removesuffix("/").removesuffix("/v1")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        connection = http.client.HTTPConnection(to.hostname or HOST, to.port, timeout=WAIT_S)
        try:
            connection.request(self.command, prefix + path, body or None, headers)
            answer = connection.getresponse()
            if "text/event-stream" in (answer.headers.get("Content-Type") or ""):
                self._stream(answer, entry)
            else:
                self._whole(answer, entry)
        except (OSError, http.client.HTTPException) as error:
            if not entry["status"]:
                with suppress(OSError):  # nor may the client be there any more
                    self._refuse(502, f"the model's server did not answer: {error!r}")
            self.close_connection = True
            entry["status"] = entry["status"] if entry["status"] not in (0, 200) else 502
        finally:
            connection.close()

    def _whole(self, answer: http.client.HTTPResponse, entry: dict[str, Any]) -> None:
        """Read the answer, then send it; what broke off on the way here was never an answer."""
        content = answer.read()
        entry["status"] = answer.status
        entry.update(_usage(content))
        self._record(entry, answer, content)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, answer: http.client.HTTPResponse, entry: dict[str, Any]) -> None:
        """Send each line as it comes; the connection ends with it."""
        entry["status"] = answer.status
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers.get("Content-Type") or "")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        said = list[bytes]()
        while line := answer.readline():
            said.append(line)
            self.wfile.write(line)
            self.wfile.flush()
            if line.startswith(b"data:") and b'"usage"' in line:
                entry.update(_usage(line.removeprefix(b"data:")))
        self._record(entry, answer, b"".join(said))

    @staticmethod
    def _record(entry: dict[str, Any], answer: http.client.HTTPResponse, content: bytes) -> None:
        kind = answer.headers.get("Content-Type") or "application/json"
        entry.update(type=kind, reply=content.decode(errors="replace"))

    def _refuse(self, status: int, message: str) -> None:
        content = json.dumps({"error": {"message": message, "type": "proxy", "code": status}}).encode()
        self._send(status, "application/json", content)

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _usage(content: bytes) -> dict[str, int]:
    """Return the tokens that an answer says were used, if it says so."""
    try:
        usage = json.loads(content)["usage"]
        return {name: int(usage[name]) for name in ("prompt_tokens", "completion_tokens")}
    except (ValueError, KeyError, TypeError):
        return {}
