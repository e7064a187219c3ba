"""Rows of requests to a chat model about documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from made_data_folder import DAY, Folder
from made_rows import make_row

from audit_pipeline.tables import CHAT_ANSWERS, CHAT_DOCUMENTS, Pair, digest, text_sha256

Row = Mapping[str, Any]

CHAT = "talker"
"""A model without an entry in the configuration, without a card, scores and coverage."""
CHAT_PAIR = Pair("shelf", CHAT)
"""The pair of files that were asked about directly. No benchmark has this name."""
EXCERPT = "the keeper lit the lamp at dusk and wrote the hour in a book that nobody had read for years"


def answer_row(document: str, rung: str = "instruction", *, side: str = "audited", **changes: Any) -> Row:
    """Return a row of chat_answers: an answer with 12 words of passage 0, unless its outcome is another."""
    output = f"it goes on with {EXCERPT}"
    row = {"document_id": document, "rung": rung, "side": side, "passage": 0, "outcome": "answered", **changes}
    row = {
        **{"request_sha256": digest(document, rung, row["passage"], row.get("draw", 0)), "prompt_sha256": "made up"},
        **{"prompt": f"go on with {document} by {rung}", "output": output, "output_sha256": text_sha256(output)},
        **{"answered_by": "talker-2026-03", "asked_at": DAY, "cost": 0.0005, "prompt_tokens": 100},
        **{"output_tokens": 50, "words_in": 50, "finish_reason": "stop", "model_fingerprint": digest("chat", CHAT)},
        **row,
    }
    if row["outcome"] == "answered":
        measured = {"longest_run": 12, "words_out": 14, "near_span": 0, "run_start": 200, "run_end": 260}
        row = {**measured, "original_excerpt": EXCERPT, "output_excerpt": f"{EXCERPT} and more", **row}
    return make_row(CHAT_ANSWERS, **row)


def document_row(document: str, rung: str = "instruction", *, side: str = "audited", **changes: object) -> Row:
    """Return a row of chat_documents: one passage, four answers, and a longest run of 12 words."""
    row: dict[str, object] = {
        **{"document_id": document, "title": document.title(), "side": side, "rung": rung, "passages": 1},
        **{"is_headline": rung == "instruction", "requests": 4, "answered": 4, "words_in": 50.0, "words_out": 14},
        **{"longest_run": 12, "near_span": 0, "near_verbatim": 0, "score": 0.1, "passages_compared": 1},
        **{"coverage_mean": 0.1, "coverage_best": 0.2, "answer_coverage_mean": 0.3, "answer_coverage_best": 0.4},
        "claim": "not calibrated" if side == "audited" else "not reproduced",
    }
    return make_row(CHAT_DOCUMENTS, **{**row, **changes})


def refused_row(document: str, side: str = "audited") -> Row:
    """Return a row of chat_documents without an answer: three refusals, and one answer that was filtered."""
    row = {"document_id": document, "title": document.title(), "side": side, "rung": "instruction", "passages": 1}
    counts = {"is_headline": True, "requests": 4, "refused": 3, "filtered": 1, "words_in": 50.0}
    return make_row(CHAT_DOCUMENTS, **{**row, **counts, "claim": "refused"})


def write_asking(
    folder: Folder,
    answers: Sequence[Row],
    documents: Sequence[Row] = (),
    *,
    pair: Pair = CHAT_PAIR,
    run_id: str = "run-asked",
    at: datetime = DAY,
) -> None:
    """Write one run's rows of both tables."""
    lineage = {"asset_key": "asking", "model_fingerprint": digest("chat", pair.model), "benchmark_digest": None}
    for table, rows in (("chat_answers", answers), ("chat_documents", documents)):
        folder.write_rows(table, pair, run_id, at, rows, **lineage, tokenizer_fingerprint=None)
