"""What a model's caches hold of some texts, by kind, and what is missing: texts to run, encoded, and their cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from audit_pipeline.errors import ModelError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.bucket_folder import refresh
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import KINDS, SHARE_WITH_BRANCH, Kind, text_sha256
from audit_pipeline.token_statistics.cache import PartCache
from audit_pipeline.token_statistics.tokens import (
    EncodedText,
    Prefix,
    Window,
    cache_keys,
    cut_windows,
    encode,
    window_and_stride,
)


def require_kinds(model: TokenizedModel, kinds: Iterable[Kind]) -> None:
    """Raise ModelError where the model's back end does not give enough for rows of one of ``kinds``."""
    if impossible := [kind for kind in kinds if not KINDS[kind].is_available_from(model.has_statistic)]:
        raise ModelError(f"the interface of {model.entry.name} does not give: {', '.join(impossible)}")


class Caches:
    """The part caches under ``paths``, kept open for several runs in a row: each part is looked through once, and small
    parts are merged when all runs are done.

    ``only_written``: nothing is read from them, so that no part has to be fetched from a bucket.
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
                refresh(folder)
            self._open[place] = PartCache(folder, KINDS[kind].table.schema)
        return self._open[place]

    @property
    def unreadable(self) -> tuple[str, ...]:
        """The parts that were damaged and set aside."""
        return tuple(str(part) for cache in self._open.values() for part in cache.unreadable)

    def flush(self) -> None:
        """Write what is pending."""
        for cache in self._open.values():
            cache.flush()


CacheLocation = DataPaths | Caches
"""Where token statistics are kept: a data folder, or its caches where several runs in a row share them."""


def open_caches(location: CacheLocation) -> Caches:
    """The caches at ``location``."""
    return location if isinstance(location, Caches) else Caches(location)


def _find_branch_keys(
    model: TokenizedModel, cache: PartCache, steps: int, texts_sha256: Collection[str]
) -> dict[str, str]:
    """The key of each text's shortest branches on disk of at least ``steps`` tokens, which are part of longer ones."""
    keys: dict[str, str] = {}
    for length in sorted((length for length in cache.values_of("m") if length >= steps), reverse=True):
        keys_of_length = cache_keys(model, texts_sha256, "branches", length)
        missing = cache.missing(keys_of_length.values())
        keys |= {sha256: key for sha256, key in keys_of_length.items() if key not in missing}
    return keys


def read_statistics(
    model: TokenizedModel, texts: Sequence[str], location: CacheLocation, kind: Kind = "base"
) -> pa.Table:
    """The cached rows of ``texts``, each once, in no particular order; texts without a row are absent.

    Joins to texts by ``text_sha256``.
    """
    keys = cache_keys(model, map(text_sha256, texts), kind)
    return open_caches(location).of(model, kind).read(keys.values())


def read_branches(model: TokenizedModel, texts: Sequence[str], location: CacheLocation, steps: int) -> pa.Table:
    """The cached branches of ``texts`` of at least ``steps`` tokens, one row per text, in no particular order."""
    cache = open_caches(location).of(model, "branches")
    return cache.read(_find_branch_keys(model, cache, steps, {text_sha256(text) for text in texts}).values())


def collect_lists_by_text(table: pa.Table, names: Sequence[str]) -> dict[str, Mapping[str, npt.NDArray[Any]]]:
    """The lists ``names`` of each row, by its text's sha256; they share the table's memory."""
    found: dict[str, Mapping[str, npt.NDArray[Any]]] = {}
    for batch in table.to_batches():
        columns = {name: batch.column(name) for name in names}
        values = {name: column.values.to_numpy(zero_copy_only=True) for name, column in columns.items()}
        ends = {name: column.offsets.to_numpy() for name, column in columns.items()}
        for row, sha256 in enumerate(batch.column("text_sha256").to_pylist()):
            found[sha256] = {name: np.asarray(values[name][ends[name][row] : ends[name][row + 1]]) for name in names}
    return found


