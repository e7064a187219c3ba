"""How many threads torch computes with.

What belongs here: setting them, which every module that computes on a CPU may call. What does not: the computing.
"""

from __future__ import annotations

import os

import joblib
import torch


def use_threads() -> int:
    """Let torch compute with a thread per core that this process may use, and return how many.

    Left to itself torch counts the cores of the machine, also where a container is given a share of them, and its
    threads then wait for each other. What the user set (OMP_NUM_THREADS) stands. The pool for whole operators side by
    side stays idle in inference, so its size does not matter.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(joblib.cpu_count(only_physical_cores=True))
    return torch.get_num_threads()
