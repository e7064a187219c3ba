"""Filling the cache: what is missing, in which order, how far along, and what it would cost.

What belongs here: the loop over batches and its bookkeeping. What does not: tensors (forward.py), files (cache.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from audit_pipeline.contracts import LOGITS, TOKEN_STATISTICS, TOPK, text_sha256
from audit_pipeline.errors import BudgetError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.paths import DataPaths
from audit_pipeline.token_statistics.cache import PartCache
from audit_pipeline.token_statistics.encode import TOPK as TOPK_ENTRIES
from audit_pipeline.token_statistics.encode import EncodedText, cache_key, encode, window_and_stride
from audit_pipeline.token_statistics.forward import ForwardPass, WindowStatistics
from audit_pipeline.token_statistics.windows import Window, batches, windows_of

Kind = Literal["base", "topk", "logits"]
KINDS: Mapping[Kind, pa.Schema] = {"base": TOKEN_STATISTICS, "topk": TOPK, "logits": LOGITS}
DEFAULT_LOGITS_BUDGET = 20 << 30
TOKEN_BUDGET = {"cpu": 1024, "cuda": 32768}
_BASE_BYTES_A_TOKEN = 36
_PROGRESS_SECONDS = 1.0


@dataclass(frozen=True)
class Progress:
    """How far a run is; ``seconds`` counts from the first batch."""

    texts_done: int
    texts_total: int
    tokens_done: int
    tokens_total: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens_done / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        rate = self.tokens_per_second
        return (self.tokens_total - self.tokens_done) / rate if rate > 0 else None


@dataclass(frozen=True)
class Plan:
    """What a run would do, found out without the model's weights."""

    texts: int
    distinct_texts: int
    cached_texts: int
    texts_to_run: int
    tokens_to_run: int
    passes: int
    bytes_to_write: Mapping[Kind, int]


@dataclass(frozen=True)
class RunSummary:
    """What a run did; ``seconds`` leaves out loading the model.

    ``texts_computed`` never counts a text whose rows were all on disk when the run began.
    """

    texts: int
    texts_from_cache: int
    texts_computed: int
    texts_without_tokens: int
    tokens_computed: int
    passes: int
    seconds: float
    tokens_per_second: float
    unreadable_parts: tuple[str, ...]


@dataclass
class _Prepared:
    """The distinct texts that miss a row of some kind, encoded."""

    keys: dict[str, dict[Kind, str]]
    encoded: list[EncodedText]
    missing: list[frozenset[Kind]]
    windows: list[Window] = field(default_factory=list)


def caches_of(model: TokenizedModel, paths: DataPaths, kinds: Sequence[Kind]) -> dict[Kind, PartCache]:
    """The part caches of ``kinds`` for this model."""
    fingerprint = model.identity.model_fingerprint
    return {kind: PartCache(paths.token_statistics(kind, fingerprint), KINDS[kind]) for kind in kinds}


def _prepare(model: TokenizedModel, texts: Sequence[str], caches: Mapping[Kind, PartCache]) -> _Prepared:
    on_disk = {kind: cache.keys() for kind, cache in caches.items()}
    keys: dict[str, dict[Kind, str]] = {}
    to_encode: list[str] = []
    missing: list[frozenset[Kind]] = []
    for text in texts:
        sha256 = text_sha256(text)
        if sha256 in keys:
            continue
        keys[sha256] = {kind: cache_key(model, sha256, kind) for kind in caches}
        lacking = frozenset(kind for kind in caches if keys[sha256][kind] not in on_disk[kind])
        if lacking:
            to_encode.append(text)
            missing.append(lacking)
    encoded = encode(model, to_encode)
    window, stride = window_and_stride(model)
    windows = [part for number, text in enumerate(encoded) for part in windows_of(number, text, window, stride)]
    return _Prepared(keys, encoded, missing, windows)


