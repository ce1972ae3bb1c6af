"""HTTP to an OpenAI-compatible server: one client per event loop, one retry layer, and errors that name the fix.

What the server says is quoted without the key and with other secrets redacted; the client's own exceptions, which hold
the request, are never chained.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, SecretStr
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from memory.errors import BadInput
from memory.redact import redact
from policies.errors import PolicyError, PolicyRefused, PolicyUnavailable, TimedOut
from policies.server_settings import ServerAddress

try:
    import openai
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "OpenAIPolicy needs the package openai: pip install 'evolve-agents[openai]'", name=missing.name
    ) from missing

MAX_WAIT_S = 30.0
CONNECT_S = 10.0
"""Seconds that a connection may take: a machine that is gone answers nothing, and one that is busy still takes it."""
QUOTED = 300
_TRANSIENT = frozenset({408, 409, 425, 429})
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


class Connection(ServerAddress):
    """How a server is reached, attempt after attempt."""

    attempts: int = Field(default=4, ge=1)
    wait_s: float = Field(default=0.5, ge=0)
    """Seconds before the second attempt; doubles up to 30 s. A server's `Retry-After` counts instead."""


class BadRequest(PolicyRefused):
    """HTTP 400 or 422: the caller may know a narrower request."""


class NoSuchRoute(PolicyRefused):
    """HTTP 404, 405, 501: no such path, or no such model."""


