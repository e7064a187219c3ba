"""Corpus Audit: was this text in that language model's pretraining data, and how sure can we be?

docs/design.md lists the packages in the order of the data flow. Only ``pipeline``, ``cli``, ``definitions`` and the
top-level package ``assets`` import dagster. All other code can be used and tested without it.
"""

import os

# Threads that share a matrix product wait for each other. With these settings they sleep instead of spinning, which
# would take CPU time from other processes. Torch reads the variables when it is loaded. Values of the user are kept.
for _name, _value in {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}.items():
    os.environ.setdefault(_name, _value)

__version__ = "0.1.0"
