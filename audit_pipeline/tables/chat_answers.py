"""Tables of what models that answer in words gave of documents."""

from __future__ import annotations

from typing import Literal

from audit_pipeline.tables.common import build_run_table
from audit_pipeline.tables.table import boolean, double, int32, int64, moment, string

Rung = Literal["title", "first line", "prefix", "instruction", "handed over"]
"""How a model was asked. The first four are the ladder; ``handed over``: somebody else asked."""
Outcome = Literal["answered", "refused", "filtered", "cut", "empty"]
"""What a request came to. Only what is ``answered`` is measured; the others are never taken for absence."""
AskClaim = Literal["reproduced", "not graded", "not reproduced", "not calibrated", "refused"]
"""``not graded``: a long stretch came back, and the prompt is not known; ``refused``: no answer could be measured."""

_DOCUMENT_ID = string("document_id", "the document: its file's name, or its document_id")
_SIDE = string("side", "audited | held_out (named as not read by the model; the audited are compared with it)")
_RUNG = string("rung", "how it was asked: title | first line | prefix | instruction | handed over (docs/ask.md)")
_TITLE = string("title", "its title", null=True)
_N_HELD_OUT = int32("n_held_out", "held-out documents that it is compared with", null=True)

CHAT_ANSWERS = build_run_table(
    "chat_answers",
    "every request to a model that answers in words, and how much of the document came back; append-only",
    key=("request_sha256",),
    columns=(
        _DOCUMENT_ID,
        _SIDE,
        string("document_sha256", "sha256 of the whole document's UTF-8 text"),
        int32("passage", "number of the passage in the document, from 0; null: not known", null=True),
        int64("passage_start", "its first character in the document", null=True),
        int64("passage_end", "one past its last character", null=True),
        _RUNG,
        int32("draw", "0: at temperature 0; from 1 on: drawn; of outputs handed over their number"),
        string("request_sha256", "digest of the model, prompt, settings and draw: none is asked twice"),
        string("prompt_sha256", "sha256 of the prompt; null: not known", null=True),
        string("prompt", "what was asked; null: not kept, or not known", null=True, quotes_text=True),
        string("output_sha256", "sha256 of the answer"),
        string("output", "the answer; null: not kept", null=True, quotes_text=True),
        string("outcome", "answered | refused | filtered | cut (before it could be measured) | empty"),
        string("refusal_phrase", "the phrase by which it counts as refused", null=True),
        string("finish_reason", "why the answer ended, as the interface says", null=True),
        string("settings", "canonical JSON of how it was drawn; null: not kept", null=True, quotes_text=True),
        string("model_fingerprint", "of the model's address and name; null: handed over", null=True),
        string("answered_by", "model and version, as the interface names them", null=True),
        string("provider_request_id", "the interface's own number of the request", null=True),
        moment("asked_at", "when it was sent; null: not known", null=True),
        double("seconds", "how long the answer took", null=True),
        int64("prompt_tokens", "tokens of the prompt, as counted there", null=True),
        int64("output_tokens", "tokens of the answer, as counted there", null=True),
        double("cost", "its price; null: no prices, or no tokens counted", null=True),
        int32("words_in", "words of the document in the prompt; null: the prompt is not known", null=True),
        int32("words_out", "words of the answer in common runs of 5 and more beyond them", null=True),
        int32("answer_words", "words of the answer; null where it was not measured", null=True),
        int32("longest_run", "words of the longest run common to answer and document", null=True),
        int32("near_span", "words of the longest stretch with at most 5 that differ; 0: below 40", null=True),
        double("answer_coverage", "share of the answer's words in common runs of 5 and more", null=True),
        double("passage_coverage", "share of the next 40 words in such runs; null: no passage", null=True),
        int32("edits", "fewest words to change for the passage's next 40; null: no passage", null=True),
        int64("run_start", "where the longest run begins in the document, in characters", null=True),
        int64("run_end", "one past its end", null=True),
        string("original_excerpt", "the document at the longest run", null=True, quotes_text=True),
        string("output_excerpt", "the answer there", null=True, quotes_text=True),
    ),
)

CHAT_DOCUMENTS = build_run_table(
    "chat_documents",
    "what a model that answers in words gave of each document, by rung, and of held-out documents; of every run",
    current="documents that were asked for, by rung",
    key=("document_id", "rung"),
    made_from=("chat_answers",),
    columns=(
        _DOCUMENT_ID,
        _TITLE,
        _SIDE,
        _RUNG,
        boolean("is_headline", "whether this rung was named beforehand to answer"),
        int32("passages", "passages that were asked for"),
        int32("requests", "requests for them"),
        int32("answered", "answers that could be measured"),
        int32("refused", "refusals"),
        int32("filtered", "answers that the interface held back"),
        int32("cut", "answers that ended before they could be measured"),
        int32("empty", "empty answers"),
        double("words_in", "words of the document in a prompt, mean; null: not known", null=True),
        int32("words_out", "most words that came out beyond those of the prompt", null=True),
        int32("longest_run", "longest common run of words of any answer", null=True),
        int32("near_span", "longest stretch with at most 5 words that differ; 0: below 40", null=True),
        double("coverage_mean", "share of the next 40 words in common runs, mean of answers", null=True),
        double("coverage_best", "the same of the best draw of each passage", null=True),
        double("answer_coverage_mean", "share of an answer's words in such runs, mean of answers", null=True),
        double("answer_coverage_best", "the same of the best answer to each passage", null=True),
        int32("near_verbatim", "passages whose next 40 words came with at most 5 edits", null=True),
        double("score", "share of the next 40 words that came back, of the passages compared", null=True),
        int32("passages_compared", "passages in that mean, as many as of the held-out documents", null=True),
        _N_HELD_OUT,
        double("p_value", "conformal p-value of the score; null: held out, or nothing to compare with", null=True),
        double("q_bh", "q-value over the audited documents at this rung (Benjamini-Hochberg)", null=True),
        string("claim", "reproduced | not graded | not reproduced | not calibrated | refused; of the held-out, too"),
    ),
)
