"""What a proposer of neighbours is, what it costs, and the randomness that it may use.

What belongs here: the interface and what holds for every proposer. What does not: any one way of making neighbours
(its own module).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from audit_pipeline.catalogue.contracts import Kind, digest, text_sha256


@dataclass(frozen=True)
class NeighbourCost:
    """What proposing n neighbours per text and scoring them takes, known before anything is run.

    ``passes`` and ``tokens`` are those of making the neighbours, by the model ``model``; 0 where all is cached.
    ``neighbours`` is how many there can be at most. The audited model runs over them afterwards: ``neighbour_words``
    whitespace words.
    """

    model: str
    passes: int
    tokens: int
    neighbours: int
    neighbour_words: int

    @property
    def summary(self) -> str:
        """The cost in one line."""
        making = f"{self.tokens:,} tokens in {self.passes:,} passes of {self.model}" if self.passes else "no pass"
        return (
            f"making neighbours: {making}; scoring up to {self.neighbours:,} of them: "
            f"{self.neighbour_words:,} words through the audited model"
        )


class Proposer(Protocol):
    """A way of making neighbours.

    ``fingerprint`` stands for all that decides which neighbours a text gets (the way, its settings, its model), but
    for n and the seed: it belongs in cache keys and lineage.
    """

    @property
    def name(self) -> str:
        """The way's name, as users write it."""
        ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def kinds(self) -> Sequence[Kind]:
        """Kinds of token statistics of the texts that have to be in the cache before it proposes."""
        ...

    def cost(self, texts: Sequence[str], n: int) -> NeighbourCost:
        """What ``propose`` and scoring what it returns will take; runs no model."""
        ...

    def propose(self, texts: Sequence[str], n: int, seed: int) -> Sequence[Sequence[str]]:
        """For each text up to ``n`` distinct neighbours, none of them the text itself, in the texts' order.

        A text that is too short for n gets fewer. What a text gets depends on the text and ``seed`` alone, and fewer
        are always the first of more.
        """
        ...


def generator_of(text: str, seed: int) -> np.random.Generator:
    """Random numbers that depend on the text and ``seed`` alone, not on the texts beside it."""
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


def compute_scoring_cost(texts: Sequence[str], n: int) -> tuple[int, int]:
    """At most how many neighbours ``texts`` get, and how many whitespace words those have."""
    different = dict.fromkeys(texts)
    return n * len(different), n * sum(len(text.split()) for text in different)
