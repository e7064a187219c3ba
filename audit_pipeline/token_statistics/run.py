"""Runs that fill the cache: the loop over batches, and its progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import Any

from audit_pipeline.errors import BudgetError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.tables import KINDS, Kind, text_sha256
from audit_pipeline.token_statistics import cached_texts
from audit_pipeline.token_statistics.backend import Backend, Work
from audit_pipeline.token_statistics.rows import RowWriter
from audit_pipeline.token_statistics.tokens import IntArray

DEFAULT_LOGITS_BUDGET = 20 << 30
_PROGRESS_SECONDS = 1.0


@dataclass(frozen=True)
class Phase:
    """One of several passes over the same texts: pass ``step`` of ``steps``, counted from 1, and its name."""

    step: int
    steps: int
    name: str


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes:
        texts_done: Number of finished texts.
        texts_total: Number of texts.
        tokens_done: Number of finished tokens.
        tokens_total: Number of tokens.
        seconds: Time since the first batch.
        phase: The current pass of several, or None.
    """

    texts_done: int
    texts_total: int
    tokens_done: int
    tokens_total: int
    seconds: float
    phase: Phase | None = None

    @property
    def tokens_per_second(self) -> float:
        """Return the speed so far."""
        if self.seconds <= 0:
            return 0.0
        return self.tokens_done / self.seconds


