"""Asking a model what is not answered yet: from requests to rows of CHAT_ANSWERS, of handed-over answers as well."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from audit_pipeline.errors import DataError
from audit_pipeline.extras.chat.chat_client import ChatPrompt, ChatReply, Sampling, ask_all
from audit_pipeline.extras.chat.config import ChatModel
from audit_pipeline.extras.chat.given_outputs import HandedOutput
from audit_pipeline.extras.chat.matching import MIN_NEAR_WORDS, DocumentMatcher, hash_normalised_words
from audit_pipeline.extras.chat.prompt_styles import AskRequest
from audit_pipeline.extras.extraction.documents import SearchedDocument, cut_excerpt
from audit_pipeline.models.usage_budget import Budget
from audit_pipeline.store.locks import hold_lock
from audit_pipeline.tables import CHAT_ANSWERS, EXCERPT_CHARACTERS, Outcome, canonical_json, digest, text_sha256

_PRIVATE = 0o600
_MOMENT = "asked_at"
"""The only column of answers that JSON has no value for."""


class AskJournal:
    """The rows of answers in the file at ``path``, which is there while a run is not finished.

    Only its owner can read the file: where texts are kept it holds prompts and answers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the journal within the block; raises HeldError at once where another process holds it.

        A last line that a killed process has left unfinished is cut off.
        """
        with hold_lock(self.path.with_suffix(".lock"), 0.0):
            if self.path.exists():
                os.truncate(self.path, len(_whole_lines(self.path.read_bytes())))
            yield

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row; it is on the disk when this returns."""
        moment: datetime | None = row[_MOMENT]
        line = json.dumps({**row, _MOMENT: moment and moment.isoformat()}) + "\n"
        with open(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _PRIVATE), "wb") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[dict[str, Any]]:
        """Return the rows, less a last one that is unfinished; none where there is no file.

        Raises DataError for a damaged line.
        """
        rows: list[dict[str, Any]] = []
        content = self.path.read_bytes() if self.path.exists() else b""
        for number, line in enumerate(_whole_lines(content).split(b"\n")[:-1], 1):
            try:
                row = json.loads(line)
                moment = row[_MOMENT]
                rows.append({**row, _MOMENT: moment and datetime.fromisoformat(moment)})
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{self.path}, line {number}: cannot be read: delete this line, and what it holds is asked again"
                ) from error
        return rows


def _whole_lines(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]


_CANNOT = ("can't", "cannot", "won't", "am unable to", "'m unable to", "am not able to", "'m not able to")
_DO_IT = (
    *("assist", "complete", "comply", "continue", "fulfill", "give", "help"),
    *("provide", "quote", "recite", "repeat", "reproduce", "share", "write"),
)
REFUSAL_PHRASES = (
    *(f"i{'' if cannot[0] == chr(39) else ' '}{cannot} {verb}" for cannot, verb in product(_CANNOT, _DO_IT)),
    *("i'm sorry, but", "i am sorry, but", "i apologize, but", "i don't have access to", "i do not have access to"),
    *("as an ai language model", "as an ai assistant", "as a language model", "as a large language model"),
    *("protected by copyright", "copyrighted", "under copyright", "copyright restrictions"),
    *("tut mir leid, aber", "kann ich leider nicht", "ich kann leider", "urheberrechtlich geschützt"),
    *("je suis désolé, mais", "je ne peux pas fournir", "je ne peux pas reproduire", "je ne suis pas en mesure"),
    *("protégé par le droit d'auteur", "protégé par des droits d'auteur"),
    *("对不起,我", "抱歉,我", "很抱歉,", "我无法提供", "我不能提供", "我无法继续", "受版权保护"),
)
"""By one of these near its beginning an answer counts as refused; compared as :func:`_fold` writes them."""
_NEAR = 200
"""Characters within which such a phrase begins."""
_EXPLANATION = 60
"""Words that a refusal may go on for, to explain itself and to offer something else."""
_QUOTES = str.maketrans(dict.fromkeys("‘’‛ʼ`´", "'"))
_FILTERS = frozenset(
    ("content_filter", "content_filtered", "recitation", "safety", "blocklist", "prohibited_content", "spii", "other")
)
_CUTS = frozenset(("length", "max_tokens", "model_context_window_exceeded"))


def recognise_outcome(text: str, finish_reason: str | None, expected_words: int) -> tuple[Outcome, str | None]:
    """Return what a request came to, and of a refusal the phrase it was recognised by.

    ``expected_words``: with fewer an answer that was cut short, by its length or a filter, says nothing; with so many
    what came is measured. A refusal that goes on for so many words more than an explanation takes (60) is an answer:
    "I can't give all of it, but it begins …".
    """
    reason = (finish_reason or "").casefold()
    words = len(hash_normalised_words(text))
    # Anthropic decides so itself.
    if reason == "refusal":
        return "refused", None
    if reason in _FILTERS and words < expected_words:
        return "filtered", None
    if words and (found := _find_refusal_phrase(text)) is not None:
        phrase, rest = found
        if len(hash_normalised_words(rest)) < expected_words + _EXPLANATION:
            return "refused", phrase
    if reason in _CUTS and words < expected_words:
        return "cut", None
    return ("answered" if words else "empty"), None


def _find_refusal_phrase(text: str) -> tuple[str, str] | None:
    """Return the first phrase of a refusal, and what follows it."""
    folded = _fold(text)
    places = {phrase: folded.find(phrase, 0, _NEAR + len(phrase)) for phrase in REFUSAL_PHRASES}
    found = [(place, phrase) for phrase, place in places.items() if place >= 0]
    if not found:
        return None
    place, phrase = min(found)
    return phrase, folded[place + len(phrase) :]


def _fold(text: str) -> str:
    """``text`` in NFKC, case folded, with one kind of apostrophe and single spaces."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text.translate(_QUOTES)).casefold())
    return re.sub(r"\s+", " ", folded).strip()


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


def prepare_request(entry: ChatModel, request: AskRequest) -> tuple[ChatPrompt, Sampling]:
    """Return what is sent for a request."""
    sampling = Sampling(request.get_temperature(entry), entry.answer_tokens, request.draw or None)
    return ChatPrompt(entry.system_prompt, request.prompt), sampling


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
    row["outcome"], row["refusal_phrase"] = recognise_outcome(output, finish_reason, MIN_NEAR_WORDS)
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
