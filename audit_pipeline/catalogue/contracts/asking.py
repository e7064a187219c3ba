"""Tables of what models that answer in words gave of documents."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from audit_pipeline.catalogue.contracts.common import BENCHMARK, MODEL, RUN_ID
from audit_pipeline.catalogue.table import Column, Table

Rung = Literal["title", "first line", "prefix", "instruction", "handed over"]
"""How a model was asked. The first four are the ladder; ``handed over``: somebody else asked."""
Outcome = Literal["answered", "refused", "filtered", "cut", "empty"]
"""What a request came to. Only what is ``answered`` is measured; the others are never taken for absence."""
AskClaim = Literal["reproduced", "not graded", "not reproduced", "not calibrated", "refused"]
"""``not graded``: a long stretch came back, and the prompt is not known; ``refused``: no answer could be measured."""

_DOCUMENT_ID = Column("document_id", pa.string(), "the document: its file's name, or its document_id")
_SIDE = Column(
    "side", pa.string(), "audited | held_out (the model cannot have read it; the audited are compared with it)"
)
_RUNG = Column(
    "rung",
    pa.string(),
    "how it was asked: title | first line | prefix | instruction | handed over (docs/ask.md)",
)
_TITLE = Column("title", pa.string(), "its title", null=True)
_N_HELD_OUT = Column("n_held_out", pa.int32(), "held-out documents that it is compared with", null=True)

CHAT_ANSWERS = Table(
    "chat_answers",
    "every request to a model that answers in words, and how much of the document came back; append-only",
    key=("run_id", "benchmark", "model", "request_sha256"),
    per="pair",
    kept="runs",
    columns=(
        MODEL,
        BENCHMARK,
        _DOCUMENT_ID,
        _SIDE,
        Column("document_sha256", pa.string(), "sha256 of the whole document's UTF-8 text"),
        Column("passage", pa.int32(), "number of the passage in the document, from 0; null: not known", null=True),
        Column("passage_start", pa.int64(), "its first character in the document", null=True),
        Column("passage_end", pa.int64(), "one past its last character", null=True),
        _RUNG,
        Column("draw", pa.int32(), "0: at temperature 0; from 1 on: drawn; of outputs handed over their number"),
        Column("request_sha256", pa.string(), "digest of the model, prompt, settings and draw: none is asked twice"),
        Column("prompt_sha256", pa.string(), "sha256 of the prompt; null: not known", null=True),
        Column("prompt", pa.string(), "what was asked; null: not kept, or not known", null=True, quotes_text=True),
        Column("output_sha256", pa.string(), "sha256 of the answer"),
        Column("output", pa.string(), "the answer; null: not kept", null=True, quotes_text=True),
        Column("outcome", pa.string(), "answered | refused | filtered | cut (before it could be measured) | empty"),
        Column("refusal_phrase", pa.string(), "the phrase by which it counts as refused", null=True),
        Column("finish_reason", pa.string(), "why the answer ended, as the interface says", null=True),
        Column(
            "settings", pa.string(), "canonical JSON of how it was drawn; null: not kept", null=True, quotes_text=True
        ),
        Column("model_fingerprint", pa.string(), "of the model's address and name; null: handed over", null=True),
        Column("answered_by", pa.string(), "model and version, as the interface names them", null=True),
        Column("provider_request_id", pa.string(), "the interface's own number of the request", null=True),
        Column("asked_at", pa.timestamp("us", tz="UTC"), "when it was sent; null: not known", null=True),
        Column("seconds", pa.float64(), "how long the answer took", null=True),
        Column("prompt_tokens", pa.int64(), "tokens of the prompt, as counted there", null=True),
        Column("output_tokens", pa.int64(), "tokens of the answer, as counted there", null=True),
        Column("cost", pa.float64(), "its price; null: no prices, or no tokens counted", null=True),
        Column("words_in", pa.int32(), "words of the document in the prompt; null: the prompt is not known", null=True),
        Column("words_out", pa.int32(), "words of the answer in common runs of 5 and more beyond them", null=True),
        Column("answer_words", pa.int32(), "words of the answer; null where it was not measured", null=True),
        Column("longest_run", pa.int32(), "words of the longest run common to answer and document", null=True),
        Column(
            "near_span", pa.int32(), "words of the longest stretch with at most 5 that differ; 0: below 40", null=True
        ),
        Column("answer_coverage", pa.float64(), "share of the answer's words in common runs of 5 and more", null=True),
        Column(
            "passage_coverage", pa.float64(), "share of the next 40 words in such runs; null: no passage", null=True
        ),
        Column("edits", pa.int32(), "fewest words to change for the passage's next 40; null: no passage", null=True),
        Column("run_start", pa.int64(), "where the longest run begins in the document, in characters", null=True),
        Column("run_end", pa.int64(), "one past its end", null=True),
        Column("original_excerpt", pa.string(), "the document at the longest run", null=True, quotes_text=True),
        Column("output_excerpt", pa.string(), "the answer there", null=True, quotes_text=True),
        RUN_ID,
    ),
)

CHAT_DOCUMENTS = Table(
    "chat_documents",
    "what a model that answers in words gave of each document, by rung, beside held-out documents; of every run",
    current="documents that were asked for, by rung",
    key=("run_id", "benchmark", "model", "document_id", "rung"),
    per="pair",
    kept="runs",
    made_from=("chat_answers",),
    columns=(
        MODEL,
        BENCHMARK,
        _DOCUMENT_ID,
        _TITLE,
        _SIDE,
        _RUNG,
        Column("is_headline", pa.bool_(), "whether this rung was named beforehand to answer"),
        Column("passages", pa.int32(), "passages that were asked for"),
        Column("requests", pa.int32(), "requests for them"),
        Column("answered", pa.int32(), "answers that could be measured"),
        Column("refused", pa.int32(), "refusals"),
        Column("filtered", pa.int32(), "answers that the interface held back"),
        Column("cut", pa.int32(), "answers that ended before they could be measured"),
        Column("empty", pa.int32(), "empty answers"),
        Column("words_in", pa.float64(), "words of the document in a prompt, mean; null: not known", null=True),
        Column("words_out", pa.int32(), "most words that came out beyond those of the prompt", null=True),
        Column("longest_run", pa.int32(), "longest common run of words of any answer", null=True),
        Column("near_span", pa.int32(), "longest stretch with at most 5 words that differ; 0: below 40", null=True),
        Column("coverage_mean", pa.float64(), "share of the next 40 words in common runs, mean of answers", null=True),
        Column("coverage_best", pa.float64(), "the same of the best draw of each passage", null=True),
        Column(
            "answer_coverage_mean", pa.float64(), "share of an answer's words in such runs, mean of answers", null=True
        ),
        Column("answer_coverage_best", pa.float64(), "the same of the best answer to each passage", null=True),
        Column("near_verbatim", pa.int32(), "passages whose next 40 words came with at most 5 edits", null=True),
        Column("score", pa.float64(), "share of the next 40 words that came back, of the passages compared", null=True),
        Column(
            "passages_compared", pa.int32(), "passages in that mean, as many as of the held-out documents", null=True
        ),
        _N_HELD_OUT,
        Column(
            "p_value",
            pa.float64(),
            "conformal p-value of the score; null: held out, or nothing to compare with",
            null=True,
        ),
        Column("q_bh", pa.float64(), "q-value over the audited documents at this rung (Benjamini-Hochberg)", null=True),
        Column(
            "claim",
            pa.string(),
            "reproduced | not graded | not reproduced | not calibrated | refused; of the held-out, too",
        ),
        RUN_ID,
    ),
)
