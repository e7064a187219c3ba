"""Asking a model what is not answered yet: from requests to rows of CHAT_ANSWERS, of handed-over answers as well."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from audit_pipeline.extras.chat.chat_client import ChatReply, Prompt, Sampling, ask_all
from audit_pipeline.extras.chat.config import ChatModel
from audit_pipeline.extras.chat.journal import AskJournal
from audit_pipeline.extras.chat.ladder import AskRequest
from audit_pipeline.extras.chat.matching import LEAST, DocumentMatcher
from audit_pipeline.extras.chat.outcomes import recognise_outcome
from audit_pipeline.extras.chat.outputs import HandedOutput
from audit_pipeline.extras.extraction.documents import SearchedDocument, cut_excerpt
from audit_pipeline.models.budget import Budget
from audit_pipeline.tables import CHAT_ANSWERS, EXCERPT_CHARACTERS, canonical_json, digest, text_sha256

# The stage fills the others.
_COLUMNS = [name for name in CHAT_ANSWERS.names if name not in ("model", "benchmark", "run_id")]
_OF_TEXT = [column.name for column in CHAT_ANSWERS.columns if column.quotes_text]

# The matcher of a text: answers about several documents come mixed.
find_matcher = lru_cache(8)(DocumentMatcher)


def ask_missing(
    entry: ChatModel,
    requests: Sequence[AskRequest],
    journal: AskJournal,
    budget: Budget,
    *,
    keeps_text: bool,
    notify: Callable[[str], None],
    on_answer: Callable[[int], None],
) -> None:
    """Send the requests, and append the row of each answer to the journal as it comes.

    ``on_answer`` is called with how many have come. Without ``keeps_text`` prompts, answers and excerpts are left out
    of the rows; they are measured all the same. Raises as :func:`ask_all` does; what came before is in the journal.
    """
    answered = 0

    def keep(request: AskRequest, reply: ChatReply) -> None:
        nonlocal answered
        journal.append(build_answer_row(request, reply, entry, keeps_text=keeps_text))
        answered += 1
        on_answer(answered)

    ask_all(entry, ((request, *prepare_request(entry, request)) for request in requests), budget, keep, notify)


def prepare_request(entry: ChatModel, request: AskRequest) -> tuple[Prompt, Sampling]:
    """Return what is sent for a request."""
    sampling = Sampling(request.get_temperature(entry), entry.answer_tokens, request.draw or None)
    return Prompt(entry.system_prompt, request.prompt), sampling


def build_answer_row(request: AskRequest, reply: ChatReply, entry: ChatModel, *, keeps_text: bool) -> dict[str, Any]:
    """Return the row of an answer, but for model, benchmark and run_id."""
    whole_prompt = f"{entry.system_prompt or ''}\n\n{request.prompt}".strip()
    _, sampling = prepare_request(entry, request)
    known = {name: value for name, value in asdict(reply).items() if name != "text"}
    settings = {**sampling._asdict(), "system_prompt": entry.system_prompt if keeps_text else None}
    return {
        **_build_row(request.document, whole_prompt, reply.text, reply.finish_reason, request.target, keeps_text),
        **known,
        "passage": request.passage,
        "passage_start": request.span[0],
        "passage_end": request.span[1],
        "rung": request.rung,
        "draw": request.draw,
        "request_sha256": request.compute_digest(entry),
        "settings": canonical_json(settings),
        "model_fingerprint": entry.fingerprint,
        "words_in": request.words_in,
    }


def build_handed_over_row(
    output: HandedOutput, document: SearchedDocument, number: int, repeat: int, *, keeps_text: bool
) -> dict[str, Any]:
    """Return the row of a handed-over output, but for model, benchmark and run_id.

    ``number``: which it is of the outputs for its passage; ``repeat``: of those that are equal in all that is known.
    """
    span = output.passage if isinstance(output.passage, tuple) else None
    in_prompt = None if output.prompt is None else find_matcher(document.text).measure(output.prompt, None, None)
    return {
        **_build_row(document, output.prompt, output.output, output.finish_reason, span, keeps_text),
        "passage": output.passage if isinstance(output.passage, int) else None,
        "passage_start": span and span[0],
        "passage_end": span and span[1],
        "rung": "handed over",
        "draw": number,
        "request_sha256": digest(identify_output(output), text_sha256(document.text), repeat),
        "finish_reason": output.finish_reason,
        "settings": output.settings if keeps_text else None,
        "provider_request_id": output.request_id,
        "asked_at": output.asked_at,
        "words_in": in_prompt and in_prompt.words_out,
    }


def identify_output(output: HandedOutput) -> str:
    """Return the digest of an output: all that was handed over with it, but for its place in the file."""
    return digest(output.model_dump(mode="json", exclude={"document"}))


def remove_text(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of an own request less what quotes texts: a run that was killed may have kept them."""
    settings = {**json.loads(row["settings"]), "system_prompt": None}
    return {**row, **dict.fromkeys(_OF_TEXT), "settings": canonical_json(settings)}


def _build_row(
    document: SearchedDocument,
    prompt: str | None,
    output: str,
    finish_reason: str | None,
    target: tuple[int, int] | None,
    keeps_text: bool,
) -> dict[str, Any]:
    """Return what an answer comes to and how much of the document it gives; all other columns None.

    An answer that holds a long stretch of the document is one, whatever else it says and however it ended.
    """
    row: dict[str, Any] = {
        **dict.fromkeys(_COLUMNS),
        "document_id": document.name,
        "side": document.side,
        "document_sha256": text_sha256(document.text),
        "prompt_sha256": None if prompt is None else text_sha256(prompt),
        "prompt": prompt if keeps_text else None,
        "output_sha256": text_sha256(output),
        "output": output if keeps_text else None,
    }
    row["outcome"], row["refusal_phrase"] = recognise_outcome(output, finish_reason, LEAST)
    if row["outcome"] == "empty":
        return row
    measured = find_matcher(document.text).measure(output, prompt, target)
    if row["outcome"] != "answered" and not measured.near_span:
        return row
    row |= {"outcome": "answered", "refusal_phrase": None, **asdict(measured)}
    output_start = row.pop("output_start")
    if keeps_text and measured.run_start is not None:
        quotes = (("original_excerpt", document.text, measured.run_start), ("output_excerpt", output, output_start))
        # A whole book is not cut into words for its next 25.
        row |= {name: cut_excerpt(text[start:][:EXCERPT_CHARACTERS]) for name, text, start in quotes}
    return row