_FROM_LOGITS = frozenset(kind.name for kind in KINDS.values() if kind.is_from_logits)


@dataclass(frozen=True)
class CachePlan:
    """What a run would do, found out without the model's weights."""

    texts: int
    cached_texts: int
    texts_to_run: int
    tokens_to_run: int
    passes: int
    bytes_to_write: Mapping[Kind, int]
    branch_tokens: int = 0
    """Tokens of the branches, about: how many tokens have one shows in the pass."""

    def with_further(self, further: CachePlan) -> CachePlan:
        """This plan and the passes of ``further``, over texts that are made of the same ones: they count once."""
        sizes = Counter(self.bytes_to_write) + Counter(further.bytes_to_write)
        return replace(
            self,
            tokens_to_run=self.tokens_to_run + further.tokens_to_run,
            passes=self.passes + further.passes,
            bytes_to_write=sizes,
        )


@dataclass
class Prepared:
    """The texts that miss a row of some kind, encoded, of ``distinct`` ones in all.

    ``keys``, ``encoded`` and ``missing`` have one entry each per text that misses something. ``prefix`` is what all of
    them follow, if any.
    """

    distinct: int
    keys: list[Mapping[Kind, str]]
    encoded: list[EncodedText]
    missing: list[frozenset[Kind]]
    windows: list[Window] = field(default_factory=list)
    prefix: Prefix | None = None

    def wants_pass(self, text: int) -> bool:
        """Whether the text's own statistics are missing, in whatever form."""
        return bool(self.missing[text] - {"branches"})

    def wants_branches(self, text: int) -> bool:
        return "branches" in self.missing[text]

    def without_logit_rows(self, texts: Collection[int]) -> Prepared:
        """What is left to be run where the rows of ``texts`` that cached logits give are there."""
        missing = [lacking - _FROM_LOGITS if text in texts else lacking for text, lacking in enumerate(self.missing)]
        remaining = [text for text, lacking in enumerate(missing) if lacking]
        place = {text: number for number, text in enumerate(remaining)}
        return Prepared(
            self.distinct,
            [self.keys[text] for text in remaining],
            [self.encoded[text] for text in remaining],
            [missing[text] for text in remaining],
            [replace(window, text=place[window.text]) for window in self.windows if window.text in place],
        )


def plan(
    model: TokenizedModel,
    texts: Sequence[str],
    location: CacheLocation,
    kinds: Sequence[Kind] = ("base",),
    branch_steps: int = 0,
) -> CachePlan:
    """What :func:`audit_pipeline.token_statistics.run.compute` would run for ``texts``; needs the tokenizer only."""
    caches = open_caches(location)
    whole = prepare(model, texts, caches, add_branches_kind(kinds, branch_steps), branch_steps)
    from_logits = find_texts_with_logits(model, whole, caches.of(model, "logits"))
    prepared = whole.without_logit_rows(from_logits.values())
    return describe_plan(len(texts), prepared, estimate_bytes_to_write(model, whole, branch_steps), branch_steps)


def describe_plan(
    texts: int, prepared: Prepared, bytes_to_write: Mapping[Kind, int], branch_steps: int = 0
) -> CachePlan:
    """What a run over ``prepared``, made of so many ``texts``, would do."""
    branched = sum(text.n_scored for number, text in enumerate(prepared.encoded) if prepared.wants_branches(number))
    return CachePlan(
        texts=texts,
        cached_texts=prepared.distinct - len(prepared.encoded),
        texts_to_run=len(prepared.encoded),
        tokens_to_run=sum(window.length for window in prepared.windows),
        passes=len(prepared.windows),
        bytes_to_write=bytes_to_write,
        branch_tokens=round(SHARE_WITH_BRANCH * branch_steps * branched),
    )


