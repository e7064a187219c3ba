"""Corpus Audit: was this text in that language model's pretraining data, and how sure can we be?

docs/design.md lists the packages in the order in which data flows through them, and those that can wait. Only
``operate``, ``cli``, ``definitions`` and the top-level package ``assets`` import dagster: everything else can be used
and tested without it.
"""

__version__ = "0.1.0"
