"""The 24 house rules: which calls they govern, what values they can take, and how a violation shows.

A deployment draws one option for every rule. Half of the rules tell the agent in words what it did wrong, a quarter
answer with a bare code, a quarter stay silent until the grader looks. The first option is what the API's documentation
suggests, so an agent that knows nothing of the deployment starts there.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import Literal

Kind = Literal["choice", "field", "date", "money", "style", "before", "after"]
Feedback = Literal["told", "code", "silent"]


@dataclass(frozen=True)
class Rule:
    """One hidden convention of `call`, about `thing` (an argument, or what must happen before or after)."""

    id: str
    call: str
    thing: str
    kind: Kind
    options: tuple[str, ...]
    feedback: Feedback

    @property
    def app(self) -> str:
        return self.call.partition(".")[0]

    @property
    def code(self) -> str:
        """The bare error code of a `code` rule: stable over all deployments."""
        return f"E{10 + RULES.index(self)}"


_FIELD = ("id", "email", "handle")
_DATE = ("iso", "dmy", "mdy")

RULES: tuple[Rule, ...] = (
    Rule("pay_to", "payments.send", "to", "field", _FIELD, "told"),
    Rule("pay_amount", "payments.send", "amount", "money", ("dollars", "cents"), "silent"),
    Rule("request_before", "payments.request", "before", "before", ("nothing", "unlock", "verify"), "code"),
    Rule("request_kind", "payments.request", "kind", "choice", ("personal", "business", "shared"), "silent"),
    Rule("mail_to", "mail.send", "to", "field", _FIELD, "told"),
    Rule("mail_priority", "mail.send", "priority", "choice", ("normal", "low", "high"), "silent"),
    Rule("forward_cc", "mail.forward", "cc", "choice", ("nobody", "boss", "audit", "legal"), "told"),
    Rule("forward_before", "mail.forward", "before", "before", ("nothing", "sync", "scan"), "code"),
    Rule("archive_folder", "mail.archive", "folder", "choice", ("done", "old", "vault"), "told"),
    Rule("search_page", "mail.search", "page", "choice", ("0", "1"), "told"),
    Rule("event_date", "calendar.add", "date", "date", _DATE, "told"),
    Rule("event_zone", "calendar.add", "zone", "choice", ("utc", "local", "hq"), "silent"),
    Rule("move_after", "calendar.move", "after", "after", ("nothing", "notify", "publish"), "silent"),
    Rule("save_name", "files.save", "name", "style", ("plain", "kebab", "upper"), "told"),
    Rule("save_folder", "files.save", "folder", "choice", ("inbox", "shared", "work"), "code"),
    Rule("share_with", "files.share", "user", "field", _FIELD, "told"),
    Rule("share_mode", "files.share", "mode", "choice", ("read", "edit", "link"), "code"),
    Rule("todo_due", "todo.add", "due", "date", _DATE, "told"),
    Rule("todo_list", "todo.add", "board", "choice", ("home", "office", "team"), "code"),
    Rule("complete_before", "todo.complete", "before", "before", ("nothing", "start", "claim"), "told"),
    Rule("assign_who", "todo.assign", "who", "field", _FIELD, "told"),
    Rule("assign_after", "todo.assign", "after", "after", ("nothing", "ping", "log"), "silent"),
    Rule("contact_group", "contacts.add", "group", "choice", ("friends", "clients", "staff"), "code"),
    Rule("update_before", "contacts.update", "before", "before", ("nothing", "lock", "checkout"), "told"),
)

BY_ID = {rule.id: rule for rule in RULES}
BY_CODE = {rule.code: rule for rule in RULES if rule.feedback == "code"}

Values = dict[str, str]
"""Rule id -> the option in force."""


def seeded(*parts: object) -> random.Random:
    """Return a generator that depends on `parts` alone, the same in every process."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


def draw(deployment: int) -> Values:
    """Return the house rules of a deployment: every option of a rule is equally likely."""
    rng = seeded("rules", deployment)
    return {rule.id: rng.choice(rule.options) for rule in RULES}


def drift(values: Values, deployment: int, changed: int = 8) -> Values:
    """Return `values` with `changed` rules moved to another option."""
    rng = seeded("drift", deployment)
    moved = rng.sample(RULES, changed)
    return values | {rule.id: rng.choice([o for o in rule.options if o != values[rule.id]]) for rule in moved}


def of_call(call: str) -> tuple[Rule, ...]:
    """Return the rules that govern `call`."""
    return tuple(rule for rule in RULES if rule.call == call)