def _bytes_to_write(model: TokenizedModel, prepared: _Prepared) -> dict[Kind, int]:
    a_token: dict[Kind, int] = {"base": _BASE_BYTES_A_TOKEN, "topk": 8 * TOPK_ENTRIES, "logits": 2 * model.vocab_size}
    totals: dict[Kind, int] = {}
    for text, lacking in zip(prepared.encoded, prepared.missing, strict=True):
        for kind in lacking:
            totals[kind] = totals.get(kind, 0) + a_token[kind] * text.n_scored
    return totals


def plan(model: TokenizedModel, texts: Sequence[str], paths: DataPaths, kinds: Sequence[Kind] = ("base",)) -> Plan:
    """What :func:`compute` would run for ``texts``; needs the tokenizer only."""
    prepared = _prepare(model, texts, caches_of(model, paths, kinds))
    return Plan(
        texts=len(texts),
        distinct_texts=len(prepared.keys),
        cached_texts=len(prepared.keys) - len(prepared.encoded),
        texts_to_run=len(prepared.encoded),
        tokens_to_run=sum(window.length for window in prepared.windows),
        passes=len(prepared.windows),
        bytes_to_write=_bytes_to_write(model, prepared),
    )


def compute(
    model: TokenizedModel,
    texts: Sequence[str],
    paths: DataPaths,
    forward: Callable[[], ForwardPass],
    *,
    kinds: Sequence[Kind] = ("base",),
    logits_budget: int = DEFAULT_LOGITS_BUDGET,
    token_budget: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunSummary:
    """Run the model once over every text that has no row yet, and write the rows as they come.

    ``forward`` is called only if there is something to run. ``logits_budget`` bounds the bytes of full logits that the
    run may add (uncompressed float16); more raises BudgetError before anything runs. Text without a scored token gets
    an empty row, so that detectors can say why they give no score.
    """
    caches = caches_of(model, paths, kinds)
    prepared = _prepare(model, texts, caches)
    logits_bytes = _bytes_to_write(model, prepared).get("logits", 0)
    if logits_bytes > logits_budget:
        raise BudgetError(
            f"full logits of these texts take {logits_bytes / 1e9:.1f} GB, the budget is {logits_budget / 1e9:.1f} GB: "
            "raise the budget, audit fewer texts, or leave the kind 'logits' out"
        )
    writer = _Writer(model, prepared, caches)
    writer.add_empty()
    ready = forward() if prepared.windows else None
    started = time.perf_counter()
    if ready is not None:
        _run(prepared, ready, writer, token_budget, on_progress)
    for cache in caches.values():
        cache.flush()
        cache.compact()
    seconds = time.perf_counter() - started
    tokens = sum(window.length for window in prepared.windows)
    return RunSummary(
        texts=len(texts),
        texts_from_cache=len(prepared.keys) - len(prepared.encoded),
        texts_computed=sum(1 for text in prepared.encoded if text.n_scored),
        texts_without_tokens=sum(1 for text in prepared.encoded if not text.n_scored),
        tokens_computed=tokens,
        passes=len(prepared.windows),
        seconds=seconds,
        tokens_per_second=tokens / seconds if tokens else 0.0,
        unreadable_parts=tuple(str(path) for cache in caches.values() for path in cache.unreadable),
    )


def _run(
    prepared: _Prepared,
    forward: ForwardPass,
    writer: _Writer,
    token_budget: int | None,
    on_progress: Callable[[Progress], None] | None,
) -> None:
    budget = token_budget or TOKEN_BUDGET[forward.device.type]
    wanted = frozenset().union(*prepared.missing)
    tokens_total = sum(window.length for window in prepared.windows)
    texts_total = len({window.text for window in prepared.windows})
    tokens_done = 0
    started = last_told = time.perf_counter()
    try:
        for batch in batches(
            prepared.windows, budget, equal_lengths=forward.equal_lengths, length_step=forward.length_step
        ):
            for statistics in _halving(forward, prepared.encoded, batch, "topk" in wanted, "logits" in wanted):
                writer.add(statistics)
            tokens_done += sum(window.length for window in batch)
            now = time.perf_counter()
            if on_progress and (now - last_told >= _PROGRESS_SECONDS or tokens_done == tokens_total):
                last_told = now
                on_progress(Progress(writer.texts_done, texts_total, tokens_done, tokens_total, now - started))
    except BaseException:
        # Whatever stopped the run (Ctrl-C, no memory), what has been computed is kept; a second error on the way
        # out, such as a full disk, must not hide the first.
        with suppress(OSError):
            writer.flush()
        raise


def _halving(
    forward: ForwardPass, encoded: Sequence[EncodedText], batch: Sequence[Window], topk: bool, logits: bool
) -> list[WindowStatistics]:
    """Run a batch, in halves where the device's memory does not hold it."""
    try:
        return forward.run(encoded, batch, topk=topk, logits=logits)
    except torch.OutOfMemoryError:
        if len(batch) == 1:
            raise
        torch.cuda.empty_cache()
    middle = len(batch) // 2
    halves = (batch[:middle], batch[middle:])
    return [one for half in halves for one in _halving(forward, encoded, half, topk, logits)]


class _Writer:
    """Collects the windows of each text and hands finished rows to the caches."""

    def __init__(self, model: TokenizedModel, prepared: _Prepared, caches: Mapping[Kind, PartCache]) -> None:
        self.texts_done = 0
        self._model = model
        self._prepared = prepared
        self._caches = caches
        self._parts: dict[int, list[WindowStatistics]] = {}
        self._expected: dict[int, int] = {}
        for window in prepared.windows:
            self._expected[window.text] = self._expected.get(window.text, 0) + 1

    def add_empty(self) -> None:
        """Rows for texts without a scored token."""
        for number, text in enumerate(self._prepared.encoded):
            if not text.n_scored:
                self._finish(number, [])

    def add(self, statistics: WindowStatistics) -> None:
        number = statistics.window.text
        parts = self._parts.setdefault(number, [])
        parts.append(statistics)
        if len(parts) == self._expected[number]:
            self._finish(number, sorted(self._parts.pop(number), key=lambda part: part.window.begin))
            self.texts_done += 1

    def flush(self) -> None:
        for cache in self._caches.values():
            cache.flush()

    def _finish(self, number: int, parts: Sequence[WindowStatistics]) -> None:
        text = self._prepared.encoded[number]
        for kind in sorted(self._prepared.missing[number]):
            key = self._prepared.keys[text.text_sha256][kind]
            row = {"key": key, "text_sha256": text.text_sha256, **_columns(kind, text, parts, self._model.vocab_size)}
            size = sum(_size(value) for value in row.values())
            self._caches[kind].add(row, size)


def _columns(kind: Kind, text: EncodedText, parts: Sequence[WindowStatistics], vocab_size: int) -> dict[str, object]:
    scored = slice(text.first_scored, None)
    if kind == "base":
        own = {"token_id": text.token_id, "char_start": text.char_start, "char_end": text.char_end}
        measured = ("logprob", "mean", "std", "max_logprob", "argmax_id", "rank")
        return {
            **{name: values[scored] for name, values in own.items()},
            **{name: _joined([getattr(part, name) for part in parts]) for name in measured},
        }
    if kind == "topk":
        return {
            "k": TOPK_ENTRIES,
            "token_id": _joined([part.topk_id for part in parts]),
            "logprob": _joined([part.topk_logprob for part in parts]),
        }
    halves = [part.logits.astype("<f2", copy=False) for part in parts if part.logits is not None]
    return {"vocab_size": vocab_size, "logits": _joined(halves).tobytes()}


def _size(value: object) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    return len(value) if isinstance(value, bytes) else 0


def _joined(arrays: Sequence[npt.NDArray[Any] | None]) -> npt.NDArray[Any]:
    present = [array.reshape(-1) for array in arrays if array is not None]
    return np.concatenate(present) if present else np.empty(0)


def read_statistics(model: TokenizedModel, texts: Sequence[str], paths: DataPaths, kind: Kind = "base") -> pa.Table:
    """The cached rows of ``texts``, each once, in no particular order; texts without a row are absent.

    Joins to texts by ``text_sha256``.
    """
    cache = caches_of(model, paths, (kind,))[kind]
    return cache.read(cache_key(model, text_sha256(text), kind) for text in texts)
