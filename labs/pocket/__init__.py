"""Training of the pocket model: a few million parameters, from scratch, on text the repository generates.

Idle OpenMP threads are told to sleep, before torch starts any: spinning ones make training and decoding 3 to 6 times
slower as soon as another process wants a core.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
