"""Progress and warnings of the public functions, which notebooks show below a cell."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from audit_pipeline.pipeline.console import end_step, quietly


@contextmanager
def progress_on_stderr(verbose: bool) -> Iterator[None]:
    """Print steps and progress on standard error within the block, or nothing if not ``verbose``."""
    if verbose:
        try:
            yield
        finally:
            end_step()
    else:
        with quietly():
            yield


@contextmanager
def without_library_bars() -> Iterator[None]:
    """Keep the progress bars of transformers and huggingface_hub off standard error within the block."""
    # Only functions that run models need this block. They import both packages anyway.
    from huggingface_hub.utils.tqdm import (  # noqa: PLC0415
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )
    from transformers.utils import logging as transformers_logging  # noqa: PLC0415

    had_bars = transformers_logging.is_progress_bar_enabled()
    hub_had_bars = not are_progress_bars_disabled()
    transformers_logging.disable_progress_bar()
    disable_progress_bars()
    try:
        yield
    finally:
        if had_bars:
            transformers_logging.enable_progress_bar()
        if hub_had_bars:
            enable_progress_bars()


def warn(messages: Iterable[object]) -> None:
    """Raise one UserWarning per message. The warnings point to the line that called the public function."""
    for message in messages:
        # Level 1 is this function, 2 the public function, 3 its caller.
        warnings.warn(str(message), UserWarning, stacklevel=3)
