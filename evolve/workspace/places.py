"""Configuration of a place: a state folder, the folder of an evolve.toml, or that file itself."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from evolve.config.file import FILE, by_section, changed, find_config, load_config
from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.loop.assembly import DATABASE

STATE = ".evolve"


def settings_at(
    place: str | PathLike[str] | Config, settings: Mapping[str, object], *, variables: bool = True
) -> Config:
    """Return the configuration of a place. Raises `ConfigError` as `load_config`, and for a file that is none.

    Without `variables` those of the shell do not count.
    """
    if isinstance(place, Config):
        return changed(place, settings)
    path, values = Path(place), by_section(settings)
    if path.is_file():
        if path.suffix != ".toml":
            raise ConfigError(f"{str(path)!r} is a file; expected a folder, or an {FILE}")
        return load_config(path, values, variables=variables)
    if path.suffix == ".toml" and not path.exists():
        raise ConfigError(f"there is no file {str(path)!r}; name one, or the folder of a workspace")
    beside, holds = (path / FILE).is_file(), (path / DATABASE).is_file()
    state = (path if holds or (not beside and _is_state(path)) else path / STATE).resolve()
    file = find_config(state.parent)
    if file is not None and load_config(file, variables=variables).workspace.resolve() == state:
        return load_config(file, values, variables=variables)
    if beside:
        if holds:  # of a backup, where the settings lie beside the state
            values["memory"] = {"workspace": ".", **values.get("memory", {})}
        return load_config(path / FILE, values, variables=variables)
    values["memory"] = {"workspace": state.name, **values.get("memory", {})}
    return load_config(None, values, root=state.parent, variables=variables)


def _is_state(path: Path) -> bool:
    """Tell whether a folder is, or is to be, that of a workspace's state: not one that holds something else."""
    return path.name == STATE or (path / DATABASE).exists() or not path.is_dir() or not any(path.iterdir())
