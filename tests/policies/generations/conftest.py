"""A small random model, adapters of it, a registry, and a server of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.random_adapters import random_adapter
from labs.pocket.export import export
from policies.generations.base_model import Base, base_of
from policies.generations.generation_registry import Registry
from policies.generations.local_engine import LocalEngine
from policies.local.loading import load_encoder
from tests.policies.generations.vllm_like import VllmLike
from tests.policies.model_server import serving
from tests.policies.test_local_policy import FACTS, small_llama, tokenizer_json

Adapters = Callable[[int], Path]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small")
    export(small_llama(heads=2, groups=1), tokenizer_json(), path, FACTS)
    return path


@pytest.fixture(scope="session")
def base(model: Path) -> Base:
    return base_of(model)


@pytest.fixture(scope="session")
def adapters(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapters:
    """Return the adapter of a seed, made once."""
    folder = tmp_path_factory.mktemp("adapters")

    def made(seed: int) -> Path:
        path = folder / str(seed)
        return path if path.exists() else random_adapter(model, path, seed)

    return made


@pytest.fixture
def registry(tmp_path: Path, base: Base) -> Iterator[Registry]:
    with Registry(tmp_path / "policies", base) as made:
        yield made


@pytest.fixture(scope="session")
def encoder(model: Path):
    return load_encoder(str(model))


@pytest.fixture
def reference(model: Path) -> LocalEngine:
    return LocalEngine(model, threads=1)


@pytest.fixture
def server(model: Path) -> Iterator[VllmLike]:
    with serving(VllmLike(LocalEngine(model, threads=1))) as running:
        yield running
