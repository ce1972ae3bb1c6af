"""BFCL v4 multi-turn (Apache-2.0, `bfcl-eval`) as an environment: a world that nobody here wrote."""

from evolve.environments.bfcl.environment import Bfcl, BfclConfig

__all__ = ["Bfcl", "BfclConfig"]
MEMBER = Bfcl
