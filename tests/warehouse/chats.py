"""Rows of what a model that answers in words was asked, made up by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from made_rows import make_row

from audit_pipeline.store.files import table_from_rows, write_table
from audit_pipeline.tables import CHAT_ANSWERS, CHAT_DOCUMENTS, Pair, Side, digest, text_sha256

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
        **make_row(CHAT_ANSWERS, document_id=document, side=side, document_sha256=text_sha256(document), rung=rung),
        **{"passage_start": 100, "passage_end": 700, "settings": "{}", "model_fingerprint": digest("chat", CHAT)},
        "request_sha256": digest(document, rung, given["passage"], given["draw"]),
        **{"prompt_sha256": text_sha256(prompt), "prompt": prompt},
        **{"output_sha256": text_sha256(output), "output": output, "finish_reason": "stop"},
        **{"answered_by": "talker-2026-03", "asked_at": DAY, "seconds": 1.5, "cost": 0.0005},
        **{"prompt_tokens": 100, "output_tokens": 50, "words_in": 50},
        **({"words_out": 14, "near_span": 0, "run_start": 200, "run_end": 260} if measured else {}),
        **({"original_excerpt": EXCERPT, "output_excerpt": f"{EXCERPT} and more"} if measured else {}),
        **given,
        **({} if measured else {"longest_run": None}),
    }


def document_row(document: str, rung: str = "instruction", *, side: Side = "audited", **changes: object) -> Row:
    """As CHAT_DOCUMENTS, but for model, benchmark and run: one passage, four answers, of which 12 words came back."""
    return {
        **make_row(CHAT_DOCUMENTS, document_id=document, title=document.title(), side=side, rung=rung),
        **{"is_headline": rung == "instruction", "passages": 1, "requests": 4, "answered": 4},
        **{"words_in": 50.0, "words_out": 14, "longest_run": 12, "near_span": 0},
        **{"coverage_mean": 0.1, "coverage_best": 0.2, "answer_coverage_mean": 0.3, "answer_coverage_best": 0.4},
        **{"near_verbatim": 0, "score": 0.1, "passages_compared": 1},
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
    for table, rows in ((CHAT_ANSWERS, answers), (CHAT_DOCUMENTS, documents)):
        made = table_from_rows([{**row, **of_run} for row in rows], table)
        write_table(folder.paths.run_file(table.name, pair.partition, run_id), made)
        folder.write_lineage(
            table.name, pair.partition, run_id, at, asset_key="asking", model_fingerprint=digest("chat", pair.model)
        )
