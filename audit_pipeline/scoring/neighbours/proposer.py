"""The interface of proposers of neighbours, and the functions that proposers share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from audit_pipeline.tables import Kind, digest, text_sha256


class Proposer(Protocol):
    """A method of making neighbours: copies of a text with one replaced word or token."""

    @property
    def kinds(self) -> Sequence[Kind]:
        """Return the kinds of token statistics that the cache must hold for the texts."""
        ...

    def describe_cost(self, texts: Sequence[str], n: int) -> str:
        """Return a sentence about the cost of proposing and scoring the neighbours. No model runs."""
        ...

    def propose(self, texts: Sequence[str], n: int, seed: int) -> Sequence[Sequence[str]]:
        """Return up to n distinct neighbours per text, in the order of the texts.

        A text is never its own neighbour. A short text may have fewer neighbours. The neighbours depend only on the
        text and the seed. A smaller n yields the first neighbours of a larger n.
        """
        ...


def create_random_generator(text: str, seed: int) -> np.random.Generator:
    """Return a generator whose numbers depend only on the text and the seed."""
    return np.random.default_rng(int(digest(text_sha256(text), seed), 16))


def select_distinct(original: str, candidates: Iterable[str], n: int) -> list[str]:
    """Return the first n distinct candidates that differ from the original. No further candidates are computed."""
    selected: dict[str, None] = {}
    if n > 0:
        for text in candidates:
            if text != original:
                selected[text] = None
            if len(selected) == n:
                break
    return list(selected)


def format_cost(model: str, passes: int, tokens: int, texts: Sequence[str], n: int) -> str:
    """Format the cost of making and scoring neighbours.

    Args:
        model: Name of the model that proposes neighbours.
        passes: Number of its passes.
        tokens: Number of tokens of these passes.
        texts: The texts. Repeated texts count once.
        n: Maximum number of neighbours per text.
    """
    making = f"{tokens:,} tokens in {passes:,} passes of {model}" if passes else "no pass"
    distinct_texts = dict.fromkeys(texts)
    n_words = n * sum(len(text.split()) for text in distinct_texts)
    return (
        f"making neighbours: {making}; scoring up to {n * len(distinct_texts):,} of them: {n_words:,} words through "
        "the audited model"
    )
