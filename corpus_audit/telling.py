"""What a caller is told meanwhile, and what is wrong that is no error.

What belongs here: steps on request, warnings. What does not: what commands print (audit_pipeline/operate/console.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from audit_pipeline.operate.console import end_step, quietly


@contextmanager
def heard(verbose: bool) -> Iterator[None]:
    """Within the block steps and progress are told on standard error, or nothing where not ``verbose``."""
    if verbose:
        try:
            yield
        finally:
            end_step()
    else:
        with quietly():
            yield


def warn(what: Iterable[object]) -> None:
    """A UserWarning each, at the line that called the public function."""
    for one in what:
        warnings.warn(str(one), UserWarning, stacklevel=3)