class _Transient(Exception):
    """A failure that another attempt may mend. Never leaves this module."""

    def __init__(self, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class _Late(_Transient):
    """No whole answer in time."""


class Transport:
    """Sends JSON and returns JSON. Raises `PolicyUnavailable`, `PolicyRefused` and their subclasses."""

    def __init__(self, connection: Connection, api_key: str | None = None, *, late_again: bool = True) -> None:
        """Connect to nothing yet; `late_again`: also an answer that is late is asked for anew.

        Raises `BadInput` for a base URL that is not plain http(s).
        """
        self._connection, self._late_again = connection, late_again
        self._variable = _key_variable(connection)
        self._host = urlsplit(connection.base_url).hostname or ""
        key = (api_key or os.environ.get(self._variable) or "").strip()  # files that hold keys end with a line break
        if not (key.isascii() and key.isprintable()):
            raise BadInput(
                f"the API key{f' in {self._variable}' if self._variable else ''} is no line of ASCII; correct it"
            )
        self._key = SecretStr(key)
        self._client: openai.AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.lost = 0
        """Attempts that came to no answer."""

    async def call(self, path: str, body: dict[str, Any] | None = None, *, of: type = dict) -> Any:
        """POST `body` (GET without one) and return the JSON object, or list where that is asked for.

        After at most `attempts` tries. `path` is one under the base URL, or a whole URL.
        """
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self._connection.attempts),
            wait=self._wait,
            retry=retry_if_exception(self._worth_another),
            reraise=True,
        )
        try:
            return await retrying(self._attempt, path, body, of)
        except _Transient as failure:
            tried = retrying.statistics["attempt_number"]
            said = f"{self._connection.base_url} gave no answer in {tried} attempt{'s' * (tried > 1)} (last: {failure})"
            if isinstance(failure, _Late):
                todo = "raise policy.timeout_s or lower policy.max_tokens; if nothing is answered, restart the server"
                raise TimedOut(f"{said}; {todo}") from None
            raise PolicyUnavailable(f"{said}; start the server or correct base_url, then resume") from None

    async def aclose(self) -> None:
        """Close the connections of the running loop; a later call opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()

    async def _attempt(self, path: str, body: dict[str, Any] | None, of: type) -> Any:
        try:
            return await self._once(path, body, of)
        except _Transient:
            self.lost += 1
            raise

    async def _once(self, path: str, body: dict[str, Any] | None, of: type) -> Any:
        client = self._connected()
        try:
            async with asyncio.timeout(self._connection.timeout_s):  # the client's own begins anew with every byte
                if body is None:
                    data = await client.get(path, cast_to=object)
                else:
                    data = await client.post(path, body=body, cast_to=object)
        except TimeoutError:
            raise _Late(f"Timeout: no whole answer in {self._connection.timeout_s:g} s") from None
        except json.JSONDecodeError as error:
            raise _Transient(f"an answer that is no JSON: {self._quotable(str(error))}") from None
        except openai.APIStatusError as error:
            raise self._status_failure(error) from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            raise _Transient(self._quotable(f"{type(cause).__name__}: {cause}".rstrip(": "))) from None
        except openai.APIError as error:
            raise PolicyRefused(f"{self._connection.base_url}: {self._quotable(str(error))}") from None
        if not isinstance(data, of):
            wanted, got = "list" if of is list else "object", self._quotable(str(data))
            raise PolicyRefused(
                f"{self._connection.base_url}: {path} answered without a JSON {wanted} ({got!r}); base_url must be "
                "that of an OpenAI-compatible API, usually ending in /v1"
            )
        if not isinstance(data, dict):
            return data
        if data.get("error") and not {"choices", "data"} & data.keys():
            raise self._told_failure(data["error"])
        return data

    def _connected(self) -> openai.AsyncOpenAI:
        """Return the client of the running event loop: connections cannot be shared between loops."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client = openai.AsyncOpenAI(
                base_url=self._connection.base_url,
                api_key=self._key.get_secret_value() or "none",
                timeout=openai.Timeout(self._connection.timeout_s, connect=min(CONNECT_S, self._connection.timeout_s)),
                max_retries=0,
                # no proxy of HTTP_PROXY stands between this machine and itself
                http_client=openai.DefaultAsyncHttpxClient(trust_env=False) if self._host in _HERE else None,
            )
            if not f".{self._host}".endswith(".openai.com"):
                self._client.organization = self._client.project = None  # of OPENAI_ORG_ID, OPENAI_PROJECT_ID
            self._loop = loop
        return self._client

    def _status_failure(self, error: openai.APIStatusError) -> Exception:
        url, status, said = self._connection.base_url, error.status_code, self._quotable(error.message)
        if status in (401, 403):
            had = "refused the API key" if self._key.get_secret_value() else "wants an API key, none was given"
            fix = f"put a valid one into {self._variable}" if self._variable else "name its variable in api_key_env"
            return PolicyRefused(f"{url} {had} (HTTP {status}: {said}); {fix}")
        if "insufficient_quota" in str(error.body):
            return PolicyRefused(f"{url}: the account has no credit left (HTTP {status}: {said})")
        if status in (404, 405, 501):
            return NoSuchRoute(f"{url} answered HTTP {status}: {said}")
        if status in _TRANSIENT or status >= 500:
            return _Transient(f"HTTP {status}: {said}", _seconds(error.response.headers.get("retry-after")))
        kind: type[PolicyError] = BadRequest if status in (400, 422) else PolicyRefused
        return kind(f"{url} refused the request (HTTP {status}: {said})")

    def _told_failure(self, error: Any) -> Exception:
        """Return the failure that a gateway passes on under HTTP 200."""
        told: dict[str, Any] = error if isinstance(error, dict) else {"message": error}
        said, code = self._quotable(str(told.get("message"))), told.get("code")
        if isinstance(code, int) and (code in _TRANSIENT or code >= 500):
            return _Transient(f"error {code}: {said}")
        return PolicyRefused(f"{self._connection.base_url} answered an error ({code}: {said})")

    def _quotable(self, text: str) -> str:
        key = self._key.get_secret_value()
        text = text.replace(key, "[key]") if key else text
        text = " ".join(redact(text).split())
        return text if len(text) <= QUOTED else text[:QUOTED] + " ..."

    def _worth_another(self, failure: BaseException) -> bool:
        return isinstance(failure, _Transient) and (self._late_again or not isinstance(failure, _Late))

    def _wait(self, state: RetryCallState) -> float:
        failure = state.outcome.exception() if state.outcome else None
        if isinstance(failure, _Transient) and failure.retry_after_s is not None:
            return min(failure.retry_after_s, MAX_WAIT_S)
        return min(self._connection.wait_s * 2 ** (state.attempt_number - 1), MAX_WAIT_S)

    def __repr__(self) -> str:
        return f"Transport({self._connection.base_url!r})"


def _key_variable(connection: Connection) -> str:
    """Check the URL and return the name of the variable that holds its key (empty: none)."""
    parts = urlsplit(connection.base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(f"base_url {redact(connection.base_url)!r} is no http(s) URL; e.g. http://127.0.0.1:8000/v1")
    if parts.username or parts.password or parts.query:
        raise BadInput(f"base_url of {parts.hostname} carries credentials; name the key's variable in api_key_env")
    return connection.api_key_env or ("OPENAI_API_KEY" if parts.hostname == "api.openai.com" else "")


def _seconds(header: str | None) -> float | None:
    """Return a `Retry-After` in seconds; its date form is left to the ordinary wait."""
    return float(header) if header and header.replace(".", "", 1).isdigit() else None
