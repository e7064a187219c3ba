"""The passes and the scores of a model on a benchmark, as they are kept: what audits and packs make of a pair.

With them the tokens that drove the highest scores: at most 50 words of each of the most suspicious texts, for the
report.
"""

from __future__ import annotations

import bisect
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.detectors.detector_inputs import StatisticsIndex
from audit_pipeline.detectors.min_k import compute_z_scores, count_selected
from audit_pipeline.detectors.registry import PLUGIN_PACKAGES, mark_defaults, select
from audit_pipeline.errors import AuditError, DataError, TransientError, UnansweredError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.session import PassesSummary, Session, build_audit_session
from audit_pipeline.statistics.evaluate_options import PREFERRED, choose_headline_detector
from audit_pipeline.store import store
from audit_pipeline.store.files import cast_to_columns, table_from_rows
from audit_pipeline.store.ledger import LineageStep, record_entry
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.versions import table_version
from audit_pipeline.tables import (
    EXCERPT_CHARACTERS,
    EXCERPT_WORDS,
    HIGHLIGHTS,
    SCORES,
    TOKEN_STATISTICS,
    Kind,
    Pair,
    text_sha256,
)
from audit_pipeline.token_statistics.backend import Backend, BackendOf
from audit_pipeline.token_statistics.cached_texts import collect_lists_by_text, read_statistics
from audit_pipeline.token_statistics.pair_origin import build_pair_origin, compute_statistics_version
from audit_pipeline.token_statistics.run import Progress

MOST_TEXTS = 10
_READ = ["example_id", "text", "context"]

# A character of a script without blanks between words counts as a word, as in the warehouse's excerpts.
_WORD = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
    r"|[^\s\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)


@dataclass(frozen=True)
class Excerpt:
    """A run of a text's tokens: ``pieces`` of the text, and which tokens (positions) they are."""

    pieces: tuple[str, ...]
    tokens: tuple[int, ...]


def build_highlights(
    scores: pa.Table, examples: pa.Table, pair: Pair, model: TokenizedModel, paths: DataPaths
) -> pa.Table:
    """The ten highest scores of the evaluated texts by the headline detector (schema HIGHLIGHTS).

    ``scores`` (schema SCORES) are the pair's; the token statistics are read from the cache. No row where that detector
    has no score, or where none of the texts is in the cache any more.
    """
    ok = scores.filter(pc.equal(scores["status"], "ok"))
    detector = choose_headline_detector(set(ok["detector"].to_pylist()))
    if detector not in PREFERRED:
        return HIGHLIGHTS.empty_table()
    evaluated = {
        row["example_id"]: ((row["context"] or ""), row["text"])
        for row in examples.filter(pc.equal(examples["split"], "evaluation")).select(_READ).to_pylist()
    }
    is_shown = pc.is_in(ok["example_id"], pa.array(list(evaluated), pa.string()))
    own = ok.filter(pc.and_(pc.and_(pc.equal(ok["detector"], detector), ok["is_default"]), is_shown))
    ranked = own.sort_by([("score", "descending"), ("example_id", "ascending")]).slice(0, MOST_TEXTS).to_pylist()
    table = read_statistics(model, ["".join(evaluated[row["example_id"]]) for row in ranked], paths)
    index = StatisticsIndex(table, model.has_statistic)
    places = collect_lists_by_text(table, ("char_start", "char_end"))
    rows = []
    for place, row in enumerate(ranked, start=1):
        context, text = evaluated[row["example_id"]]
        statistics = index.find(context + text, len(context))
        if statistics is None or not len(statistics):
            continue
        # The mean log-likelihood averages every token.
        k = float(json.loads(row["parameters"]).get("k", 1.0)) if detector != "loss" else 1.0
        token_scores = (
            compute_z_scores(statistics) if detector == "min_k_plus_plus" else statistics.logprob.astype(np.float64)
        )
        counted = mark_lowest_tokens(token_scores, k)
        of_text = places[text_sha256(context + text)].values()
        first, last = (np.maximum(ends[-len(statistics) :] - len(context), 0).tolist() for ends in of_text)
        shown = select_excerpt(text, list(zip(first, last, strict=True)), counted)
        rows.append(
            {
                **{name: row[name] for name in ("example_id", "parameters", "score", "run_id")},
                "model": pair.model,
                "benchmark": pair.benchmark,
                "detector": detector,
                "place": place,
                "pieces": list(shown.pieces),
                "token_scores": [float(token_scores[token]) for token in shown.tokens],
                "counted": [bool(counted[token]) for token in shown.tokens],
                "n_tokens": len(statistics),
            }
        )
    return table_from_rows(rows, HIGHLIGHTS)


def mark_lowest_tokens(token_scores: npt.NDArray[np.float64], k: float) -> npt.NDArray[np.bool_]:
    """Which of n >= 1 tokens are the lowest k% that a score averages: [n]; of equal ones the first."""
    chosen = np.zeros(len(token_scores), dtype=np.bool_)
    chosen[np.argsort(token_scores, kind="stable")[: count_selected(len(token_scores), k)]] = True
    return chosen