@dataclass(frozen=True)
class RunSummary:
    """The result of a run.

    Attributes:
        texts: Number of texts.
        texts_from_cache: Number of texts whose own rows were all on disk before.
        texts_computed: Number of texts that the model ran on for their own rows.
        texts_without_tokens: Number of texts without a scored token.
        tokens_computed: Number of tokens of texts that ran for own rows or branches.
        passes: Number of windows.
        seconds: Time without loading the model.
        unreadable_parts: Damaged parts of the cache, which were renamed.
        texts_branched: Number of texts whose branches ran.
        branch_tokens: Number of tokens of these branches, including padding.
        texts_from_logits: Number of the texts in ``texts_from_cache`` with rows that were computed from cached logits.
    """

    texts: int
    texts_from_cache: int
    texts_computed: int
    texts_without_tokens: int
    tokens_computed: int
    passes: int
    seconds: float
    unreadable_parts: tuple[str, ...]
    texts_branched: int = 0
    branch_tokens: int = 0
    texts_from_logits: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Return the speed of the run."""
        if not self.tokens_computed:
            return 0.0
        return self.tokens_computed / self.seconds


def join_summaries(summaries: Sequence[RunSummary]) -> RunSummary:
    """Return the sum of several runs of one model. A text of two runs counts twice."""
    totals: dict[str, Any] = {}
    for field in fields(RunSummary):
        if field.name != "unreadable_parts":
            totals[field.name] = sum(getattr(summary, field.name) for summary in summaries)
    unreadable: dict[str, None] = {}
    for summary in summaries:
        unreadable |= dict.fromkeys(summary.unreadable_parts)
    return RunSummary(**totals, unreadable_parts=tuple(unreadable))


def compute(
    model: TokenizedModel,
    texts: Sequence[str],
    location: cached_texts.CacheLocation,
    backend: Callable[[], Backend],
    *,
    kinds: Sequence[Kind] = ("base",),
    extra_kinds: Sequence[Kind] = (),
    branch_steps: int = 0,
    logits_budget: int = DEFAULT_LOGITS_BUDGET,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunSummary:
    """Run the model on all texts that miss a row, and write the rows as they arrive.

    Rows that cached logits can give (CachedKind.is_from_logits) are computed from them without a pass. A text without a
    scored token gets an empty row, so that detectors can give the reason for a missing score.

    Args:
        model: The model.
        texts: The texts.
        location: Location of the cache.
        backend: Function that loads the model. It is called only if something must run.
        kinds: Kinds of rows to fill.
        extra_kinds: Kinds that a text receives only if it runs for another kind.
        branch_steps: Number of tokens per branch, or 0. Longer cached branches suffice. If only branches are missing,
            the text runs for its keys and values alone, and its argmax tokens come from the cache.
        logits_budget: Maximum size of new full logits in bytes, as uncompressed float16.
        on_progress: Function that receives the progress.

    Raises:
        BudgetError: If the full logits exceed the budget. Nothing has run then.
        ModelError: If the model's back end cannot give a kind.
    """
    wanted = cached_texts.add_branches_kind([*kinds, *extra_kinds], branch_steps)
    cached_texts.require_kinds(model, wanted)
    caches = cached_texts.open_caches(location)
    prepared = cached_texts.prepare(model, texts, caches, wanted, branch_steps, extra_kinds)
    logits_bytes = cached_texts.estimate_bytes_to_write(model, prepared, branch_steps).get("logits", 0)
    if logits_bytes > logits_budget:
        raise BudgetError(
            f"full logits of these texts take {logits_bytes / 1e9:.1f} GB, but the budget is {logits_budget / 1e9:.1f} "
            "GB. Raise the budget, audit fewer texts, or remove the kind 'logits'."
        )
    reduced = _reduce_cached_logits(model, prepared, caches, on_progress)
    prepared = prepared.without_logit_rows(reduced)
    modes: Mapping[int, IntArray] = {}
    if branch_steps:
        modes = _read_modes(model, texts, caches, prepared)
    summary = run_prepared(
        model, prepared, caches, backend, modes=modes, branch_steps=branch_steps, on_progress=on_progress
    )
    return replace(summary, texts=len(texts), texts_from_logits=len(reduced))


def _reduce_cached_logits(
    model: TokenizedModel,
    prepared: cached_texts.Prepared,
    caches: cached_texts.Caches,
    on_progress: Callable[[Progress], None] | None,
) -> Collection[int]:
    """Fill rows from cached logits, and return the numbers of the filled texts."""
    texts = cached_texts.find_texts_with_logits(model, prepared, caches.of(model, "logits"))
    if not texts:
        return ()
    # This import loads torch, which a command with a complete cache does not need.
    from audit_pipeline.token_statistics.cached_logits import fill_rows_from_logits  # noqa: PLC0415

    report = _make_progress_callback(
        on_progress, len(texts), sum(prepared.encoded[number].n_scored for number in texts.values())
    )
    return fill_rows_from_logits(model, prepared, texts, caches, report)


def run_prepared(
    model: TokenizedModel,
    prepared: cached_texts.Prepared,
    caches: cached_texts.Caches,
    backend: Callable[[], Backend],
    *,
    modes: Mapping[int, IntArray] | None = None,
    branch_steps: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunSummary:
    """Run the model on prepared texts, and write the rows to ``caches`` as they arrive.

    Args:
        model: The model.
        prepared: The texts and their windows.
        caches: Caches of the model.
        backend: Function that loads the model. It is called only if something must run.
        modes: Cached argmax tokens of texts that run for branches alone, by text number.
        branch_steps: Number of tokens per branch, or 0.
        on_progress: Function that receives the progress.
    """
    writer = RowWriter(model, prepared, caches, branch_steps)
    writer.add_empty()
    ready = backend() if prepared.windows else None
    branch_tokens_before = ready.branch_tokens_run if ready is not None else 0
    tokens = sum(window.length for window in prepared.windows)
    started = time.perf_counter()
    if ready is not None:
        wanted: set[str] = set()
        for kind in frozenset().union(*prepared.missing):
            wanted.update(filter(model.has_statistic, KINDS[kind].statistics))
        tokens_done = 0
        report = _make_progress_callback(on_progress, len({window.text for window in prepared.windows}), tokens)

        def await_writing(writing: Future[int]) -> None:
            nonlocal tokens_done
            tokens_done += writing.result()
            report(writer.texts_done, tokens_done)

        work = Work(prepared, wanted, branch_steps, modes or {})
        writing: Future[int] | None = None
        with writer.flush_on_error(), ThreadPoolExecutor(1) as thread, closing(ready.run_work(work)) as batches:
            # The rows of a batch are written while the next one is computed.
            for batch in batches:
                previous_writing = writing
                writing = thread.submit(writer.add, batch)
                if previous_writing is not None:
                    await_writing(previous_writing)
            if writing is not None:
                await_writing(writing)
    caches.flush()
    seconds = time.perf_counter() - started
    with_tokens = [number for number, text in enumerate(prepared.encoded) if text.n_scored]
    return RunSummary(
        texts=prepared.distinct,
        texts_from_cache=prepared.distinct - sum(map(prepared.wants_pass, range(len(prepared.encoded)))),
        texts_computed=sum(map(prepared.wants_pass, with_tokens)),
        texts_without_tokens=len(prepared.encoded) - len(with_tokens),
        tokens_computed=tokens,
        passes=len(prepared.windows),
        seconds=seconds,
        unreadable_parts=caches.unreadable,
        texts_branched=sum(map(prepared.wants_branches, with_tokens)),
        branch_tokens=ready.branch_tokens_run - branch_tokens_before if ready is not None else 0,
    )


def _read_modes(
    model: TokenizedModel, texts: Sequence[str], caches: cached_texts.Caches, prepared: cached_texts.Prepared
) -> Mapping[int, IntArray]:
    """Return the cached argmax tokens of texts that miss only branches, by text number."""
    numbers: dict[str, int] = {}
    for number, text in enumerate(prepared.encoded):
        if "base" not in prepared.missing[number] and prepared.wants_branches(number):
            numbers[text.text_sha256] = number
    branched = [text for text in dict.fromkeys(texts) if text_sha256(text) in numbers]
    cached = cached_texts.collect_lists_by_sha256(cached_texts.read_statistics(model, branched, caches), ["argmax_id"])
    return {numbers[sha256]: own["argmax_id"] for sha256, own in cached.items()}


def _make_progress_callback(
    on_progress: Callable[[Progress], None] | None, texts_total: int, tokens_total: int
) -> Callable[[int, int], None]:
    """Return a callback that receives the numbers of finished texts and tokens.

    It calls ``on_progress`` at most once per second, and at the end.
    """
    started = last_report = time.perf_counter()

    def report(texts_done: int, tokens_done: int) -> None:
        nonlocal last_report
        now = time.perf_counter()
        if on_progress and (now - last_report >= _PROGRESS_SECONDS or tokens_done == tokens_total):
            last_report = now
            on_progress(Progress(texts_done, texts_total, tokens_done, tokens_total, now - started))

    return report
