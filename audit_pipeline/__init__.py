"""Corpus Audit: was this text in that language model's pretraining data, and how sure can we be?

docs/design.md lists the packages in the order in which data flows through them, and those that can wait. Only
``operate``, ``cli``, ``definitions`` and the top-level package ``assets`` import dagster: everything else can be used
and tested without it.
"""

import os

# Threads that share a matrix product wait for each other. These variables, read when torch is loaded, let them sleep
# meanwhile: waiting in a loop takes the time of other processes. A user's own values are kept.
for _name, _value in {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}.items():
    os.environ.setdefault(_name, _value)

__version__ = "0.1.0"
