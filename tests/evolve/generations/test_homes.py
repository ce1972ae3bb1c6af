"""The generations of a workspace: which weights have them, where they are kept, which roles answer with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolve.config.model import ModelSection
from evolve.errors import ConfigError
from evolve.generations.workspace_registry import home, live_generation, open_registry

POCKET = ModelSection(name="pocket")


def test_the_registry_of_a_workspace_begins_with_the_base_which_is_no_live_adapter(tmp_path: Path) -> None:
    assert live_generation(POCKET, tmp_path) is None
    with open_registry(POCKET, tmp_path) as registry:
        assert [(each.version, each.adapter) for each in registry.generations()] == [("policy-v0", None)]
    assert live_generation(POCKET, tmp_path) is None
    with pytest.raises(ConfigError, match=r"policy 'scripted' .* has no generations: they are adapters of weights"):
        open_registry(ModelSection(name="scripted"), tmp_path)


def test_only_a_role_of_the_acting_model_answers_with_its_generations(tmp_path: Path) -> None:
    assert home(POCKET, POCKET, tmp_path) == tmp_path
    assert home(ModelSection(name="local", model="other"), POCKET, tmp_path) is None
    with pytest.raises(ConfigError, match="use name = 'openai' for a role with another model"):
        home(ModelSection(name="served", model="other"), POCKET, tmp_path)
