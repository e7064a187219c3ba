"""The tokens that drove the highest scores: at most 50 words of each of the most suspicious texts, for the report."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.detectors.min_k import count_selected, z_scores
from audit_pipeline.detectors.statistics import StatisticsIndex
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.statistics.evaluate_options import PREFERRED, choose_headline_detector
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import EXCERPT_CHARACTERS, EXCERPT_WORDS, HIGHLIGHTS, Pair, text_sha256
from audit_pipeline.token_statistics.cached_texts import collect_lists_by_text, read_statistics

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
    index = StatisticsIndex(table, model.gives)
    places = collect_lists_by_text(table, ("char_start", "char_end"))
    rows = []
    for place, row in enumerate(ranked, start=1):
        context, text = evaluated[row["example_id"]]
        statistics = index.find(context + text, len(context))
        if statistics is None or not len(statistics):
            continue
        # The mean log-likelihood averages every token.
        k = float(json.loads(row["parameters"]).get("k", 1.0)) if detector != "loss" else 1.0
        token_scores = z_scores(statistics) if detector == "min_k_plus_plus" else statistics.logprob.astype(np.float64)
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
