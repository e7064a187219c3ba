"""Where token statistics are kept, by model and kind, and what of some texts is there.

What belongs here: opening the caches of a model's kinds and reading rows by text. What does not: files (cache.py), what
is missing (prepare.py), running a model (run.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from audit_pipeline.catalogue.contracts import KINDS, Kind, text_sha256
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.working_copy import bring
from audit_pipeline.errors import ModelError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.cache import PartCache
from audit_pipeline.token_statistics.encode import cache_key


def require_kinds(model: TokenizedModel, kinds: Iterable[Kind]) -> None:
    """Raise ModelError where the model's back end does not give enough for rows of one of ``kinds``."""
    if impossible := [kind for kind in kinds if not KINDS[kind].is_had_from(model.gives)]:
        raise ModelError(f"the interface that {model.entry.name} is behind does not give: {', '.join(impossible)}")


class Caches:
    """The part caches under ``paths``, kept open for several runs in a row: each part is looked through once, and small
    parts are merged when all runs are done.

    ``only_written``: nothing is read from them, so that in a working copy of a bucket no part has to be brought.
    """

    def __init__(self, paths: DataPaths, *, only_written: bool = False) -> None:
        self.paths = paths
        self._only_written = only_written
        self._open: dict[tuple[Kind, str], PartCache] = {}

    def of(self, model: TokenizedModel, kind: Kind) -> PartCache:
        """The part cache of ``kind`` for this model."""
        place = kind, model.identity.model_fingerprint
        if place not in self._open:
            folder = self.paths.token_statistics(*place)
            if not self._only_written:
                bring(folder)
            self._open[place] = PartCache(folder, KINDS[kind].table.schema)
        return self._open[place]

    def compact(self) -> None:
        """Merge small parts; after the last run."""
        for cache in self._open.values():
            cache.compact()


Where = DataPaths | Caches
"""Where token statistics are kept: a data folder, or its caches where several runs in a row share them."""


def caches_of(model: TokenizedModel, where: Where, kinds: Sequence[Kind]) -> dict[Kind, PartCache]:
    """The part caches of ``kinds`` for this model."""
    caches = where if isinstance(where, Caches) else Caches(where)
    return {kind: caches.of(model, kind) for kind in kinds}


class TextsWithBranches:
    """Which of the texts have branches on disk, of at least ``steps`` tokens: shorter ones are part of longer ones."""

    def __init__(self, model: TokenizedModel, cache: PartCache, steps: int, texts_sha256: Iterable[str]) -> None:
        self._model = model
        self._long_enough = sorted(length for length in cache.values_of("m") if length >= steps)
        self._known = cache.known(key for sha256 in texts_sha256 for key in self._keys(sha256))

    def best(self, sha256: str) -> str | None:
        """The key of the text's shortest branches that are long enough."""
        return next((key for key in self._keys(sha256) if key in self._known), None)

    def _keys(self, sha256: str) -> list[str]:
        return [cache_key(self._model, sha256, "branches", length) for length in self._long_enough]


def read_statistics(model: TokenizedModel, texts: Sequence[str], where: Where, kind: Kind = "base") -> pa.Table:
    """The cached rows of ``texts``, each once, in no particular order; texts without a row are absent.

    Joins to texts by ``text_sha256``.
    """
    cache = caches_of(model, where, (kind,))[kind]
    return cache.read(cache_key(model, text_sha256(text), kind) for text in texts)


def read_branches(model: TokenizedModel, texts: Sequence[str], where: Where, steps: int) -> pa.Table:
    """The cached branches of ``texts`` of at least ``steps`` tokens, one row per text, in no particular order."""
    cache = caches_of(model, where, ("branches",))["branches"]
    distinct = dict.fromkeys(map(text_sha256, texts))
    branched = TextsWithBranches(model, cache, steps, distinct)
    keys = map(branched.best, distinct)
    return cache.read(key for key in keys if key is not None)


def lists_by_text(table: pa.Table, names: Sequence[str]) -> dict[str, Mapping[str, npt.NDArray[Any]]]:
    """The lists ``names`` of each row, by its text's sha256; they share the table's memory."""
    found: dict[str, Mapping[str, npt.NDArray[Any]]] = {}
    for batch in table.to_batches():
        columns = {name: batch.column(name) for name in names}
        values = {name: column.values.to_numpy(zero_copy_only=True) for name, column in columns.items()}
        ends = {name: column.offsets.to_numpy() for name, column in columns.items()}
        for row, sha256 in enumerate(batch.column("text_sha256").to_pylist()):
            found[sha256] = {name: np.asarray(values[name][ends[name][row] : ends[name][row + 1]]) for name in names}
    return found
