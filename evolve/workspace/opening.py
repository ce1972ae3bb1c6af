"""Opens a workspace by its place: a state folder, the folder of an evolve.toml, or that file itself.

with evolve.open(".evolve") as memory: ...
async with evolve.aopen(".evolve") as memory: ...
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from evolve.config.model import Config
from evolve.loop.session import Parts
from evolve.workspace.async_facade import AsyncWorkspace
from evolve.workspace.facade import Workspace
from evolve.workspace.places import STATE, settings_at


def open(
    place: str | PathLike[str] | Config = STATE,
    *,
    settings: Mapping[str, object] | None = None,
    parts: Parts | None = None,
) -> Workspace:
    """Open a workspace, or begin one where nothing is yet; a context manager.

    `place`: the state folder (`.evolve`), whose settings are those of the evolve.toml that names it, else the defaults;
    a folder with an evolve.toml, or that file; a backup; or a `Config`. `settings`: `section.key` -> value over them.
    `parts`: objects in place of those that the settings name. Raises `ConfigError` for what can be no workspace.
    """
    return Workspace(settings_at(place, settings or {}), parts or Parts())


def import_workspace(
    archive: str | PathLike[str], folder: str | PathLike[str], *, allow_code: bool = False
) -> Workspace:
    """Unpack what `Workspace.export_workspace` wrote into a folder, as `evolve init --from`, and open it there.

    `folder`: that of an evolve.toml, or its state folder (`.evolve`). An evolve.toml that is there stays. The
    archive's, where it names code that the next run would execute, is taken only with `allow_code`. Either everything
    arrives or nothing. Raises `BadInput` for an archive that was changed, and for a folder that holds a workspace
    already; `NotFound` where there is no archive.
    """
    from evolve.archive.transfer import import_workspace as unpack

    place = Path(folder).absolute()
    home = place.parent if place.name == STATE else place
    unpack(Path(archive), home, code=allow_code)
    return open(home)


def aopen(
    place: str | PathLike[str] | Config = STATE,
    *,
    settings: Mapping[str, object] | None = None,
    parts: Parts | None = None,
) -> AsyncWorkspace:
    """Return the same for code in an event loop: `async with evolve.aopen(...) as memory`. It opens when entered."""
    return AsyncWorkspace(settings_at(place, settings or {}), parts or Parts())
