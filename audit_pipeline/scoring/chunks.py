"""A file's texts in chunks that fit into memory.

What belongs here: how much is worked on at a time. What does not: the work (file.py).

A chunk is run through the model and scored before the next one is read. It is large enough that batches sorted by
length waste nothing, and small enough that its statistics are a few hundred megabytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from audit_pipeline.fetch.rows import TextRow

_TEXTS = 8192
_CHARACTERS = 4_000_000


@dataclass(frozen=True)
class ChunkLimits:
    """The most texts, and the most characters, of a chunk; a longer text is a chunk of its own."""

    texts: int = _TEXTS
    characters: int = _CHARACTERS


def bounds_for(held_per_text: int) -> ChunkLimits:
    """The bounds of a chunk where so many times a text's own statistics are held for it (Session.held_per_text)."""
    return ChunkLimits(characters=_CHARACTERS // held_per_text)


def chunks(texts: Iterable[TextRow], bounds: ChunkLimits) -> Iterator[list[TextRow]]:
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
