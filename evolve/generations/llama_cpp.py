"""Generations on llama.cpp: an adapter in GGUF beside the file of the base, and a run that knows which one answers.

A server serves one adapter from its start to its end (`evolve policy serve FILE.gguf`), under a name that holds the
hash of its files. So a policy can ask whether the server computes with the generation that is live here, and no reply
is journalled as one of weights that never gave it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from evolve.config.model import ModelSection, PolicySection
from evolve.generations.workspace_registry import ANY_RANK, DATABASE, FOLDER, model_directory
from memory.errors import BadInput, NotFound
from policies.generations.adapters import check_adapter, fingerprint, inspect_adapter
from policies.generations.generation_records import Generation
from policies.generations.generation_registry import Registry
from policies.generations.gguf_adapter import check_same_weights, to_gguf
from policies.generations.storage import version_name
from policies.generations.swap import checked
from policies.gguf_file import MAGIC
from policies.llama_adapters import Adapted
from policies.llama_server import LlamaOptions, llama_server

CONVERTED = "gguf"
"""Folder of converted adapters, beside those that they were made of."""


def file_name(adapter: Path) -> str:
    """Return what an adapter's directory is called in GGUF, without the ending: its own name and its hash."""
    return f"{adapter.name}.{fingerprint(adapter)[:12]}"


def answering(section: ModelSection, workspace: Path | None) -> Adapted:
    """Return the adapter that a server has to compute with: the one that is named, else of the live generation.

    Raises `AdapterRefused` for a directory that holds none, `NotFound` for an unknown generation.
    """
    version, directory = _chosen(section.adapter, workspace)
    if directory is None:
        return Adapted(generation=version, file="")
    inspect_adapter(directory, None)
    return Adapted(generation=version, file=file_name(directory))


def converted(section: ModelSection, workspace: Path, base: Path, named: str | None, folder: Path) -> Path | None:
    """Return the GGUF adapter to serve beside `base`, made in `folder` where it is not one already; None = no adapter.

    `named` is a generation, a PEFT directory or a GGUF file; None = the live generation, where `policy.weights` says
    what it adapts. Raises as `gguf_adapter.to_gguf`, `BadInput` for a base of other weights, and as `answering`.
    """
    if named is None and not (section.name == "openai" and section.weights):
        return None
    if named is not None and Path(named).is_file():
        return _gguf(Path(named))
    if section.name == "openai" and section.weights:
        check_same_weights(model_directory(section), base)
    _, directory = _chosen(named, workspace)
    if directory is None:
        return None
    return _made(directory, base, folder)


@contextmanager
def serving(
    section: PolicySection, workspace: Path, generation: Generation, base: Path, options: LlamaOptions
) -> Generator[PolicySection]:
    """Serve one generation on a free port; yield the section of a policy that answers with it. Raises as `converted`
    and `llama_server`."""
    directory = checked(generation, ANY_RANK) if generation.adapter is not None else None
    check_same_weights(model_directory(section), base)
    made = _made(directory, base, workspace / FOLDER) if directory else None
    options = options.model_copy(update={"adapter": made, "port": None})
    name = section.model or base.stem
    with llama_server(base, log=workspace / "llama.log", name=name, options=options) as url:
        yield section.model_copy(update={"base_url": url, "model": name, "adapter": generation.version})


def _made(directory: Path, base: Path, folder: Path) -> Path:
    """Return the GGUF adapter of a PEFT directory, kept in `folder`."""
    return to_gguf(directory, base, folder / CONVERTED / f"{file_name(directory)}.gguf")


def _chosen(named: str | None, workspace: Path | None) -> tuple[str, Path | None]:
    """Return the name and the directory of an adapter; no directory = the base answers."""
    if named is not None and (Path(named).is_dir() or os.sep in named):
        return Path(named).name, Path(named)
    folder = workspace / FOLDER if workspace else None
    if folder is None or not (folder / DATABASE).exists():
        if named in (None, version_name(0), "0"):
            return version_name(0), None
        raise NotFound(f"no generation {named!r} and no such adapter: this workspace has none (`evolve policy list`)")
    with Registry(folder, read_only=True) as registry:
        generation = registry.live() if named is None else registry.get(named)
    if generation.adapter is not None:
        check_adapter(generation.adapter, generation.base, max_rank=ANY_RANK)
    return generation.version, generation.adapter


def _gguf(path: Path) -> Path:
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise BadInput(f"{str(path)!r} is no GGUF file; give a GGUF adapter, a PEFT directory or a generation")
    return path
