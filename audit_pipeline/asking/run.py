"""Asking a model what is not answered yet: from requests to rows of CHAT_ANSWERS, of handed-over answers as well."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from audit_pipeline.asking.chat_client import ChatReply, ask_all
from audit_pipeline.asking.config import ChatModel
from audit_pipeline.asking.interfaces import Prompt, Sampling
from audit_pipeline.asking.journal import AskJournal
from audit_pipeline.asking.ladder import AskRequest
from audit_pipeline.asking.matching import LEAST, AnswerMeasures, DocumentMatcher
from audit_pipeline.asking.outcomes import recognise_outcome
from audit_pipeline.asking.outputs import HandedOutput
from audit_pipeline.catalogue.contracts import (
    CHAT_ANSWERS,
    EXCERPT_CHARACTERS,
    Outcome,
    canonical_json,
    digest,
    text_sha256,
)
from audit_pipeline.endpoints.budget import Budget
from audit_pipeline.extraction.documents import SearchedDocument, cut_excerpt

_MATCHERS = 8

find_matcher = lru_cache(_MATCHERS)(DocumentMatcher)
"""The matcher of a text: answers about several documents come mixed."""


def ask_missing(
    entry: ChatModel,
    requests: Sequence[AskRequest],
    journal: AskJournal,
    budget: Budget,
    *,
    keeps_text: bool,
    tell: Callable[[str], None],
    on_answer: Callable[[int], None],
) -> None:
    """Send the requests, and append the row of each answer to the journal as it comes.

    ``on_answer`` is told how many have come. Without ``keeps_text`` prompts, answers and excerpts are left out of the
    rows; they are measured all the same. Raises as :func:`ask_all` does; what came before is in the journal.
    """
    answered = 0

    def keep(request: AskRequest, reply: ChatReply) -> None:
        nonlocal answered
        journal.append(build_answer_row(request, reply, entry, keeps_text=keeps_text))
        answered += 1
        on_answer(answered)

    prepared = ((request, *prepare(entry, request)) for request in requests)
    ask_all(entry, prepared, budget, keep, tell)


def prepare(entry: ChatModel, request: AskRequest) -> tuple[Prompt, Sampling]:
    """What is sent for a request."""
    sampling = Sampling(request.temperature_for(entry), entry.answer_tokens, request.draw or None)
    return Prompt(entry.system_prompt, request.prompt), sampling


def list_unanswered(entry: ChatModel, requests: Sequence[AskRequest], known: Container[str]) -> list[AskRequest]:
    """The requests whose digest is not among those ``known``."""
    return [request for request in requests if request.digest_for(entry) not in known]


def build_answer_row(request: AskRequest, reply: ChatReply, entry: ChatModel, *, keeps_text: bool) -> dict[str, Any]:
    """The row of an answer, but for model, benchmark and run_id."""
    whole_prompt = f"{entry.system_prompt or ''}\n\n{request.prompt}".strip()
    outcome, phrase, measured = _measure_answer(
        find_matcher(request.document.text), reply.text, reply.finish_reason, whole_prompt, request.target
    )
    _, sampling = prepare(entry, request)
    settings = {**sampling._asdict(), "system_prompt": entry.system_prompt if keeps_text else None}
    return {
        **_describe_document(request.document),
        "passage": request.passage,
        "passage_start": request.span[0],
        "passage_end": request.span[1],
        "rung": request.rung,
        "draw": request.draw,
        "request_sha256": request.digest_for(entry),
        **_describe_texts(whole_prompt, reply.text, keeps_text=keeps_text),
        "outcome": outcome,
        "refusal_phrase": phrase,
        "finish_reason": reply.finish_reason,
        "settings": canonical_json(settings),
        "model_fingerprint": entry.fingerprint,
        "answered_by": reply.answered_by,
        "provider_request_id": reply.provider_request_id,
        "asked_at": reply.asked_at,
        "seconds": reply.seconds,
        "prompt_tokens": reply.prompt_tokens,
        "output_tokens": reply.output_tokens,
        "cost": reply.cost,
        "words_in": request.words_in,
        **_describe_measures(measured, request.document, reply.text, keeps_text=keeps_text),
    }


def build_handed_over_row(
    output: HandedOutput, document: SearchedDocument, number: int, repeat: int, *, keeps_text: bool
) -> dict[str, Any]:
    """The row of an output that somebody else got, but for model, benchmark and run_id.

    ``number``: which it is of the outputs for its passage; ``repeat``: of those that are equal in all that is known.
    """
    matcher = find_matcher(document.text)
    outcome, phrase, measured = _measure_answer(
        matcher, output.output, output.finish_reason, output.prompt, output.passage_span
    )
    start, end = output.passage_span or (None, None)
    words_in = None if output.prompt is None else matcher.measure(output.prompt, None, None).words_out
    nothing = ("model_fingerprint", "answered_by", "seconds", "prompt_tokens", "output_tokens", "cost")
    return {
        **_describe_document(document),
        "passage": output.passage_number,
        "passage_start": start,
        "passage_end": end,
        "rung": "handed over",
        "draw": number,
        "request_sha256": digest(identify_output(output), text_sha256(document.text), repeat),
        **_describe_texts(output.prompt, output.output, keeps_text=keeps_text),
        "outcome": outcome,
        "refusal_phrase": phrase,
        "finish_reason": output.finish_reason,
        "settings": output.settings if keeps_text else None,
        "provider_request_id": output.request_id,
        "asked_at": output.asked_at,
        "words_in": words_in,
        **_describe_measures(measured, document, output.output, keeps_text=keeps_text),
        **dict.fromkeys(nothing),
    }


def identify_output(output: HandedOutput) -> str:
    """By which an output is known again: all that was handed over with it, but for its place in the file."""
    asked_at = output.asked_at and output.asked_at.isoformat()
    return digest({**asdict(output), "document": None, "asked_at": asked_at})


_OF_TEXT = [column.name for column in CHAT_ANSWERS.columns if column.quotes_text]


def without_text(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row of an own request less what quotes texts: a run that was killed may have kept them."""
    settings = {**json.loads(row["settings"]), "system_prompt": None}
    return {**row, **dict.fromkeys(_OF_TEXT), "settings": canonical_json(settings)}


