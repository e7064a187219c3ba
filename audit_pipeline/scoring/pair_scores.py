"""The passes and scores of a pair of model and benchmark: they are computed and stored for audits and evidence packs.

The table of highlights shows the tokens behind the highest scores. It quotes at most 50 words of each text.
"""

from __future__ import annotations

import bisect
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline import tables
from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.benchmarks.model_inputs import ModelInputs, build_benchmark_inputs, build_template_upstream
from audit_pipeline.detectors.detector_inputs import Spans, StatisticsIndex, TextStatistics
from audit_pipeline.detectors.min_k import compute_z_scores, count_selected
from audit_pipeline.detectors.registry import PLUGIN_PACKAGES, mark_defaults, select_detectors
from audit_pipeline.errors import AuditError, DataError, ModelError, TransientError, UnansweredError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.session import PassesSummary, Session, build_audit_session
from audit_pipeline.statistics.evaluate_options import PREFERRED, choose_headline_detector
from audit_pipeline.store import store
from audit_pipeline.store.files import cast_to_columns, table_from_rows
from audit_pipeline.store.integrity import table_version
from audit_pipeline.store.ledger import LineageStep, record_entry
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.backend import Backend, BackendOf
from audit_pipeline.token_statistics.cached_texts import (
    build_pair_origin,
    collect_lists_by_sha256,
    compute_statistics_version,
    read_statistics,
)
from audit_pipeline.token_statistics.run import Progress

MAX_HIGHLIGHTS = 10

# In scripts without blanks between words a character counts as a word, as in the warehouse's excerpts.
_WORD = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
    r"|[^\s\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)


@dataclass(frozen=True)
class Excerpt:
    """A run of consecutive tokens of a text.

    Attributes:
        pieces: The characters of each token.
        tokens: The positions of the tokens.
    """

    pieces: tuple[str, ...]
    tokens: tuple[int, ...]


def build_highlights(
    scores: pa.Table,
    examples: pa.Table,
    inputs: ModelInputs,
    pair: tables.Pair,
    model: TokenizedModel,
    paths: DataPaths,
) -> pa.Table:
    """Build the highlights: the ten highest scores of the evaluated texts by the headline detector.

    Args:
        scores: The scores of the pair (schema SCORES).
        examples: The examples of the benchmark (schema EXAMPLES).
        inputs: The texts that the model reads for the examples.
        pair: The pair.
        model: The audited model, whose token statistics are read from the cache.
        paths: The data folder.

    Returns:
        A table of schema HIGHLIGHTS. It is empty if the detector has no scores, or if the cache has none of the texts.
    """
    ok = scores.filter(pc.equal(scores["status"], "ok"))
    detector = choose_headline_detector(set(ok["detector"].to_pylist()))
    if detector not in PREFERRED:
        return tables.HIGHLIGHTS.empty_table()
    evaluated: dict[str, tuple[str, Spans | None]] = {}
    for example_id, split, text, scored_spans in zip(
        inputs.example_ids, examples["split"].to_pylist(), inputs.texts, inputs.spans, strict=True
    ):
        if split == "evaluation":
            evaluated[example_id] = (text, scored_spans)
    is_evaluated = pc.is_in(ok["example_id"], pa.array(list(evaluated), pa.string()))
    is_headline = pc.and_(pc.equal(ok["detector"], detector), ok["is_default"])
    candidates = ok.filter(pc.and_(is_headline, is_evaluated))
    order = [("score", "descending"), ("example_id", "ascending")]
    ranked = candidates.sort_by(order).slice(0, MAX_HIGHLIGHTS).to_pylist()
    table = read_statistics(model, [evaluated[row["example_id"]][0] for row in ranked], paths)
    index = StatisticsIndex(table, model.has_statistic)
    spans_by_text = collect_lists_by_sha256(table, ("char_start", "char_end"))
    rows: list[dict[str, object]] = []
    for rank, row in enumerate(ranked, start=1):
        text, scored_spans = evaluated[row["example_id"]]
        statistics = index.find(text, scored_spans)
        if statistics is None or not len(statistics):
            continue
        # The loss has no parameter k. It averages all tokens.
        k = float(json.loads(row["parameters"]).get("k", 1.0)) if detector != "loss" else 1.0
        token_scores = _compute_token_scores(statistics, detector)
        counted = mark_lowest_tokens(token_scores, k)
        token_spans = spans_by_text[tables.text_sha256(text)]
        spans = _locate_in_scored_text(token_spans, scored_spans or [(0, len(text))], statistics.token_ranges)
        excerpt = select_excerpt(statistics.text, spans, counted)
        tokens = np.array(excerpt.tokens, dtype=np.int64)
        rows.append(
            {
                "example_id": row["example_id"],
                "parameters": row["parameters"],
                "score": row["score"],
                "run_id": row["run_id"],
                "model": pair.model,
                "benchmark": pair.benchmark,
                "detector": detector,
                "place": rank,
                "pieces": list(excerpt.pieces),
                "token_scores": token_scores[tokens].tolist(),
                "counted": counted[tokens].tolist(),
                "n_tokens": len(statistics),
            }
        )
    return table_from_rows(rows, tables.HIGHLIGHTS)


