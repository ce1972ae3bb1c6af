"""Tokens of `evolve serve`: who may do what, in which namespace. The journal keeps their hashes, never themselves.

A token is `evolve_<id>_<secret>`; the secret has 256 random bits, so its plain SHA-256 tells nothing about it. What is
issued and revoked are events, so tokens move, are backed up and audited with the workspace, and a revoked one is
refused from the next request on, by every process that serves it.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Literal, get_args

from pydantic import AwareDatetime

from evolve.integrations.client_session import Layer
from memory.errors import BadInput, NotFound
from memory.records import Event, Frozen, now
from memory.store import Store

ISSUED, REVOKED = "token.issued", "token.revoked"
EVERYWHERE = "*"
"""Namespace of a token that may ask for any, and see the pages, which show the whole workspace."""
NAME = 100
"""Characters of a name, at most."""
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@/-]{0,63}")
"""What a namespace is called that a token is for, or reads: its name stands in prompts and in labels."""

Scope = Literal["read", "report", "review", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


class Token(Frozen):
    """What is known of a token, without its secret."""

    id: str
    name: str
    namespace: str
    scopes: tuple[Scope, ...]
    layers: tuple[Layer, ...] = ()
    """Namespaces that it reads below its own, the nearest first."""
    issued: AwareDatetime
    expires: AwareDatetime | None = None
    revoked: AwareDatetime | None = None

    @property
    def valid(self) -> bool:
        """Tell whether it is neither revoked nor past its time."""
        return self.revoked is None and (self.expires is None or now() < self.expires)

    def may(self, scope: Scope) -> bool:
        """Tell whether it has a scope; `admin` has all of them."""
        return scope in self.scopes or "admin" in self.scopes


def issue(
    store: Store,
    name: str,
    scopes: Sequence[str],
    namespace: str,
    lifetime: timedelta | None = None,
    layers: Sequence[Layer] = (),
) -> tuple[Token, str]:
    """Journal a new token; return it and the text that its holder is given, which is shown this once.

    Raises `BadInput` for a name that a valid token has, and for a scope, namespace, lifetime or layer that is none.
    """
    if not name.strip() or len(name) > NAME:
        raise BadInput(f"got token name {name!r}, expected 1 to {NAME} characters that say who holds it")
    if odd := [scope for scope in scopes if scope not in SCOPES]:
        raise BadInput(f"got scope {odd[0]!r}, expected one or more of {', '.join(SCOPES)}")
    if not scopes:
        raise BadInput(f"got no scope; a token needs a scope: one or more of {', '.join(SCOPES)}")
    places = [*(() if namespace == EVERYWHERE else (namespace,)), *(layer.namespace for layer in layers)]
    if unfit := [each for each in places if not _NAMESPACE.fullmatch(each)]:
        raise BadInput(
            f"got namespace {unfit[0]!r}, expected 1 to 64 letters (a to z), digits and any of . _ - @ /, a letter or "
            f"digit first; {EVERYWHERE!r} means all namespaces, and no layer can be that"
        )
    if lifetime is not None and lifetime <= timedelta(0):
        raise BadInput(f"got a lifetime of {lifetime}, expected more than nothing")
    if layers and (namespace == EVERYWHERE or namespace in {layer.namespace for layer in layers}):
        raise BadInput(f"got layers {[layer.namespace for layer in layers]} under namespace {namespace!r}; name others")
    if any(each.name == name and each.valid for each in listed(store)):
        raise BadInput(f"a token named {name!r} is valid already; revoke it first, or choose another name")
    key, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    data = {
        "name": name,
        "scopes": [scope for scope in SCOPES if scope in scopes],
        "sha256": _hashed(secret),
        "layers": [layer.model_dump() for layer in layers],
        "expires": None if lifetime is None else (now() + lifetime).isoformat(),
    }
    event = store.append(Event(type=ISSUED, namespace=namespace, subject=key, data=data))
    return _token(event, ()), f"evolve_{key}_{secret}"


def revoke(store: Store, name: str) -> Token:
    """Journal that a token, by name or id, is valid no longer. Raises `NotFound` where no valid one is called so."""
    for token in listed(store):
        if token.valid and name in (token.name, token.id):
            event = store.append(Event(type=REVOKED, namespace=token.namespace, subject=token.id))
            return token.model_copy(update={"revoked": event.created_at})
    raise NotFound(f"no valid token {name!r}; see `evolve tokens list`")


def listed(store: Store) -> tuple[Token, ...]:
    """Return every token that was ever issued, oldest first."""
    revoked = store.events(type=REVOKED)
    return tuple(_token(event, revoked) for event in store.events(type=ISSUED))


def verified(store: Store, given: str) -> Token | None:
    """Return the valid token that a text is, or None."""
    kind, _, rest = given.partition("_")
    key, _, secret = rest.partition("_")
    if kind != "evolve" or not key or not secret:
        return None
    issued = store.events(type=ISSUED, subject=key, limit=1)
    if not issued or not hmac.compare_digest(str(issued[0].data.get("sha256", "")), _hashed(secret)):
        return None
    token = _token(issued[0], store.events(type=REVOKED, subject=key, limit=1))
    return token if token.valid else None


def _hashed(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _token(issued: Event, revoked: Sequence[Event]) -> Token:
    return Token(
        id=issued.subject,
        name=str(issued.data["name"]),
        namespace=issued.namespace,
        scopes=issued.data["scopes"],
        layers=issued.data.get("layers", ()),
        issued=issued.created_at,
        expires=issued.data["expires"],
        revoked=next((event.created_at for event in revoked if event.subject == issued.subject), None),
    )
