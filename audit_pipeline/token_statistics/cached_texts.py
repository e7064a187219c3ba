"""Cached and missing statistics of texts: reading the caches, preparing the texts to run, and estimating their cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from audit_pipeline.errors import ModelError
from audit_pipeline.models.tokenized_model import KnownModel, TokenizedModel
from audit_pipeline.store.ledger import RowOrigin
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import KINDS, SHARE_WITH_BRANCH, Kind, digest, text_sha256
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

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark


def require_kinds(model: TokenizedModel, kinds: Iterable[Kind]) -> None:
    """Raise ModelError if the model's back end does not give the statistics of one of ``kinds``."""
    impossible = [kind for kind in kinds if not KINDS[kind].is_available_from(model.has_statistic)]
    if impossible:
        raise ModelError(
            f"the server of {model.entry.name} cannot provide these kinds of statistics: {', '.join(impossible)}"
        )


class Caches:
    """The part caches of all models and kinds in a data folder. Several runs share them and read each part once."""

    def __init__(self, paths: DataPaths) -> None:
        self.paths = paths
        self._open: dict[tuple[Kind, str], PartCache] = {}

    def of(self, model: TokenizedModel, kind: Kind) -> PartCache:
        """Return the part cache of ``kind`` for this model."""
        key = kind, model.identity.model_fingerprint
        if key not in self._open:
            folder = self.paths.token_statistics(*key)
            self._open[key] = PartCache(folder, KINDS[kind].table.schema)
        return self._open[key]

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Return the damaged parts, which were renamed (:func:`cache.set_aside`)."""
        parts: list[str] = []
        for cache in self._open.values():
            parts += map(str, cache.unreadable)
        return tuple(parts)

    def flush(self) -> None:
        """Write the pending rows."""
        for cache in self._open.values():
            cache.flush()


CacheLocation = DataPaths | Caches
"""The location of token statistics: a data folder, or open caches that several runs share."""


def open_caches(location: CacheLocation) -> Caches:
    """Return the caches at ``location``."""
    if isinstance(location, Caches):
        return location
    return Caches(location)


def _find_branch_keys(
    model: TokenizedModel, cache: PartCache, steps: int, texts_sha256: Collection[str]
) -> dict[str, str]:
    """Return the key of each text's shortest cached branches of at least ``steps`` tokens.

    Longer branches contain shorter ones.
    """
    keys: dict[str, str] = {}
    lengths = [length for length in cache.values_of("m") if length >= steps]
    for length in sorted(lengths, reverse=True):
        keys_of_length = cache_keys(model, texts_sha256, "branches", length)
        missing = cache.missing(keys_of_length.values())
        for sha256, key in keys_of_length.items():
            if key not in missing:
                keys[sha256] = key
    return keys


def read_statistics(
    model: TokenizedModel, texts: Sequence[str], location: CacheLocation, kind: Kind = "base"
) -> pa.Table:
    """Return the cached rows of ``texts``, each once, in no particular order. Texts without a row are absent.

    The column ``text_sha256`` identifies the texts.
    """
    keys = cache_keys(model, map(text_sha256, texts), kind)
    return open_caches(location).of(model, kind).read(keys.values())


def read_branches(model: TokenizedModel, texts: Sequence[str], location: CacheLocation, steps: int) -> pa.Table:
    """Return cached branches of ``texts`` of at least ``steps`` tokens, one row per text, in no particular order."""
    cache = open_caches(location).of(model, "branches")
    return cache.read(_find_branch_keys(model, cache, steps, {text_sha256(text) for text in texts}).values())


def collect_lists_by_sha256(table: pa.Table, names: Sequence[str]) -> dict[str, Mapping[str, npt.NDArray[Any]]]:
    """Return the list columns ``names`` of each row, by the sha256 of its text. Arrays share the table's memory."""
    found: dict[str, Mapping[str, npt.NDArray[Any]]] = {}
    for batch in table.to_batches():
        values: dict[str, npt.NDArray[Any]] = {}
        ends: dict[str, npt.NDArray[Any]] = {}
        for name in names:
            column = batch.column(name)
            values[name] = column.values.to_numpy(zero_copy_only=True)
            ends[name] = column.offsets.to_numpy()
        for row, sha256 in enumerate(batch.column("text_sha256").to_pylist()):
            found[sha256] = {name: np.asarray(values[name][ends[name][row] : ends[name][row + 1]]) for name in names}
    return found


_FROM_LOGITS = frozenset(kind.name for kind in KINDS.values() if kind.is_from_logits)


