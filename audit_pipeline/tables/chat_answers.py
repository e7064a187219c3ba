"""Tables of chat models' answers, and of the parts of documents that the answers reproduce."""

from __future__ import annotations

from typing import Literal

from audit_pipeline.tables.common import build_run_table
from audit_pipeline.tables.table import boolean, double, int32, int64, moment, string

PromptStyle = Literal["title", "first line", "prefix", "instruction", "handed over"]
"""The style of the prompt. With ``handed over``, the user supplied the answer, and no request was sent."""
Outcome = Literal["answered", "refused", "filtered", "cut", "empty"]
"""The result of a request. Only answers with the result ``answered`` are measured. The other results are no evidence
against memorisation."""
AskClaim = Literal["reproduced", "not graded", "not reproduced", "not calibrated", "refused"]
"""The claim about a document. ``not graded`` means that an answer has a long passage of the document, but the prompt is
unknown. ``refused`` means that no answer could be measured."""

_DOCUMENT_ID = string("document_id", "the document: its file name, or its document_id")
_SIDE = string("side", "audited | held_out (a document that the user states the model has not read, for comparison)")
_RUNG = string(
    "rung", "prompt style: title | first line | prefix | instruction | handed over (by the user, see docs/ask.md)"
)
_TITLE = string("title", "title of the document", null=True)
_N_HELD_OUT = int32("n_held_out", "number of held-out documents in the comparison", null=True)

CHAT_ANSWERS = build_run_table(
    "chat_answers",
    "every request to a chat model, and how much of the document the answer reproduces; append-only",
    key=("request_sha256",),
    columns=(
        _DOCUMENT_ID,
        _SIDE,
        string("document_sha256", "sha256 of the whole document's UTF-8 text"),
        int32("passage", "number of the passage in the document, from 0; null if unknown", null=True),
        int64("passage_start", "first character of the passage in the document", null=True),
        int64("passage_end", "end of the passage in the document (exclusive)", null=True),
        _RUNG,
        int32(
            "draw",
            "number of the sample, from 1; 0 at temperature 0; for an answer that the user supplied, the number of the "
            "answer",
        ),
        string(
            "request_sha256",
            "digest of the model, prompt, settings and draw; a request with a known digest is not sent again",
        ),
        string("prompt_sha256", "sha256 of the prompt; null if unknown", null=True),
        string("prompt", "the prompt; null if it was not stored or is unknown", null=True, quotes_text=True),
        string("output_sha256", "sha256 of the answer"),
        string("output", "the answer; null if it was not stored", null=True, quotes_text=True),
        string("outcome", "answered | refused | filtered | cut (too short to be measured) | empty"),
        string("refusal_phrase", "the phrase by which the answer counts as a refusal", null=True),
        string("finish_reason", "why the answer ended, as the API reports it", null=True),
        string(
            "settings",
            "canonical JSON of the sampling settings; null if they were not stored",
            null=True,
            quotes_text=True,
        ),
        string("model_fingerprint", "digest of the model's address and name; null for supplied answers", null=True),
        string("answered_by", "model and version, as the API names them", null=True),
        string("provider_request_id", "the API's id of the request", null=True),
        moment("asked_at", "time when the request was sent; null if unknown", null=True),
        double("seconds", "seconds until the answer was complete", null=True),
        int64("prompt_tokens", "tokens of the prompt, as the API counts them", null=True),
        int64("output_tokens", "tokens of the answer, as the API counts them", null=True),
        double("cost", "price of the request; null if prices or token counts are unknown", null=True),
        int32("words_in", "words of the document in the prompt; null if the prompt is unknown", null=True),
        int32(
            "words_out",
            "words of the answer in common runs of 5 or more words, without the words of the prompt",
            null=True,
        ),
        int32("answer_words", "words of the answer; null if it was not measured", null=True),
        int32("longest_run", "length in words of the longest run that answer and document share", null=True),
        int32(
            "near_span",
            "length in words of the longest shared passage with at most 5 different words; 0 if below 40",
            null=True,
        ),
        double("answer_coverage", "share of the answer's words in common runs of 5 or more words", null=True),
        double(
            "passage_coverage",
            "share of the document's 40 words after the prompt that are in common runs of 5 or more words; null "
            "without a passage",
            null=True,
        ),
        int32(
            "edits",
            "minimum number of word edits that turn a part of the answer into the document's 40 words after the "
            "prompt; null without a passage",
            null=True,
        ),
        int64("run_start", "first character of the longest run in the document", null=True),
        int64("run_end", "end of the longest run in the document (exclusive)", null=True),
        string("original_excerpt", "excerpt of the document at the longest run", null=True, quotes_text=True),
        string("output_excerpt", "excerpt of the answer at the longest run", null=True, quotes_text=True),
    ),
)

CHAT_DOCUMENTS = build_run_table(
    "chat_documents",
    "how much of each document, audited or held out, a chat model reproduces, by prompt style; of every run",
    current="how much of each document the chat model reproduces, by prompt style,",
    key=("document_id", "rung"),
    made_from=("chat_answers",),
    columns=(
        _DOCUMENT_ID,
        _TITLE,
        _SIDE,
        _RUNG,
        boolean("is_headline", "whether this prompt style was chosen in advance for the answer"),
        int32("passages", "number of requested passages"),
        int32("requests", "number of requests for the passages"),
        int32("answered", "number of answers that could be measured"),
        int32("refused", "number of refusals"),
        int32("filtered", "number of answers that the API withheld"),
        int32("cut", "number of answers that are too short to be measured"),
        int32("empty", "number of empty answers"),
        double("words_in", "mean number of words of the document per prompt; null if unknown", null=True),
        int32("words_out", "maximum of words_out over the answers (chat_answers)", null=True),
        int32("longest_run", "maximum of longest_run (chat_answers) over the answers, in words", null=True),
        int32("near_span", "maximum of near_span (chat_answers) over the answers, in words; 0 if below 40", null=True),
        double("coverage_mean", "mean of passage_coverage (chat_answers) over the answers", null=True),
        double("coverage_best", "mean of passage_coverage over the best answer to each passage", null=True),
        double("answer_coverage_mean", "mean of answer_coverage (chat_answers) over the answers", null=True),
        double("answer_coverage_best", "mean of answer_coverage over the best answer to each passage", null=True),
        int32(
            "near_verbatim",
            "number of passages whose 40 words after the prompt were reproduced with at most 5 word edits",
            null=True,
        ),
        double(
            "score",
            "mean share of the 40 words after the prompt that were reproduced, over the compared passages",
            null=True,
        ),
        int32("passages_compared", "number of compared passages; the same for held-out documents", null=True),
        _N_HELD_OUT,
        double(
            "p_value", "conformal p-value of the score; null for held-out documents, or without a comparison", null=True
        ),
        double("q_bh", "q-value over the audited documents at this prompt style (Benjamini-Hochberg)", null=True),
        string(
            "claim", "reproduced | not graded | not reproduced | not calibrated | refused; also for held-out documents"
        ),
    ),
)
