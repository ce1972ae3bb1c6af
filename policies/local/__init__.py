"""Any Hugging Face causal language model, computed in this process. Needs the extra `evolve-agents[pocket]`."""

from __future__ import annotations

from policies.errors import PolicyUnavailable

try:
    import torch as _torch
    import transformers as _transformers
except ModuleNotFoundError as error:
    raise PolicyUnavailable(
        f"policies.local needs the package {error.name!r}, which is not installed; "
        'run `pip install "evolve-agents[pocket]"`'
    ) from error

from policies.local.policy import LocalPolicy

del _torch, _transformers

__all__ = ["LocalPolicy"]
