"""The loop: an agent works through tasks, and what it learns is kept, gated and rolled back.

Everything for users is a name of this module; each is loaded when it is first used.
"""

from evolve.import_guard import refuse_shadowed_packages

refuse_shadowed_packages()

from evolve.surface import HOME, public

__all__ = sorted(HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    return public(name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