def _state_refusals(scores: pa.Table, refusals: Mapping[str, str]) -> pa.Table:
    """Return scores with the reasons for conversations that the chat template refuses.

    Args:
        scores: The scores (schema ``SCORE_COLUMNS``).
        refusals: The reasons by example id.
    """
    if not refusals:
        return scores
    is_refused = pc.is_in(scores["example_id"], pa.array(list(refusals), pa.string()))
    reasons = [refusals.get(example_id) for example_id in scores["example_id"].to_pylist()]
    columns = {
        "status": pc.if_else(is_refused, "not_applicable", scores["status"]),
        "reason": pc.if_else(is_refused, pa.array(reasons, pa.string()), scores["reason"]),
    }
    for name, values in columns.items():
        scores = scores.set_column(scores.column_names.index(name), scores.field(name), values)
    return scores


def _locate_in_scored_text(
    token_spans: Mapping[str, npt.NDArray[Any]],
    scored_spans: Spans,
    token_ranges: Sequence[tuple[int, int]] | None,
) -> list[tuple[int, int]]:
    """Return the start and end of each scored token, in characters of the scored parts joined together.

    Args:
        token_spans: The columns char_start and char_end of all tokens, in characters of the text that the model read.
        scored_spans: The scored parts of this text.
        token_ranges: The tokens of each part, or None if all tokens are scored.
    """
    located: list[tuple[int, int]] = []
    offset = 0
    ranges: Sequence[tuple[int, int] | None] = token_ranges or [None]
    for (start, end), tokens in zip(scored_spans, ranges, strict=True):
        selected = slice(None) if tokens is None else slice(*tokens)
        # A token that crosses the border of a part is cut at the border.
        starts = np.clip(token_spans["char_start"][selected], start, end) - start + offset
        ends = np.clip(token_spans["char_end"][selected], start, end) - start + offset
        located += zip(starts.tolist(), ends.tolist(), strict=True)
        offset += end - start
    return located


def _compute_token_scores(statistics: TextStatistics, detector: str) -> npt.NDArray[np.float64]:
    if detector == "min_k_plus_plus":
        return compute_z_scores(statistics)
    return statistics.logprob.astype(np.float64)


def mark_lowest_tokens(token_scores: npt.NDArray[np.float64], k: float) -> npt.NDArray[np.bool_]:
    """Mark the tokens that a detector's score averages: the share k of n >= 1 tokens with the lowest token scores.

    Returns:
        Boolean array of shape (n,). Of tokens with equal scores, the earlier ones are marked.
    """
    is_lowest = np.zeros(len(token_scores), dtype=np.bool_)
    is_lowest[np.argsort(token_scores, kind="stable")[: count_selected(len(token_scores), k)]] = True
    return is_lowest


