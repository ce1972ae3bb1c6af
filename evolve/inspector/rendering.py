"""Templates to HTML. Learned text is a value, always escaped; the templates are ours.

The words of this project, explained where they stand: buttons on the page, some also in docs/glossary.md.

`glossary.toml` is the single source. A word on a page is a button that opens its explanation, by mouse, keyboard and
touch, without a script (the browser's own popovers).
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from evolve import inspector
from evolve.inspector.page_context import PageContext, desk_of, given_desk

PAGES = {
    "overview": "Overview",
    "runs": "Runs",
    "playbook": "Playbook",
    "notebook": "Notebook",
    "exemplars": "Exemplars",
    "skills": "Skills",
    "review": "Review",
    "retrieval": "Retrieval",
    "policies": "Policies",
    "training": "Training",
}
"""What the navigation lists -> its title."""
NOTHING = "-"
"""Stands where there is no figure."""
_MOST_POINTS = 400
_ULID = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class Links(Protocol):
    """Where things are: on the server, or in an exported file."""

    def __call__(self, page: str, name: str = "", /, **query: object) -> str:
        """Return the address of a page, of the thing `name` on it if given; empty where there is none."""
        ...


def served(page: str, name: str = "", /, **query: object) -> str:
    """Return the path of a page on the server."""
    path = "/" if page == "overview" else f"/{page}" + (f"/{quote(name, safe='')}" if name else "")
    asked = {key: value for key, value in query.items() if value not in ("", None)}
    return path + (f"?{urlencode(asked)}" if asked else "")


def show(request: Request, template: str, data: Mapping[str, Any], *, status: int = 200) -> HTMLResponse:
    """Return a page; `data` are the template's values."""
    here: dict[str, Any] = {"here": request.url.path.split("/")[1] or "overview"}
    if status != 200:  # an error is told without the store, which may be what broke
        return HTMLResponse(render(template, {**frame(given_desk(request), served), **here, **data}), status)
    desk = desk_of(request)
    if (request.headers.get("evolve-page") or desk.csrf) != desk.csrf:  # another tab chose another namespace meanwhile
        return HTMLResponse("", headers={"hx-refresh": "true"})
    here |= {"namespaces": desk.namespaces, "page_key": desk.csrf}
    if "hx-request" not in request.headers:
        here["said"] = desk.said.copy()
        desk.said.clear()
    return HTMLResponse(render(template, {**frame(desk, served), **here, **data}))


def render(template: str, data: Mapping[str, Any]) -> str:
    """Return a template with its values."""
    return _TEMPLATES.get_template(template).render(pages=PAGES, **data)


def frame(desk: PageContext, link: Links) -> dict[str, Any]:
    """Return what every template needs; `still` says that it stands in a file."""
    return {
        "desk": desk,
        "link": link,
        "said": (),
        "here": "",
        "namespaces": (),
        "page_key": "",
        "still": False,
        "word": Words(),
    }


def chart(
    title: str,
    x: Sequence[float],
    series: Mapping[str, Sequence[float | None]],
    unit: str = "",
    *,
    joined: bool = False,
) -> str:
    """Return a chart as JSON for the page's script: lines over `x`, thinned out where there are too many points.

    With `joined` each value is a dot, and lines go on over the places between that have none.
    """
    step = max(1, -(-len(x) // _MOST_POINTS))
    keep = [at for at in range(len(x)) if at % step == 0 or at == len(x) - 1]
    lines = [{"label": name, "y": [_finite(values[at]) for at in keep]} for name, values in series.items()]
    return json.dumps({"title": title, "unit": unit, "joined": joined, "x": [x[at] for at in keep], "series": lines})


def _finite(value: float | None) -> float | None:
    """Return a figure that JSON knows: what is no number is a gap in the line."""
    return value if value is not None and math.isfinite(value) else None


def percent(share: float | None) -> str:
    """Return a share as a percentage."""
    return NOTHING if share is None else f"{100 * share:.0f} %"


def number(value: float | None) -> str:
    """Return a figure for people."""
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:.3g}"


def moment(value: datetime | str) -> str:
    """Return a point in time to the second."""
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    return f"{at:%Y-%m-%d %H:%M:%S}"


def began(run_id: str) -> str:
    """Return when a run began, which its id says (a ULID); empty for an id that says nothing."""
    if len(run_id) != 26 or not set(run_id[:10]) <= set(_ULID):
        return ""
    milliseconds = 0
    for digit in run_id[:10]:
        milliseconds = 32 * milliseconds + _ULID.index(digit)
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M}"


def minute(value: datetime | str) -> str:
    """Return a point in time to the minute."""
    return moment(value)[:16]


def duration(seconds: float | None) -> str:
    """Return a time for people: never 0 for something that took time."""
    if not seconds:
        return NOTHING
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else "1.0 s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


_TEMPLATES = Environment(
    loader=PackageLoader(inspector.__name__),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    "trusted": Markup,
    "percent": percent,
    "number": number,
    "moment": moment,
    "minute": minute,
    "began": began,
    "duration": duration,
}


_BUTTON = Markup(
    '<button type="button" class="term" popovertarget="{key}" popovertargetaction="show" aria-describedby="{key}">'
    "{text}</button>"
)


@lru_cache(maxsize=1)
def glossary() -> dict[str, dict[str, str]]:
    """Return section -> word -> explanation. The section `terms` is also docs/glossary.md."""
    return tomllib.loads((files(inspector) / "glossary.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def explained() -> dict[str, str]:
    """Return word -> explanation."""
    return {word: text for section in glossary().values() for word, text in section.items()}


class Words:
    """Makes the buttons of a page, and remembers which explanations the page then needs."""

    def __init__(self) -> None:
        self.used: dict[str, str] = {}
        """Id of an explanation -> its word."""

    def __call__(self, word: str, text: object = None) -> Markup:
        """Return a button that explains a word, shown as `text`. Raises `KeyError` for one that is not explained."""
        if word not in explained():
            raise KeyError(f"no explanation of {word!r}; add it to evolve/inspector/glossary.toml")
        key = f"word-{hashlib.sha256(word.encode()).hexdigest()[:8]}"
        self.used[key] = word
        return _BUTTON.format(key=key, text=word if text is None else text)

    def known(self, word: str, text: object = None) -> Markup:
        """Return the button of a word that is explained, else the text as it is."""
        return self(word, text) if word in explained() else Markup("{}").format(word if text is None else text)

    def explanations(self) -> list[tuple[str, str, str]]:
        """Return (id, word, explanation) of each word that was used."""
        return [(key, word, explained()[word]) for key, word in self.used.items()]
