"""Load the configuration that applies here, and open the workspace that it names."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from evolve.config.model import Config
    from memory.store import Store


def load(context: typer.Context, changes: Mapping[str, Any] | None = None) -> Config:
    """Return the configuration that applies here, with `changes` (`section.key` -> value) from the command
    line; `preset` stands for itself. From now on the user's own modules are found.
    """
    from evolve.cli.log_setup import configure
    from evolve.config.file import by_section, find_modules_of, load_config

    config = load_config(context.obj, by_section(changes or {}))
    configure(config.log, config.workspace)
    find_modules_of(config)
    return config


def begin(context: typer.Context, changes: Mapping[str, Any] | None = None) -> Config:
    """Return the configuration for a verb that works through tasks, as `load`.

    Raises `ConfigError` in a folder with neither settings nor a workspace: nothing is begun there unasked; and for a
    name that stands for nothing, before a model is loaded.
    """
    from evolve.config.file import find_config
    from evolve.errors import ConfigError
    from evolve.loop.assembly import is_there
    from evolve.workspace.config_check import check_names

    config = load(context, changes)
    if context.obj is None and find_config() is None and not is_there(config):
        raise ConfigError(
            f"no evolve.toml in {str(Path.cwd())!r} or above; `evolve init` writes one here, `evolve --config FILE` "
            "names another"
        )
    check_names(config, train=False)
    return config


@contextmanager
def reading(context: typer.Context) -> Generator[tuple[Config, Store]]:
    """Open the workspace to read. Raises `NotFound` when there is none."""
    from evolve.loop.assembly import open_store

    config = load(context)
    with open_store(config, read_only=True) as store:
        yield config, store


@contextmanager
def writing(context: typer.Context) -> Generator[tuple[Config, Store]]:
    """Open the workspace to write, beside a run if one is under way: index updates are left to its owner."""
    from evolve.loop.assembly import open_store

    config = load(context)
    with open_store(config, owner=False) as store:
        yield config, store
