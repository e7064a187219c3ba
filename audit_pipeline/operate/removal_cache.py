"""Taking texts, or a whole model, out of the cache of token statistics: it is no file a partition, as tables are.

What belongs here: the rows of texts in parts that stay, damaged parts that may hold them, whole folders. What does not:
which texts and models (removal.py), part files (token_statistics/cache.py).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from pathlib import Path

from audit_pipeline.operate.removal_lots import (
    Gone,
    OnRemoved,
    bytes_of,
    files_below,
    remove_if_empty,
    rows_in,
    stat_of,
    unlink,
)
from audit_pipeline.token_statistics.cache import COMPACTION_LOCK, Weight, discard, no_compaction, parts_of, weigh

DEAD_AFTER_SECONDS = 3600.0
"""A temporary file that is older is no living writer's."""

_CACHED = "token statistics"
_DAMAGED = "damaged parts of the cache, which may hold its texts"


def weight_of_folder(folder: Path) -> Gone:
    """What a model's folder of one kind holds."""
    files = files_below(folder)
    return Gone(_CACHED, len(files), sum(map(rows_in, files)), bytes_of(files))


def weight_of_texts(folder: Path, texts: Collection[str]) -> list[Gone]:
    """What :func:`remove_texts` would take; the bytes of rows in parts that stay are shared out by rows."""
    return _of_texts(weigh(folder, texts), _leftovers(folder))


def remove_folder(folder: Path, on_removed: OnRemoved) -> None:
    """Take a model's folder of one kind away, when no compaction is at work in it."""
    with no_compaction(folder):
        unlink((path for path in files_below(folder) if path.name != COMPACTION_LOCK), on_removed)
    unlink([folder / COMPACTION_LOCK], on_removed)
    remove_if_empty(folder)


def remove_texts(folder: Path, texts: Collection[str], on_removed: OnRemoved) -> list[Gone]:
    """Take the rows of texts (by their sha256) away, and what nobody can read any more; what went."""
    weight, leftovers = discard(folder, texts), _leftovers(folder)
    gone = _of_texts(weight, leftovers)
    unlink(leftovers, on_removed)
    on_removed(folder)
    return gone


def rows_of_others(folders: Iterable[Path], texts: Collection[str]) -> int:
    """How many cached rows are of none of these texts."""
    return sum(sum(map(rows_in, parts_of(folder))) - weigh(folder, texts).rows for folder in folders)


def _of_texts(weight: Weight, leftovers: list[Path]) -> list[Gone]:
    return [Gone(_CACHED, 0, weight.rows, weight.bytes), Gone(_DAMAGED, len(leftovers), 0, bytes_of(leftovers))]


def _leftovers(folder: Path) -> list[Path]:
    """Parts that were set aside, and what killed writers left behind; not what a living one may be writing."""
    born_before = time.time() - DEAD_AFTER_SECONDS
    temporary = [
        path
        for path in folder.glob(".part-*.tmp")
        if (stat := stat_of(path)) is not None and stat.st_mtime < born_before
    ]
    return sorted([*folder.glob("part-*.unreadable"), *temporary])
