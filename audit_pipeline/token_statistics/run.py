"""Filling the cache: what is missing, in which order, how far along, and what it would cost.

What belongs here: the loop over batches and its bookkeeping. What does not: tensors (forward.py), files (cache.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from audit_pipeline.catalogue.contracts import BRANCHES, LOGITS, MEASURED, TOKEN_STATISTICS, TOPK, text_sha256
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import BudgetError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.cache import PartCache
from audit_pipeline.token_statistics.encode import TOPK as TOPK_ENTRIES
from audit_pipeline.token_statistics.encode import EncodedText, IntArray, cache_key, encode, window_and_stride
from audit_pipeline.token_statistics.windows import Window, windows_of

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.batches import Done
    from audit_pipeline.token_statistics.forward import ForwardPass, WindowBranches, WindowStatistics

Kind = Literal["base", "topk", "logits", "branches"]
KINDS: Mapping[Kind, pa.Schema] = {
    "base": TOKEN_STATISTICS.schema,
    "topk": TOPK.schema,
    "logits": LOGITS.schema,
    "branches": BRANCHES.schema,
}
DEFAULT_LOGITS_BUDGET = 20 << 30
TOKEN_BUDGET = {"cpu": 1024, "cuda": 32768}
_BASE_BYTES_A_TOKEN = sum(
    field.type.value_type.bit_width // 8 for field in TOKEN_STATISTICS.schema if pa.types.is_list(field.type)
)
# About so many of a text's tokens are not the model's first choice; only an estimate before a run rests on it.
SHARE_WITH_BRANCH = 0.6
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
    branch_tokens: int = 0
    """Tokens of the branches, about: how many tokens have one shows in the pass."""


@dataclass(frozen=True)
class RunSummary:
    """What a run did; ``seconds`` leaves out loading the model.

    ``texts_from_cache`` counts the texts whose own rows were all on disk when the run began, ``texts_computed`` those
    that the model was run on for them. ``texts_branched`` are those that branches were run for, ``branch_tokens`` the
    tokens that this took, the padding included. ``tokens_computed`` are the tokens of the texts that were run for
    either.
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
    texts_branched: int = 0
    branch_tokens: int = 0


def joined(summaries: Sequence[RunSummary]) -> RunSummary:
    """What several runs of one model did together; a text that two of them were given counts twice."""
    counts = {
        name: sum(getattr(one, name) for one in summaries)
        for name in (
            *("texts", "texts_from_cache", "texts_computed", "texts_without_tokens", "tokens_computed", "passes"),
            *("seconds", "texts_branched", "branch_tokens"),
        )
    }
    return RunSummary(
        **counts,
        tokens_per_second=counts["tokens_computed"] / counts["seconds"] if counts["tokens_computed"] else 0.0,
        unreadable_parts=tuple(dict.fromkeys(part for one in summaries for part in one.unreadable_parts)),
    )


@dataclass
class Prepared:
    """The distinct texts that miss a row of some kind, encoded."""

    keys: dict[str, dict[Kind, str]]
    encoded: list[EncodedText]
    missing: list[frozenset[Kind]]
    windows: list[Window] = field(default_factory=list)

    def wants_pass(self, text: int) -> bool:
        """Whether the text's own statistics are missing, in whatever form."""
        return bool(self.missing[text] - {"branches"})

    def wants_branches(self, text: int) -> bool:
        return "branches" in self.missing[text]


class Caches:
    """The part caches under ``paths``, kept open for several runs in a row: each part is looked through once, and small
    parts are merged when all runs are done."""

    def __init__(self, paths: DataPaths) -> None:
        self.paths = paths
        self._open: dict[tuple[Kind, str], PartCache] = {}

    def of(self, model: TokenizedModel, kind: Kind) -> PartCache:
        """The part cache of ``kind`` for this model."""
        place = kind, model.identity.model_fingerprint
        if place not in self._open:
            self._open[place] = PartCache(self.paths.token_statistics(*place), KINDS[kind])
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


