"""SAGE's skill-integrated reward: skills that helped later, and the use of earlier ones, are paid on top of success."""

from __future__ import annotations

import numpy as np

from memory.errors import BadInput
from policies.rl.protocols import Array, Flags

__all__ = ["skill_integrated"]

FORMAT_FAILURE = -1.0


def skill_integrated(success: Array, used: Flags, *, malformed: Flags | None = None) -> Array:
    """R_k = r_k + r_k max_{j>k} r_j u_{k->j} + r_k max_{j<k} u_{j->k}; -1 where `malformed`. One chain of m tasks.

    `success` [m] holds r in {0, 1}; `used` [m, m] is True at [k, j] where task j's rollout used a skill made in task
    k < j; `malformed` [m] is True where the reply had no valid format, which also makes r = 0 for the other tasks.
    Assumption: a use was honest and helped; who counts uses has to see to that.
    Source: SAGE, arXiv 2512.17102, for chains of two; more than two is the natural extension, each bonus paid once.
    Raises `BadInput` for rewards that are no 0 or 1, and for uses of a skill before it was made.
    """
    size = len(success)
    broken = np.zeros(size, dtype=np.bool_) if malformed is None else malformed
    if success.shape != (size,) or used.shape != (size, size) or broken.shape != (size,):
        raise BadInput(
            f"got success {success.shape}, used {used.shape} and malformed {broken.shape}; expected [m], [m, m] and [m]"
        )
    if not np.isin(success, (0, 1)).all():
        raise BadInput(f"got success {success.tolist()}; expected 0 or 1 for each task: pass completion, not a score")
    if np.tril(used).any():
        raise BadInput(f"got used {used.tolist()}; expected uses only at [made, used later]: it may be transposed")
    reached = np.where(broken, 0.0, success)
    uses = used.astype(np.float64)
    made = np.max(uses * reached[None, :], axis=1, initial=0.0)
    taken = np.max(uses, axis=0, initial=0.0)
    return np.where(broken, FORMAT_FAILURE, reached * (1 + made + taken))
