"""Any Hugging Face causal language model, computed in this process. Needs the extra `evolve-agents[pocket]`."""

from __future__ import annotations

import os

from policies.errors import PolicyUnavailable

# Before torch starts its threads: idle ones sleep. Spinning ones make decoding 3 to 6 times slower as soon as another
# process wants a core.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

try:
    import torch as _torch
    import transformers as _transformers
except ModuleNotFoundError as error:
    raise PolicyUnavailable(
        f"policies.local needs the package {error.name!r}, which is not installed; "
        'run `pip install "evolve-agents[pocket]"`'
    ) from error

from policies.local.local_policy import LocalPolicy

del _torch, _transformers

__all__ = ["LocalPolicy"]
