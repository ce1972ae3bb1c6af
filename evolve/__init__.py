"""The loop: an agent works through tasks, and what it learns is kept, gated and rolled back.

Everything for users is a name of this module; each is loaded when it is first used.
"""

from evolve.shadow import refuse_shadowed_packages

refuse_shadowed_packages()

from evolve.surface import HOME, public

__all__ = sorted(HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in HOME:
        raise AttributeError(f"module 'evolve' has no attribute {name!r}; it offers {', '.join(__all__)}")
    return public(name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