def select_excerpt(text: str, spans: Sequence[tuple[int, int]], counted: npt.NDArray[np.bool_]) -> Excerpt:
    """Select at most 50 consecutive words (500 characters) with the most counted tokens.

    Args:
        text: The text.
        spans: The start and end (exclusive) of each token in characters, in order. Characters between two tokens belong
            to the later token.
        counted: The mask of the counted tokens (:func:`mark_lowest_tokens`), boolean, of shape (n_tokens,).

    Returns:
        The excerpt. If several excerpts have the same number of counted tokens, it is the first of them.
    """
    word_starts = [match.start() for match in _WORD.finditer(text)]
    n_words = len(word_starts)
    if not n_words:
        return Excerpt((), ())
    # A token belongs to the word in which it ends.
    word_of_token = [max(0, bisect.bisect_left(word_starts, end) - 1) for _, end in spans]
    counts: npt.NDArray[np.float64] = np.zeros(n_words)
    if len(spans):
        counts = np.asarray(np.bincount(word_of_token, weights=counted, minlength=n_words), dtype=np.float64)
    sums = np.concatenate([[0.0], np.cumsum(counts)])
    candidates = range(max(1, n_words - tables.EXCERPT_WORDS + 1))
    start_word = max(candidates, key=lambda word: (sums[min(n_words, word + tables.EXCERPT_WORDS)] - sums[word], -word))
    end_word = start_word + tables.EXCERPT_WORDS
    tokens = [token for token, word in enumerate(word_of_token) if start_word <= word < end_word]
    pieces: list[str] = []
    excerpt_start = 0 if start_word == 0 else word_starts[start_word]
    piece_start = excerpt_start
    for token in tokens:
        piece_end = max(piece_start, spans[token][1])
        if piece_end - excerpt_start > tables.EXCERPT_CHARACTERS:
            break
        pieces.append(text[piece_start:piece_end])
        piece_start = piece_end
    return Excerpt(tuple(pieces), tuple(tokens[: len(pieces)]))