def _kinds(kinds: Sequence[Kind], steps: int) -> tuple[Kind, ...]:
    return (*kinds, "branches") if steps else tuple(kinds)


def _prepare(model: TokenizedModel, texts: Sequence[str], caches: Mapping[Kind, PartCache], steps: int) -> Prepared:
    distinct = {text_sha256(text): text for text in texts}
    keys = {sha256: {kind: cache_key(model, sha256, kind, steps) for kind in caches} for sha256 in distinct}
    on_disk = {
        kind: cache.known(own[kind] for own in keys.values()) for kind, cache in caches.items() if kind != "branches"
    }
    branched = _Branched(model, caches["branches"], steps, distinct) if "branches" in caches else None
    to_encode: list[str] = []
    missing: list[frozenset[Kind]] = []
    for sha256, text in distinct.items():
        lacking: set[Kind] = {kind for kind, known in on_disk.items() if keys[sha256][kind] not in known}
        if branched is not None and branched.best(sha256) is None:
            lacking.add("branches")
        if lacking:
            to_encode.append(text)
            missing.append(frozenset(lacking))
    encoded = encode(model, to_encode)
    window, stride = window_and_stride(model)
    windows = [part for number, text in enumerate(encoded) for part in windows_of(number, text, window, stride)]
    return Prepared(keys, encoded, missing, windows)


class _Branched:
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


def _bytes_to_write(model: TokenizedModel, prepared: Prepared, steps: int) -> dict[Kind, int]:
    a_token: dict[Kind, int] = {
        "base": _BASE_BYTES_A_TOKEN,
        "topk": 8 * TOPK_ENTRIES,
        "logits": 2 * model.vocab_size,
        "branches": 4 + round(8 * steps * SHARE_WITH_BRANCH),
    }
    totals: dict[Kind, int] = {}
    for text, lacking in zip(prepared.encoded, prepared.missing, strict=True):
        for kind in lacking:
            totals[kind] = totals.get(kind, 0) + a_token[kind] * text.n_scored
    return totals


def plan(
    model: TokenizedModel,
    texts: Sequence[str],
    where: Where,
    kinds: Sequence[Kind] = ("base",),
    branch_steps: int = 0,
) -> Plan:
    """What :func:`compute` would run for ``texts``; needs the tokenizer only."""
    prepared = _prepare(model, texts, caches_of(model, where, _kinds(kinds, branch_steps)), branch_steps)
    branched = sum(text.n_scored for number, text in enumerate(prepared.encoded) if prepared.wants_branches(number))
    return Plan(
        texts=len(texts),
        distinct_texts=len(prepared.keys),
        cached_texts=len(prepared.keys) - len(prepared.encoded),
        texts_to_run=len(prepared.encoded),
        tokens_to_run=sum(window.length for window in prepared.windows),
        passes=len(prepared.windows),
        bytes_to_write=_bytes_to_write(model, prepared, branch_steps),
        branch_tokens=round(SHARE_WITH_BRANCH * branch_steps * branched),
    )