def select_excerpt(text: str, spans: Sequence[tuple[int, int]], counted: npt.NDArray[np.bool_]) -> Excerpt:
    """At most 50 words, and 500 characters, in a row of ``text``: those with the most ``counted`` tokens.

    ``spans`` are the first character and one past the last of each of n tokens, in order; what is between two
    tokens goes with the second. Of equal stretches the first is taken.
    """
    words = [found.span() for found in _WORD.finditer(text)]
    if not words:
        return Excerpt((), ())
    starts = [start for start, _ in words]
    # The word that each token ends in.
    word_of = [max(0, bisect.bisect_left(starts, end) - 1) for _, end in spans]
    first_words = range(max(1, len(words) - EXCERPT_WORDS + 1))
    per_word = np.bincount(word_of, weights=counted, minlength=len(words)) if len(spans) else np.zeros(len(words))
    sums = np.concatenate([[0.0], np.cumsum(per_word)])
    first = max(first_words, key=lambda word: (sums[min(len(words), word + EXCERPT_WORDS)] - sums[word], -word))
    tokens = [token for token, word in enumerate(word_of) if first <= word < first + EXCERPT_WORDS]
    pieces: list[str] = []
    start = place = 0 if first == 0 else words[first][0]
    for token in tokens:
        end = max(place, spans[token][1])
        if end - start > EXCERPT_CHARACTERS:
            break
        pieces.append(text[place:end])
        place = end
    return Excerpt(tuple(pieces), tuple(tokens[: len(pieces)]))


def run_other_models(
    model: TokenizedModel,
    pairs: Sequence[Pair],
    paths: DataPaths,
    backend_of: BackendOf,
    notify: Callable[[str], None],
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Run what audits need of other models than the audited one (a reference model) over the texts of its pairs.

    To be called once for all pairs of a model, before the first is run: the models would take turns otherwise. Pairs
    that cannot be audited are left to their own run to tell. ``notify`` is called with the reason where something could
    not be run: some detectors go without then. Raises TransientError where a hub could not be reached: it may be
    reached later.
    """
    session = Session(model, select(), paths)
    try:
        if session.runs_other_models:
            texts: list[str] = []
            for pair in pairs:
                with suppress(DataError):
                    texts += _read_auditable_benchmark(pair, model, paths).model_inputs
            session.run_other_models(texts, backend_of, on_progress=on_progress)
        problems = session.other_model_problems
    except AuditError as error:
        # A server of a model was asked patiently by then; a hub is tried again.
        if isinstance(error, TransientError) and not isinstance(error, UnansweredError):
            raise
        problems = [str(error)]
    for problem in problems:
        notify(f"{model.entry.name}: detectors that need another model are not computed: {problem}")


def _read_auditable_benchmark(pair: Pair, model: TokenizedModel, paths: DataPaths) -> BuiltBenchmark:
    """The pair's benchmark; raises DataError where it is not built, is not fit, or is another control's."""
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    benchmark.require_matching_control(
        pair.model, model.entry.control.name if model.entry.control is not None else None
    )
    return benchmark


def run_passes(
    pair: Pair,
    model: TokenizedModel,
    paths: DataPaths,
    backend: Callable[[], Backend],
    step: LineageStep,
    *,
    kinds: Sequence[Kind],
    logits_budget: int,
    on_progress: Callable[[Progress], None] | None = None,
) -> PassesSummary:
    """Bring the caches of token statistics up to the benchmark's texts, and to what detectors need besides.

    Passes of other models are not among them: see :func:`run_other_models`.
    """
    benchmark = _read_auditable_benchmark(pair, model, paths)
    summary = build_audit_session(benchmark, model, paths).run(
        benchmark.model_inputs, lambda _: backend(), kinds=kinds, logits_budget=logits_budget, on_progress=on_progress
    )
    record_entry(
        paths,
        step,
        TOKEN_STATISTICS,
        pair,
        data_version=compute_statistics_version(model, benchmark.digest),
        upstream={f"examples/{pair.benchmark}": benchmark.digest},
        **build_pair_origin(model, benchmark),
    )
    return summary


SCORES_VERSION = "+".join(("2", *PLUGIN_PACKAGES))
"""Of the code that makes the scores, the packages that bring detectors among it: where it changes, pairs that are done
are done again."""


@dataclass(frozen=True)
class ScoreReport:
    """How many scores of each status were written for a pair."""

    rows: int
    by_status: Mapping[str, int]
    reasons: Mapping[str, int]
    data_version: str


def score_pair(pair: Pair, model: TokenizedModel, paths: DataPaths, step: LineageStep) -> ScoreReport:
    """Score a benchmark's examples with every detector, at every setting of its grid, from the cache.

    Raises DataError where the benchmark is not fit to be audited, or the model has been run on none of its texts.
    """
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    examples = benchmark.examples
    session = build_audit_session(benchmark, model, paths)
    ids, texts = examples.column("example_id").to_pylist(), examples.column("text").to_pylist()
    scored = session.score(ids, texts, benchmark.contexts)
    table = (
        mark_defaults(scored, session.limit_overrides(benchmark.overrides))
        .append_column("model", pa.repeat(pair.model, len(scored)))
        .append_column("benchmark", pa.repeat(pair.benchmark, len(scored)))
        .append_column("run_id", pa.repeat(step.run_id, len(scored)))
    )
    table = cast_to_columns(table, SCORES)
    version = table_version(table)
    upstream = {
        f"examples/{pair.benchmark}": benchmark.digest,
        f"token_statistics/{pair.partition}": compute_statistics_version(model, benchmark.digest),
    }
    highlighted = build_highlights(table, examples, pair, model, paths)
    origin = build_pair_origin(model, benchmark)
    from_scores = {**upstream, f"scores/{pair.partition}": version}
    store.write(paths, step, HIGHLIGHTS, pair, highlighted, upstream=from_scores, **origin)
    # Last: where they are, everything is that later stages read.
    from_needs = {**upstream, **session.upstream}
    store.write(paths, step, SCORES, pair, table, data_version=version, upstream=from_needs, **origin)
    reasons = Counter(reason for reason in table.column("reason").to_pylist() if reason is not None)
    return ScoreReport(len(table), Counter(table.column("status").to_pylist()), reasons, version)
