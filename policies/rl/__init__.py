"""Reinforcement learning in slots: what is compared, what is minimised, which prompts come next. One file per member.

The trainer never knows which algorithm made its weights: it gets an advantage per step, a loss per token, a weight per
token. Losses, corrections and what makes updates take torch, the other slots numpy alone. Idle OpenMP threads are told
to sleep, before torch starts any.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