@dataclass(frozen=True)
class CachePlan:
    """The planned work of a run, computed without the model's weights.

    Attributes:
        texts: Number of texts.
        cached_texts: Number of distinct texts with all rows in the cache.
        texts_to_run: Number of distinct texts to run.
        tokens_to_run: Number of tokens of all passes.
        passes: Number of windows.
        bytes_to_write: Estimated size of new rows by kind, in bytes.
        branch_tokens: Estimated number of tokens of branches. Only the pass shows which tokens have a branch.
    """

    texts: int
    cached_texts: int
    texts_to_run: int
    tokens_to_run: int
    passes: int
    bytes_to_write: Mapping[Kind, int]
    branch_tokens: int = 0

    def with_further(self, further: CachePlan) -> CachePlan:
        """Return this plan with the tokens, passes and bytes of ``further`` added. Numbers of texts do not change."""
        sizes = Counter(self.bytes_to_write) + Counter(further.bytes_to_write)
        return replace(
            self,
            tokens_to_run=self.tokens_to_run + further.tokens_to_run,
            passes=self.passes + further.passes,
            bytes_to_write=sizes,
        )


@dataclass
class Prepared:
    """The encoded texts that miss a row of some kind.

    The lists ``keys``, ``encoded`` and ``missing`` have one entry per such text. A text's number is its index in them.

    Attributes:
        distinct: Number of distinct texts, including cached ones.
        keys: Cache keys by kind, per text.
        encoded: The texts.
        missing: The kinds that are missing, per text.
        windows: Windows of all texts.
        prefix: Prefix of all texts, if any.
    """

    distinct: int
    keys: list[Mapping[Kind, str]]
    encoded: list[EncodedText]
    missing: list[frozenset[Kind]]
    windows: list[Window] = field(default_factory=list)
    prefix: Prefix | None = None

    def wants_pass(self, text: int) -> bool:
        """Return True if any statistics of the text itself are missing."""
        return bool(self.missing[text] - {"branches"})

    def wants_branches(self, text: int) -> bool:
        """Return True if the branches of the text are missing."""
        return "branches" in self.missing[text]

    def without_logit_rows(self, texts: Collection[int]) -> Prepared:
        """Return the work that remains after rows of some texts were computed from cached logits.

        ``texts`` contains the indices of these texts in ``keys``.
        """
        remaining = Prepared(self.distinct, [], [], [])
        new_numbers: dict[int, int] = {}
        for text, missing in enumerate(self.missing):
            still_missing = missing - _FROM_LOGITS if text in texts else missing
            if still_missing:
                new_numbers[text] = len(remaining.keys)
                remaining.keys.append(self.keys[text])
                remaining.encoded.append(self.encoded[text])
                remaining.missing.append(still_missing)
        for window in self.windows:
            if window.text in new_numbers:
                remaining.windows.append(replace(window, text=new_numbers[window.text]))
        return remaining


def plan(
    model: TokenizedModel,
    texts: Sequence[str],
    location: CacheLocation,
    kinds: Sequence[Kind] = ("base",),
    branch_steps: int = 0,
) -> CachePlan:
    """Return what :func:`run.compute` would run for ``texts``. It needs only the tokenizer."""
    caches = open_caches(location)
    whole = prepare(model, texts, caches, add_branches_kind(kinds, branch_steps), branch_steps)
    from_logits = find_texts_with_logits(model, whole, caches.of(model, "logits"))
    prepared = whole.without_logit_rows(from_logits.values())
    return describe_plan(len(texts), prepared, estimate_bytes_to_write(model, whole, branch_steps), branch_steps)


def describe_plan(
    texts: int, prepared: Prepared, bytes_to_write: Mapping[Kind, int], branch_steps: int = 0
) -> CachePlan:
    """Return the plan of a run over ``prepared``, which was prepared from ``texts`` texts."""
    branched = 0
    for number, text in enumerate(prepared.encoded):
        if prepared.wants_branches(number):
            branched += text.n_scored
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
    """Return ``kinds``, and the kind ``branches`` if ``steps`` is above 0."""
    return (*kinds, "branches") if steps else tuple(kinds)