def run_other_models(
    model: TokenizedModel,
    pairs: Sequence[tables.Pair],
    paths: DataPaths,
    backend_of: BackendOf,
    notify: Callable[[str], None],
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Run the extra passes of other models, such as a reference model, over the texts of a model's pairs.

    Call it once for all pairs of a model, before the first pair is run. Otherwise the models would alternate in memory.
    Pairs that cannot be audited are skipped here. Their own run reports the reason.

    Args:
        model: The audited model.
        pairs: The pairs of the model.
        paths: The data folder.
        backend_of: A function that loads a model.
        notify: A callback that receives the reason if another model could not run. Some detectors then have no scores.
        on_progress: A callback that receives the progress of the passes.

    Raises:
        TransientError: If a hub is unreachable. A later call may succeed.
    """
    session = Session(model, select_detectors(), paths)
    try:
        if session.runs_other_models:
            texts: list[str] = []
            for pair in pairs:
                # The own run of the pair reports the reason.
                with suppress(DataError, ModelError):
                    benchmark = _read_auditable_benchmark(pair, model, paths)
                    texts += build_benchmark_inputs(benchmark, model).distinct_texts
            session.run_other_models(texts, backend_of, on_progress=on_progress)
        problems = session.other_model_problems
    except AuditError as error:
        # Failed requests to a model server have already been repeated, so only hub errors are raised for a later retry.
        if isinstance(error, TransientError) and not isinstance(error, UnansweredError):
            raise
        problems = [str(error)]
    for problem in problems:
        notify(f"{model.entry.name}: detectors that require another model have no scores: {problem}")


def _read_auditable_benchmark(pair: tables.Pair, model: TokenizedModel, paths: DataPaths) -> BuiltBenchmark:
    """Read the benchmark of a pair.

    Raises:
        DataError: If the benchmark is not built, failed its checks, or belongs to another control.
    """
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    control = model.entry.control
    benchmark.require_matching_control(pair.model, control.name if control is not None else None)
    return benchmark


def run_passes(
    pair: tables.Pair,
    model: TokenizedModel,
    paths: DataPaths,
    backend: Callable[[], Backend],
    step: LineageStep,
    *,
    kinds: Sequence[tables.Kind],
    logits_budget: int,
    on_progress: Callable[[Progress], None] | None = None,
) -> PassesSummary:
    """Run the text pass and the extra passes of a pair, and record the token statistics in the ledger.

    Passes of other models are excluded, see :func:`run_other_models`.
    """
    benchmark = _read_auditable_benchmark(pair, model, paths)
    summary = build_audit_session(benchmark, model, paths).run(
        build_benchmark_inputs(benchmark, model).distinct_texts,
        lambda _: backend(),
        kinds=kinds,
        logits_budget=logits_budget,
        on_progress=on_progress,
    )
    record_entry(
        paths,
        step,
        tables.TOKEN_STATISTICS,
        pair,
        data_version=compute_statistics_version(model, benchmark.digest),
        upstream={f"examples/{pair.benchmark}": benchmark.digest, **build_template_upstream(benchmark, model)},
        **build_pair_origin(model, benchmark),
    )
    return summary


SCORES_VERSION = "+".join(("2", *PLUGIN_PACKAGES))
"""The version of the code that computes scores, including the versions of packages that provide detectors.

If it changes, finished pairs are scored again."""


@dataclass(frozen=True)
class ScoreReport:
    """Numbers about the written scores of a pair.

    Attributes:
        rows: Number of rows in the table of scores.
        by_status: Number of rows by status.
        reasons: Number of rows without a score, by reason.
        data_version: The data version of the written table.
        refusals: The number of conversations that the chat template refuses, with the first reason, or None.
    """

    rows: int
    by_status: Mapping[str, int]
    reasons: Mapping[str, int]
    data_version: str
    refusals: str | None = None


def score_and_store_pair(pair: tables.Pair, model: TokenizedModel, paths: DataPaths, step: LineageStep) -> ScoreReport:
    """Score the examples of a benchmark from the cache, and write the scores and highlights with their ledger entries.

    All detectors of an audit score the examples at all settings of their grids. No model runs.

    Raises:
        DataError: If the benchmark failed its checks, or if the cache holds none of its texts.
    """
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    examples = benchmark.examples
    session = build_audit_session(benchmark, model, paths)
    inputs = build_benchmark_inputs(benchmark, model)
    scored = session.score(inputs.example_ids, inputs.texts, inputs.spans)
    table = (
        mark_defaults(_state_refusals(scored, inputs.refusals), session.limit_overrides(benchmark.overrides))
        .append_column("model", pa.repeat(pair.model, len(scored)))
        .append_column("benchmark", pa.repeat(pair.benchmark, len(scored)))
        .append_column("run_id", pa.repeat(step.run_id, len(scored)))
    )
    table = cast_to_columns(table, tables.SCORES)
    version = table_version(table)
    upstream = {
        f"examples/{pair.benchmark}": benchmark.digest,
        f"token_statistics/{pair.partition}": compute_statistics_version(model, benchmark.digest),
        **build_template_upstream(benchmark, model),
    }
    highlights = build_highlights(table, examples, inputs, pair, model, paths)
    origin = build_pair_origin(model, benchmark)
    highlights_upstream = {**upstream, f"scores/{pair.partition}": version}
    store.write(paths, step, tables.HIGHLIGHTS, pair, highlights, upstream=highlights_upstream, **origin)
    # The scores are written last. If they exist, the other tables of this stage exist, too.
    scores_upstream = {**upstream, **session.upstream}
    store.write(paths, step, tables.SCORES, pair, table, data_version=version, upstream=scores_upstream, **origin)
    reasons = Counter(reason for reason in table.column("reason").to_pylist() if reason is not None)
    statuses = Counter(table.column("status").to_pylist())
    return ScoreReport(len(table), statuses, reasons, version, inputs.describe_refusals())
