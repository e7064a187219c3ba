"""What a proposer of neighbours is, the words for its cost, and the randomness that it may use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from audit_pipeline.tables import Kind, digest, text_sha256


class Proposer(Protocol):
    """A way of making neighbours."""

    @property
    def kinds(self) -> Sequence[Kind]:
        """Kinds of token statistics of the texts that have to be in the cache before it proposes."""
        ...

    def describe_cost(self, texts: Sequence[str], n: int) -> str:
        """What ``propose`` and scoring what it returns will take, in one line; runs no model."""
        ...

    def propose(self, texts: Sequence[str], n: int, seed: int) -> Sequence[Sequence[str]]:
        """For each text up to ``n`` distinct neighbours, none of them the text itself, in the texts' order.

        A text that is too short for n gets fewer. What a text gets depends on the text and ``seed`` alone, and fewer
        are always the first of more.
        """
        ...


def create_random_generator(text: str, seed: int) -> np.random.Generator:
    """Random numbers that depend on the text and ``seed`` alone, not on the texts run with it."""
    return np.random.default_rng(int(digest(text_sha256(text), seed), 16))


def select_distinct(original: str, candidates: Iterable[str], n: int) -> list[str]:
    """The first ``n`` distinct texts of ``candidates`` that are not ``original``; takes no more than it needs."""
    found: dict[str, None] = {}
    if n > 0:
        for text in candidates:
            if text != original:
                found[text] = None
            if len(found) == n:
                break
    return list(found)


def format_cost(model: str, passes: int, tokens: int, texts: Sequence[str], n: int) -> str:
    """The cost in one line: making the neighbours by ``model``, and at most how many of them are scored after that."""
    making = f"{tokens:,} tokens in {passes:,} passes of {model}" if passes else "no pass"
    distinct = dict.fromkeys(texts)
    return (
        f"making neighbours: {making}; scoring up to {n * len(distinct):,} of them: "
        f"{n * sum(len(text.split()) for text in distinct):,} words through the audited model"
    )