def prepare(
    model: TokenizedModel,
    texts: Sequence[str],
    caches: Caches,
    kinds: Sequence[Kind],
    steps: int,
    extra_kinds: Collection[Kind] = (),
) -> Prepared:
    """Encode the distinct ``texts`` that miss a row of ``kinds`` or branches of at least ``steps`` tokens.

    Kinds of ``extra_kinds`` are added to a text only if it runs for another kind.
    """
    distinct = {text_sha256(text): text for text in texts}
    keys: dict[Kind, Mapping[str, str]] = {}
    absent: dict[Kind, Collection[str]] = {}
    for kind in kinds:
        keys[kind] = cache_keys(model, distinct, kind, steps)
        if kind != "branches":
            absent[kind] = caches.of(model, kind).missing(keys[kind].values())
    branched = distinct
    if steps:
        branched = _find_branch_keys(model, caches.of(model, "branches"), steps, distinct)
    to_encode: list[str] = []
    keys_by_text: list[Mapping[Kind, str]] = []
    missing: list[frozenset[Kind]] = []
    for sha256, text in distinct.items():
        lacking: set[Kind] = {kind for kind, absent_keys in absent.items() if keys[kind][sha256] in absent_keys}
        if sha256 not in branched:
            lacking.add("branches")
        if not lacking.difference(extra_kinds, ("branches",)):
            lacking.difference_update(extra_kinds)
        if lacking:
            to_encode.append(text)
            keys_by_text.append({kind: keys_of_kind[sha256] for kind, keys_of_kind in keys.items()})
            missing.append(frozenset(lacking))
    encoded = encode(model, to_encode)
    window, stride = window_and_stride(model)
    windows: list[Window] = []
    for number, text_tokens in enumerate(encoded):
        windows += cut_windows(number, text_tokens, window, stride)
    return Prepared(len(distinct), keys_by_text, encoded, missing, windows)


def prepare_single_windows(
    kind: Kind, absent: Mapping[str, EncodedText], *, cached: int, prefix: Prefix | None = None
) -> Prepared:
    """Prepare a model pass over texts, with one window for each whole text.

    Args:
        kind: Kind of statistics that the cache lacks.
        absent: Texts without a row, by key.
        cached: Number of further texts that already have a row.
        prefix: Prefix of all texts, if any.
    """
    texts = list(absent.values())
    windows: list[Window] = []
    for number, text in enumerate(texts):
        if len(text.token_id):
            has_start_token = text.start_token_id is not None
            windows.append(Window(number, 0, len(text.token_id), text.first_scored, has_start_token))
    keys: list[Mapping[Kind, str]] = [{kind: key} for key in absent]
    return Prepared(cached + len(texts), keys, texts, [frozenset({kind})] * len(texts), windows, prefix)


def find_texts_with_logits(model: TokenizedModel, prepared: Prepared, logits: PartCache) -> dict[str, int]:
    """Return the texts whose missing statistics can be computed from cached ``logits``.

    Returns:
        Text numbers by the keys of their logits.
    """
    numbers: dict[str, int] = {}
    for number, (text, lacking) in enumerate(zip(prepared.encoded, prepared.missing, strict=True)):
        if text.n_scored and _FROM_LOGITS & lacking and lacking <= _FROM_LOGITS | {"branches"}:
            numbers[text.text_sha256] = number
    keys = cache_keys(model, numbers, "logits")
    missing = logits.missing(keys.values()) if keys else ()
    return {key: numbers[sha256] for sha256, key in keys.items() if key not in missing}


def estimate_bytes_to_write(model: TokenizedModel, prepared: Prepared, steps: int) -> dict[Kind, int]:
    """Estimate the uncompressed size of the missing rows by kind, in bytes."""
    tokens: Counter[Kind] = Counter()
    for text, lacking in zip(prepared.encoded, prepared.missing, strict=True):
        tokens.update(dict.fromkeys(lacking, text.n_scored))
    sizes: dict[Kind, int] = {}
    for kind, count in tokens.items():
        sizes[kind] = count * KINDS[kind].estimate_bytes_per_token(model.vocab_size, steps)
    return sizes


def build_pair_origin(
    model: TokenizedModel, benchmark: BuiltBenchmark, settings: Mapping[str, object] | None = None
) -> RowOrigin:
    """Return the origin of a model's rows on a benchmark, for the ledger: fingerprints, digest and settings."""
    return RowOrigin(
        model_fingerprint=model.identity.model_fingerprint,
        tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
        benchmark_digest=benchmark.digest,
        settings=settings,
    )


def compute_statistics_version(model: KnownModel, benchmark_digest: str) -> str:
    """Return the data version of the token statistics of a model on a benchmark: a digest of all their inputs.

    The length of branches belongs to the benchmark, so the benchmark's digest covers it.
    """
    policy = model.entry.start_token_policy
    start_token = None
    if policy == "always":
        start_token = model.start_token
    return digest(
        benchmark_digest,
        model.identity.model_fingerprint,
        model.identity.tokenizer_fingerprint,
        policy,
        start_token,
        *window_and_stride(model),
        *(kind.version for kind in KINDS.values() if kind.is_read_by_audits),
    )[:16]
