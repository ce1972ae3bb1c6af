"""The 14 things a task can ask for: how each is said, what must be looked up, and the code that does it.

An intent takes two actions: look up what only the office knows (ids, dates, senders), then write. The code is the same
for every agent that knows the same rules; `values` says which option of each rule to follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evolve.environments.office.entities import Names
from evolve.environments.office.house_rules import Rule, Values, of_call

Fields = dict[str, str]
Lines = list[str]


@dataclass(frozen=True)
class Intent:
    """One sub-goal. `calls` names the endpoints it uses that house rules may govern."""

    id: str
    texts: tuple[str, ...]
    fields: Callable[[Names, int], Fields]
    lookup: Callable[[Fields, Values], Lines]
    write: Callable[[Fields, Values], Lines]
    calls: tuple[str, ...]

    def __reduce__(self) -> tuple[Callable[[str], Intent], tuple[str]]:
        return by_id, (self.id,)

    @property
    def lookup_rules(self) -> tuple[Rule, ...]:
        return tuple(rule for call in self.calls if call.endswith((".search", ".find")) for rule in of_call(call))

    @property
    def write_rules(self) -> tuple[Rule, ...]:
        return tuple(rule for call in self.calls if not call.endswith((".search", ".find")) for rule in of_call(call))


def _find(var: str, call: str, **args: str) -> Lines:
    inside = ", ".join(f'{name}="{value}"' for name, value in args.items())
    return [f"{var} = apps.{call}({inside})", f"print({var})"]


def _search(fields: Fields, values: Values) -> Lines:
    return [f'm = apps.mail.search(subject="{fields["subject"]}", page={values["search_page"]})', "print(m)"]


def _before(rule_id: str, app: str, values: Values) -> Lines:
    step = values[rule_id]
    return [] if step == "nothing" else [f"apps.{app}.{step}()"]


def _after(rule_id: str, app: str, row: str, values: Values) -> Lines:
    step = values[rule_id]
    return [] if step == "nothing" else [f"apps.{app}.{step}(id={row})"]


def _wrapped(app: str, option: str, plain: str, value: str) -> str:
    return value if option == plain else f"apps.{app}.{option}({value})"


def _pay(f: Fields, v: Values) -> Lines:
    amount = _wrapped("payments", v["pay_amount"], "dollars", f["amount"])
    return [f'apps.payments.send(to=c["{v["pay_to"]}"], amount={amount}, memo="{f["memo"]}")']


def _request(f: Fields, v: Values) -> Lines:
    call = f'apps.payments.request(payer=c["id"], amount={f["amount"]}, memo="{f["memo"]}", kind="{v["request_kind"]}")'
    return [*_before("request_before", "payments", v), call]


def _send_mail(f: Fields, v: Values) -> Lines:
    return [f'apps.mail.send(to=c["{v["mail_to"]}"], subject="{f["subject"]}", priority="{v["mail_priority"]}")']


def _forward(f: Fields, v: Values) -> Lines:
    call = f'apps.mail.forward(id=m["id"], to=c["id"], cc="{v["forward_cc"]}")'
    return [*_before("forward_before", "mail", v), call]


def _archive(f: Fields, v: Values) -> Lines:
    return [f'apps.mail.archive(id=m["id"], folder="{v["archive_folder"]}")']


def _plan(f: Fields, v: Values) -> Lines:
    date = _wrapped("calendar", v["event_date"], "iso", f'"{f["date"]}"')
    return [f'apps.calendar.add(title="{f["title"]}", date={date}, guest=c["id"], zone="{v["event_zone"]}")']


def _move(f: Fields, v: Values) -> Lines:
    return [f'apps.calendar.move(id=e["id"], date="{f["date"]}")', *_after("move_after", "calendar", 'e["id"]', v)]


def _save(f: Fields, v: Values) -> Lines:
    name = _wrapped("files", v["save_name"], "plain", f'"{f["name"]}"')
    return [f'apps.files.save(name={name}, source=m["id"], folder="{v["save_folder"]}")']


def _share(f: Fields, v: Values) -> Lines:
    return [f'apps.files.share(id=f["id"], user=c["{v["share_with"]}"], mode="{v["share_mode"]}")']


def _add_todo(f: Fields, v: Values) -> Lines:
    due = _wrapped("todo", v["todo_due"], "iso", 'e["date"]')
    return [f'apps.todo.add(title=e["title"], due={due}, board="{v["todo_list"]}")']


def _complete(f: Fields, v: Values) -> Lines:
    return [*_before("complete_before", "todo", v), 'apps.todo.complete(id=t["id"])']


def _assign(f: Fields, v: Values) -> Lines:
    return [
        f'apps.todo.assign(id=t["id"], who=c["{v["assign_who"]}"])',
        *_after("assign_after", "todo", 't["id"]', v),
    ]


def _add_contact(f: Fields, v: Values) -> Lines:
    return [f'apps.contacts.add(name=m["sender"], group="{v["contact_group"]}")']


def _update_contact(f: Fields, v: Values) -> Lines:
    return [*_before("update_before", "contacts", v), f'apps.contacts.update(id=c["id"], phone="{f["phone"]}")']


def _contact(f: Fields, v: Values) -> Lines:
    return _find("c", "contacts.find", name=f["who"])


def _event(f: Fields, v: Values) -> Lines:
    return _find("e", "calendar.find", title=f["title"])


def _todo(f: Fields, v: Values) -> Lines:
    return _find("t", "todo.find", title=f["chore"])


INTENTS: tuple[Intent, ...] = (
    Intent(
        "pay",
        ('pay "{who}" {amount} for "{memo}"', 'send {amount} to "{who}" for "{memo}"'),
        lambda n, i: {"who": n.people[i], "amount": n.amounts[i], "memo": n.chores[-1 - i]},
        _contact,
        _pay,
        ("payments.send",),
    ),
    Intent(
        "request",
        ('ask "{who}" for {amount} for "{memo}"', 'request {amount} from "{who}" for "{memo}"'),
        lambda n, i: {"who": n.people[i], "amount": n.amounts[i], "memo": n.chores[-1 - i]},
        _contact,
        _request,
        ("payments.request",),
    ),
    Intent(
        "send_mail",
        ('mail "{who}" about "{subject}"', 'write to "{who}" about "{subject}"'),
        lambda n, i: {"who": n.people[i], "subject": n.files[-1 - i]},
        _contact,
        _send_mail,
        ("mail.send",),
    ),
    Intent(
        "forward",
        ('forward the mail "{subject}" to "{who}"', 'pass the mail "{subject}" on to "{who}"'),
        lambda n, i: {"who": n.people[i], "subject": n.subjects[i]},
        lambda f, v: [*_search(f, v), *_contact(f, v)],
        _forward,
        ("mail.search", "mail.forward"),
    ),
    Intent(
        "archive",
        ('archive the mail "{subject}"', 'put the mail "{subject}" away'),
        lambda n, i: {"subject": n.subjects[i]},
        _search,
        _archive,
        ("mail.search", "mail.archive"),
    ),
    Intent(
        "plan",
        ('plan "{title}" with "{who}" on {date}', 'set up "{title}" with "{who}" for {date}'),
        lambda n, i: {"who": n.people[i], "title": n.chores[-1 - i], "date": n.new_dates[i]},
        _contact,
        _plan,
        ("calendar.add",),
    ),
    Intent(
        "move",
        ('move "{title}" to {date}', 'shift "{title}" to {date}'),
        lambda n, i: {"title": n.titles[i], "date": n.new_dates[i]},
        _event,
        _move,
        ("calendar.move",),
    ),
    Intent(
        "save",
        ('save the mail "{subject}" as "{name}"', 'keep the mail "{subject}" as file "{name}"'),
        lambda n, i: {"subject": n.subjects[i], "name": n.chores[-1 - i]},
        _search,
        _save,
        ("mail.search", "files.save"),
    ),
    Intent(
        "share",
        ('share the file "{file}" with "{who}"', 'give "{who}" the file "{file}"'),
        lambda n, i: {"who": n.people[i], "file": n.files[i]},
        lambda f, v: [*_find("f", "files.find", name=f["file"]), *_contact(f, v)],
        _share,
        ("files.share",),
    ),
    Intent(
        "add_todo",
        ('add a todo for the event "{title}"', 'make a todo of the event "{title}"'),
        lambda n, i: {"title": n.titles[i]},
        _event,
        _add_todo,
        ("todo.add",),
    ),
    Intent(
        "complete",
        ('finish the todo "{chore}"', 'tick off the todo "{chore}"'),
        lambda n, i: {"chore": n.chores[i]},
        _todo,
        _complete,
        ("todo.complete",),
    ),
    Intent(
        "assign",
        ('assign the todo "{chore}" to "{who}"', 'let "{who}" do the todo "{chore}"'),
        lambda n, i: {"chore": n.chores[i], "who": n.people[i]},
        lambda f, v: [*_todo(f, v), *_contact(f, v)],
        _assign,
        ("todo.assign",),
    ),
    Intent(
        "add_contact",
        ('add the sender of the mail "{subject}" to contacts', 'make a contact of who sent the mail "{subject}"'),
        lambda n, i: {"subject": n.subjects[i]},
        _search,
        _add_contact,
        ("mail.search", "contacts.add"),
    ),
    Intent(
        "update_contact",
        ('change the phone of "{who}" to {phone}', 'set the phone of "{who}" to {phone}'),
        lambda n, i: {"who": n.people[i], "phone": n.phones[i]},
        _contact,
        _update_contact,
        ("contacts.update",),
    ),
)

BY_INTENT = {intent.id: intent for intent in INTENTS}


def by_id(intent_id: str) -> Intent:
    """Return an intent by its id."""
    return BY_INTENT[intent_id]