def compute(
    model: TokenizedModel,
    texts: Sequence[str],
    where: Where,
    forward: Callable[[], ForwardPass],
    *,
    kinds: Sequence[Kind] = ("base",),
    branch_steps: int = 0,
    logits_budget: int = DEFAULT_LOGITS_BUDGET,
    token_budget: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunSummary:
    """Run the model once over every text that has no row yet, and write the rows as they come.

    ``forward`` is called only if there is something to run. With ``branch_steps`` the branches of so many tokens are
    brought up to date too (a text that has longer ones needs none); where only they are missing, the text itself is run
    for its keys and values alone, and its modes are taken from the cache. ``logits_budget`` bounds the bytes of full
    logits that the run may add (uncompressed float16); more raises BudgetError before anything runs. Text without a
    scored token gets an empty row, so that detectors can say why they give no score.
    """
    caches = caches_of(model, where, _kinds(kinds, branch_steps))
    prepared = _prepare(model, texts, caches, branch_steps)
    logits_bytes = _bytes_to_write(model, prepared, branch_steps).get("logits", 0)
    if logits_bytes > logits_budget:
        raise BudgetError(
            f"full logits of these texts take {logits_bytes / 1e9:.1f} GB, the budget is {logits_budget / 1e9:.1f} GB: "
            "raise the budget, audit fewer texts, or leave the kind 'logits' out"
        )
    writer = _Writer(model, prepared, caches, branch_steps)
    modes = _modes(model, texts, where, prepared) if branch_steps else {}
    writer.add_empty()
    ready = forward() if prepared.windows else None
    branch_tokens_before = ready.branch_tokens_run if ready is not None else 0
    started = time.perf_counter()
    if ready is not None:
        _run(prepared, ready, writer, modes, branch_steps, token_budget, on_progress)
    for cache in caches.values():
        cache.flush()
        if not isinstance(where, Caches):
            cache.compact()
    seconds = time.perf_counter() - started
    tokens = sum(window.length for window in prepared.windows)
    return RunSummary(
        texts=len(texts),
        texts_from_cache=len(prepared.keys) - sum(map(prepared.wants_pass, range(len(prepared.encoded)))),
        texts_computed=sum(1 for number in _with_tokens(prepared) if prepared.wants_pass(number)),
        texts_without_tokens=sum(1 for text in prepared.encoded if not text.n_scored),
        tokens_computed=tokens,
        passes=len(prepared.windows),
        seconds=seconds,
        tokens_per_second=tokens / seconds if tokens else 0.0,
        unreadable_parts=tuple(str(path) for cache in caches.values() for path in cache.unreadable),
        texts_branched=sum(1 for number in _with_tokens(prepared) if prepared.wants_branches(number)),
        branch_tokens=ready.branch_tokens_run - branch_tokens_before if ready is not None else 0,
    )


def _with_tokens(prepared: Prepared) -> list[int]:
    return [number for number, text in enumerate(prepared.encoded) if text.n_scored]


def _modes(model: TokenizedModel, texts: Sequence[str], where: Where, prepared: Prepared) -> Mapping[int, IntArray]:
    """The cached modes of every scored token, by text number, of the texts whose own statistics are there."""
    numbers = {
        text.text_sha256: number
        for number, text in enumerate(prepared.encoded)
        if "base" not in prepared.missing[number] and prepared.wants_branches(number)
    }
    wanted = [text for text in dict.fromkeys(texts) if text_sha256(text) in numbers]
    modes: dict[int, IntArray] = {}
    for batch in read_statistics(model, wanted, where).to_batches():
        column = batch.column("argmax_id")
        values, ends = column.values.to_numpy(), column.offsets.to_numpy()
        for row, sha256 in enumerate(batch.column("text_sha256").to_pylist()):
            modes[numbers[sha256]] = np.asarray(values[ends[row] : ends[row + 1]], dtype=np.int32)
    return modes


def _run(
    prepared: Prepared,
    forward: ForwardPass,
    writer: _Writer,
    modes: Mapping[int, IntArray],
    steps: int,
    token_budget: int | None,
    on_progress: Callable[[Progress], None] | None,
) -> None:
    # Imported where a model is run: a command that finds everything cached needs no torch.
    from audit_pipeline.token_statistics.batches import Job, run_batches  # noqa: PLC0415

    budget = token_budget or TOKEN_BUDGET[forward.device.type]
    wanted = frozenset().union(*prepared.missing)
    job = Job(forward, prepared.encoded, modes, steps, "topk" in wanted, "logits" in wanted)
    tokens_total = sum(window.length for window in prepared.windows)
    texts_total = len({window.text for window in prepared.windows})
    tokens_done = 0
    started = last_told = time.perf_counter()
    try:
        for batch in run_batches(job, prepared, budget):
            for done in batch:
                writer.add(done)
            tokens_done += sum(done.window.length for done in batch)
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


class _Writer:
    """Collects the windows of each text and hands finished rows to the caches."""

    def __init__(self, model: TokenizedModel, prepared: Prepared, caches: Mapping[Kind, PartCache], steps: int) -> None:
        self.texts_done = 0
        self._steps = steps
        self._model = model
        self._prepared = prepared
        self._caches = caches
        self._parts: dict[int, list[Done]] = {}
        self._expected: dict[int, int] = {}
        for window in prepared.windows:
            self._expected[window.text] = self._expected.get(window.text, 0) + 1

    def add_empty(self) -> None:
        """Rows for texts without a scored token."""
        for number, text in enumerate(self._prepared.encoded):
            if not text.n_scored:
                self._finish(number, [])

    def add(self, done: Done) -> None:
        number = done.window.text
        parts = self._parts.setdefault(number, [])
        parts.append(done)
        if len(parts) == self._expected[number]:
            self._finish(number, sorted(self._parts.pop(number), key=lambda part: part.window.begin))
            self.texts_done += 1

    def flush(self) -> None:
        for cache in self._caches.values():
            cache.flush()

    def _finish(self, number: int, parts: Sequence[Done]) -> None:
        text = self._prepared.encoded[number]
        own = [part.statistics for part in parts if part.statistics is not None]
        branches = [part.branches for part in parts if part.branches is not None]
        for kind in sorted(self._prepared.missing[number]):
            columns = (
                _branch_columns(branches, self._steps)
                if kind == "branches"
                else _columns(kind, text, own, self._model.vocab_size)
            )
            key = self._prepared.keys[text.text_sha256][kind]
            row = {"key": key, "text_sha256": text.text_sha256, **columns}
            self._caches[kind].add(row, sum(_size(value) for value in row.values()))


def _branch_columns(parts: Sequence[WindowBranches], steps: int) -> dict[str, object]:
    lengths = _joined([part.lengths for part in parts])
    return {
        "m": steps,
        "offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        "logprob": _joined([part.logprob for part in parts]),
        "z": _joined([part.z for part in parts]),
    }


def _columns(kind: Kind, text: EncodedText, parts: Sequence[WindowStatistics], vocab_size: int) -> dict[str, object]:
    scored = slice(text.first_scored, None)
    if kind == "base":
        own = {"token_id": text.token_id, "char_start": text.char_start, "char_end": text.char_end}
        return {
            **{name: values[scored] for name, values in own.items()},
            **{name: _joined([part.values[name] for part in parts]) for name in (one.name for one in MEASURED)},
        }
    if kind == "topk":
        return {
            "k": TOPK_ENTRIES,
            "token_id": _joined([part.values["topk_id"] for part in parts]),
            "logprob": _joined([part.values["topk_logprob"] for part in parts]),
        }
    halves = [part.values["logits"].astype("<f2", copy=False) for part in parts]
    return {"vocab_size": vocab_size, "logits": _joined(halves).tobytes()}


def _size(value: object) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    return len(value) if isinstance(value, bytes) else 0


def _joined(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate([array.reshape(-1) for array in arrays]) if arrays else np.empty(0)


def read_statistics(model: TokenizedModel, texts: Sequence[str], where: Where, kind: Kind = "base") -> pa.Table:
    """The cached rows of ``texts``, each once, in no particular order; texts without a row are absent.

    Joins to texts by ``text_sha256``.
    """
    cache = caches_of(model, where, (kind,))[kind]
    return cache.read(cache_key(model, text_sha256(text), kind) for text in texts)


def read_branches(model: TokenizedModel, texts: Sequence[str], where: Where, steps: int) -> pa.Table:
    """The cached branches of ``texts`` of at least ``steps`` tokens, one row a text, in no particular order."""
    cache = caches_of(model, where, ("branches",))["branches"]
    distinct = dict.fromkeys(map(text_sha256, texts))
    branched = _Branched(model, cache, steps, distinct)
    keys = map(branched.best, distinct)
    return cache.read(key for key in keys if key is not None)
