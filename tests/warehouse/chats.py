"""Rows of what a model that answers in words was asked, made up by hand.

What belongs here: rows of the tables of asking, from the few columns that a test is about. What does not: computing any
of them (audit_pipeline/asking), assertions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from audit_pipeline.catalogue.contracts import TABLES, Pair, Side, digest, text_sha256
from audit_pipeline.catalogue.files import table_from_rows, write_table

from .conftest import DAY, Folder

Row = Mapping[str, object]

CHAT = "talker"
"""A model that is in no configuration and has no card, scores or coverage."""
CHAT_PAIR = Pair("shelf", CHAT)
"""Of files that were asked about directly: no benchmark has this name."""
EXCERPT = "the keeper lit the lamp at dusk and wrote the hour in a book that nobody had read for years"


def answer_row(document: str, rung: str = "instruction", *, side: Side = "audited", **changes: object) -> Row:
    """As CHAT_ANSWERS, but for model, benchmark and run: an answer that gives 12 words of passage 0."""
    given = {"passage": 0, "draw": 0, "outcome": "answered", "longest_run": 12, **changes}
    prompt, output = f"go on with {document} by {rung}", f"it goes on with {EXCERPT}"
    measured = given["outcome"] == "answered"
    return {
        **{"document_id": document, "side": side, "document_sha256": text_sha256(document)},
        **{"passage_start": 100, "passage_end": 700, "rung": rung},
        "request_sha256": digest(document, rung, given["passage"], given["draw"]),
        **{"prompt_sha256": text_sha256(prompt), "prompt": prompt},
        **{"output_sha256": text_sha256(output), "output": output, "refusal_phrase": None, "finish_reason": "stop"},
        **{
            "settings": "{}",
            "model_fingerprint": digest("chat", CHAT),
            "answered_by": "talker-2026-03",
            "provider_request_id": None,
            "asked_at": DAY,
        },
        **{"seconds": 1.5, "prompt_tokens": 100, "output_tokens": 50, "cost": 0.0005, "words_in": 50},
        **dict.fromkeys(("words_out", "answer_words", "near_span", "answer_coverage", "passage_coverage", "edits")),
        **dict.fromkeys(("run_start", "run_end", "original_excerpt", "output_excerpt")),
        **({"words_out": 14, "near_span": 0, "run_start": 200, "run_end": 260} if measured else {}),
        **({"original_excerpt": EXCERPT, "output_excerpt": f"{EXCERPT} and more"} if measured else {}),
        **given,
        **({} if measured else {"longest_run": None}),
    }


def document_row(document: str, rung: str = "instruction", *, side: Side = "audited", **changes: object) -> Row:
    """As CHAT_DOCUMENTS, but for model, benchmark and run: one passage, four answers, of which 12 words came back."""
    return {
        **{"document_id": document, "title": document.title(), "side": side, "rung": rung},
        **{"is_headline": rung == "instruction", "passages": 1, "requests": 4, "answered": 4, "refused": 0},
        **{"filtered": 0, "cut": 0, "empty": 0, "words_in": 50.0, "words_out": 14, "longest_run": 12, "near_span": 0},
        **{"coverage_mean": 0.1, "coverage_best": 0.2, "answer_coverage_mean": 0.3, "answer_coverage_best": 0.4},
        **{"near_verbatim": 0, "score": 0.1, "passages_compared": 1},
        **{"n_held_out": None, "p_value": None, "q_bh": None},
        "claim": "not calibrated" if side == "audited" else "not reproduced",
        **changes,
    }


def refused_row(document: str, rung: str = "instruction", *, side: Side = "audited", **changes: object) -> Row:
    """The same of a document about which nothing was answered: three refusals, and one answer that was filtered."""
    nothing = {
        **dict.fromkeys(("words_out", "longest_run", "near_span", "coverage_mean", "coverage_best", "near_verbatim")),
        **dict.fromkeys(("answer_coverage_mean", "answer_coverage_best", "score")),
    }
    outcomes = {"answered": 0, "refused": 3, "filtered": 1, "passages_compared": None, "claim": "refused"}
    return document_row(document, rung, side=side, **{**nothing, **outcomes, **changes})


def write_asking(
    folder: Folder,
    answers: Sequence[Row],
    documents: Sequence[Row] = (),
    *,
    pair: Pair = CHAT_PAIR,
    run_id: str = "run-asked",
    at: datetime = DAY,
) -> None:
    """One run's rows of the two tables, each with its lineage entry."""
    of_run = {"model": pair.model, "benchmark": pair.benchmark, "run_id": run_id}
    for name, rows in (("chat_answers", answers), ("chat_documents", documents)):
        table = table_from_rows([{**of_run, **row} for row in rows], TABLES[name].schema)
        write_table(folder.paths.run_file(name, pair.partition, run_id), table)
        folder.write_lineage(
            name, pair.partition, run_id, at, asset_key="asking", model_fingerprint=digest("chat", pair.model)
        )
