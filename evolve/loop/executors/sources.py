"""Compares the code of a worker with that of the run: other code gives other prompts and other grades."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from evolve.config.model import Config
from evolve.errors import RunMismatch

_PACKAGES = ("evolve", "memory", "playbooks", "policies", "skills")


def code_of(config: Config) -> str:
    """Return a short hash of our packages, and of the files that environment and policies are of (`module:name`)."""
    found = sha256(_of_our_packages())
    for name in sorted(_own(config)):
        spec = None if name == "__main__" else find_spec(name)
        if spec is not None and spec.has_location and spec.origin:
            found.update(f"{name}\0".encode() + sha256(Path(spec.origin).read_bytes()).digest())
    return found.hexdigest()[:16]


@cache
def _of_our_packages() -> bytes:
    """Return a hash of our packages, which are read once: what a process acts with is what it began with."""
    found = sha256()
    for name in _PACKAGES:
        for folder, file in _files(name):
            found.update(f"{name} {file.relative_to(folder)}\0".encode() + sha256(file.read_bytes()).digest())
    return found.digest()


def require_same(here: Mapping[str, str], of_the_run: Mapping[str, str]) -> None:
    """Raise `RunMismatch` where this worker would act with something else than the run."""
    if other := sorted(name for name in {*here, *of_the_run} if here.get(name) != of_the_run.get(name)):
        differ = ", ".join(f"{name} {here.get(name)!r} (the run: {of_the_run.get(name)!r})" for name in other)
        raise RunMismatch(
            f"a worker on {socket.gethostname()!r} would act with {differ}. Where `code` differs, install the same "
            "evolve there and copy your own modules. Generations of a policy are files in .evolve/policies of each "
            "machine: copy them too, or serve the model"
        )


def _own(config: Config) -> set[str]:
    """Return the modules that `module:name` names, but for ours."""
    sections = (config.policy, *config.policy.roles.values())
    scripts = (section.model for section in sections if section.name == "scripted")
    named = (config.environment.name, *(section.name for section in sections), *scripts)
    modules = {name.partition(":")[0] for name in named if ":" in name}
    return {name for name in modules if name.partition(".")[0] not in _PACKAGES}


def _files(package: str) -> Iterator[tuple[Path, Path]]:
    """Yield the files of a package, each after the folder that its name is told from."""
    spec = find_spec(package)
    for folder in map(Path, (spec.submodule_search_locations if spec else None) or ()):
        files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
        yield from ((folder, file) for file in files if file.parent.name != "__pycache__")