def _measure_answer(
    matcher: DocumentMatcher, answer: str, finish_reason: str | None, prompt: str | None, target: tuple[int, int] | None
) -> tuple[Outcome, str | None, AnswerMeasures | None]:
    """What an answer came to, the phrase by which it is refused, and its measures where it is answered.

    An answer that holds a long stretch of the document is one, whatever it says besides and however it ended.
    """
    outcome, phrase = recognise_outcome(answer, finish_reason, LEAST)
    if outcome == "empty":
        return outcome, phrase, None
    measured = matcher.measure(answer, prompt, target)
    if outcome == "answered" or measured.near_span:
        return "answered", None, measured
    return outcome, phrase, None


def _describe_document(document: SearchedDocument) -> Mapping[str, Any]:
    return {
        "document_id": document.name,
        "side": document.side,
        "document_sha256": text_sha256(document.text),
    }


def _describe_texts(prompt: str | None, output: str, *, keeps_text: bool) -> Mapping[str, Any]:
    return {
        "prompt_sha256": None if prompt is None else text_sha256(prompt),
        "prompt": prompt if keeps_text else None,
        "output_sha256": text_sha256(output),
        "output": output if keeps_text else None,
    }


_MEASURES = (
    "words_out",
    "answer_words",
    "longest_run",
    "near_span",
    "answer_coverage",
    "passage_coverage",
    "edits",
    "run_start",
    "run_end",
)
_MEASURE_COLUMNS = (*_MEASURES, "original_excerpt", "output_excerpt")


def _describe_measures(
    measured: AnswerMeasures | None, document: SearchedDocument, answer: str, *, keeps_text: bool
) -> Mapping[str, Any]:
    if measured is None:
        return dict.fromkeys(_MEASURE_COLUMNS)
    is_quoted = keeps_text and measured.run_start is not None
    return {
        **{name: getattr(measured, name) for name in _MEASURES},
        "original_excerpt": _quote(document.text, measured.run_start) if is_quoted else None,
        "output_excerpt": _quote(answer, measured.output_start) if is_quoted else None,
    }


def _quote(text: str, start: int | None) -> str:
    # A whole book is not cut into words for its next 25.
    return cut_excerpt(text[start or 0 :][:EXCERPT_CHARACTERS])