def add_branches_kind(kinds: Sequence[Kind], steps: int) -> tuple[Kind, ...]:
    """``kinds``, and the branches where some of ``steps`` tokens are wanted."""
    return (*kinds, "branches") if steps else tuple(kinds)


def prepare(
    model: TokenizedModel,
    texts: Sequence[str],
    caches: Caches,
    kinds: Sequence[Kind],
    steps: int,
    along: Collection[Kind] = (),
) -> Prepared:
    """The distinct ``texts`` that lack a row of ``kinds``, or whose branches are shorter than ``steps``, and their
    windows.

    Kinds of ``along`` are brought to a text whose own pass is run for others, and to no other text.
    """
    distinct = {text_sha256(text): text for text in texts}
    keys = {kind: cache_keys(model, distinct, kind, steps) for kind in kinds}
    absent = {kind: caches.of(model, kind).missing(keys[kind].values()) for kind in kinds if kind != "branches"}
    branched = _find_branch_keys(model, caches.of(model, "branches"), steps, distinct) if steps else distinct
    to_encode: list[str] = []
    own: list[Mapping[Kind, str]] = []
    missing: list[frozenset[Kind]] = []
    for sha256, text in distinct.items():
        lacking: set[Kind] = {kind for kind, own_keys in absent.items() if keys[kind][sha256] in own_keys}
        if sha256 not in branched:
            lacking.add("branches")
        if not lacking.difference(along, ("branches",)):
            lacking.difference_update(along)
        if lacking:
            to_encode.append(text)
            own.append({kind: keys_of_kind[sha256] for kind, keys_of_kind in keys.items()})
            missing.append(frozenset(lacking))
    encoded = encode(model, to_encode)
    window, stride = window_and_stride(model)
    windows = [part for number, text in enumerate(encoded) for part in cut_windows(number, text, window, stride)]
    return Prepared(len(distinct), own, encoded, missing, windows)


def prepare_single_windows(
    kind: Kind, absent: Mapping[str, EncodedText], *, cached: int, prefix: Prefix | None = None
) -> Prepared:
    """The texts ``absent`` from the cache of ``kind``, by their keys, each one window; ``cached``: how many others are
    in it. All follow ``prefix``, if any.
    """
    texts = list(absent.values())
    windows = [
        Window(number, 0, len(text.token_id), text.first_scored, text.start_token_id is not None)
        for number, text in enumerate(texts)
        if len(text.token_id)
    ]
    keys: list[Mapping[Kind, str]] = [{kind: key} for key in absent]
    return Prepared(cached + len(texts), keys, texts, [frozenset({kind})] * len(texts), windows, prefix)


def find_texts_with_logits(model: TokenizedModel, prepared: Prepared, logits: PartCache) -> dict[str, int]:
    """The texts whose pass is only wanted for rows that logits give as well, and whose ``logits`` are cached.

    Their numbers by the keys of their logits.
    """
    could = [
        number
        for number, lacking in enumerate(prepared.missing)
        if prepared.encoded[number].n_scored and _FROM_LOGITS & lacking and lacking <= _FROM_LOGITS | {"branches"}
    ]
    numbers = {prepared.encoded[number].text_sha256: number for number in could}
    keys = cache_keys(model, numbers, "logits")
    missing = logits.missing(keys.values()) if keys else ()
    return {key: numbers[sha256] for sha256, key in keys.items() if key not in missing}


def estimate_bytes_to_write(model: TokenizedModel, prepared: Prepared, steps: int) -> dict[Kind, int]:
    """About how many bytes the missing rows take, uncompressed, by kind."""
    tokens: Counter[Kind] = Counter()
    for text, lacking in zip(prepared.encoded, prepared.missing, strict=True):
        tokens.update(dict.fromkeys(lacking, text.n_scored))
    return {
        kind: count * KINDS[kind].estimate_bytes_per_token(model.vocab_size, steps) for kind, count in tokens.items()
    }
