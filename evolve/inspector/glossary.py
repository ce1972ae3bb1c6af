"""The words of this project, explained where they stand: buttons on the page, and the glossary of the documentation.

`glossary.toml` is the single source. A word on a page is a button that opens its explanation, by mouse, keyboard and
touch, without a script (the browser's own popovers).
"""

from __future__ import annotations

import hashlib
import tomllib
from functools import lru_cache
from importlib.resources import files

from markupsafe import Markup

_BUTTON = Markup(
    '<button type="button" class="term" popovertarget="{key}" popovertargetaction="show" aria-describedby="{key}">'
    "{text}</button>"
)


@lru_cache(maxsize=1)
def glossary() -> dict[str, dict[str, str]]:
    """Return section -> word -> explanation."""
    return tomllib.loads((files("evolve.inspector") / "glossary.toml").read_text(encoding="utf-8"))


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
