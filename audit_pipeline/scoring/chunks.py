"""A file's texts in chunks that fit into memory.

What belongs here: how much is worked on at a time. What does not: the work (file.py).

A chunk is run through the model and scored before the next one is read. It is large enough that batches sorted by
length waste nothing, and small enough that its statistics are a few hundred megabytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from audit_pipeline.fetch.rows import TextRow
from audit_pipeline.scoring.passes import Passes

_TEXTS = 8192
_CHARACTERS = 4_000_000
# Branches of so many tokens take about as much memory as the statistics of the text itself.
_STEPS_AS_LARGE_AS_THE_TEXT = 10


@dataclass(frozen=True)
class Bounds:
    """The most texts, and the most characters, of a chunk; a longer text is a chunk of its own."""

    texts: int = _TEXTS
    characters: int = _CHARACTERS


def bounds_for(passes: Passes) -> Bounds:
    """The bounds of a chunk for which these passes are run: what is kept of a text grows with them."""
    share = 1 + passes.n_neighbours + passes.branch_steps // _STEPS_AS_LARGE_AS_THE_TEXT
    return Bounds(characters=_CHARACTERS // share)


def chunks(texts: Iterable[TextRow], bounds: Bounds) -> Iterator[list[TextRow]]:
    """``texts`` in their order, in chunks within ``bounds``."""
    chunk: list[TextRow] = []
    characters = 0
    for text in texts:
        if chunk and (len(chunk) >= bounds.texts or characters + len(text.text) > bounds.characters):
            yield chunk
            chunk, characters = [], 0
        chunk.append(text)
        characters += len(text.text)
    if chunk:
        yield chunk
