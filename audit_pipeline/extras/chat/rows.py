"""Rows of the table CHAT_ANSWERS, built from answers and imported outputs, and the journal of an unfinished run."""

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
from audit_pipeline.extras.chat.imported_outputs import ImportedOutput
from audit_pipeline.extras.chat.matching import MIN_NEAR_WORDS, DocumentMatcher, hash_normalised_words
from audit_pipeline.extras.chat.prompt_styles import AskRequest
from audit_pipeline.extras.extraction.documents import SearchedDocument, cut_excerpt
from audit_pipeline.models.usage_budget import Budget
from audit_pipeline.store.files import hold_lock
from audit_pipeline.tables import CHAT_ANSWERS, EXCERPT_CHARACTERS, Outcome, canonical_json, digest, text_sha256

# Only the owner may read a journal, because it may contain prompts and answers.
_JOURNAL_MODE = 0o600
# The only column with values that JSON cannot represent.
_TIME_COLUMN = "asked_at"


class AskJournal:
    """The rows of an unfinished run, in a JSON Lines file. The file is deleted at the end of the run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the journal, and remove an incomplete last line of a killed process.

        Raises:
            HeldError: If another process holds the lock.
        """
        with hold_lock(self.path.with_suffix(".lock"), 0.0):
            if self.path.exists():
                os.truncate(self.path, len(_cut_complete_lines(self.path.read_bytes())))
            yield

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row, and wait until it is on disk."""
        moment: datetime | None = row[_TIME_COLUMN]
        line = json.dumps({**row, _TIME_COLUMN: moment and moment.isoformat()}) + "\n"
        with open(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _JOURNAL_MODE), "wb") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[dict[str, Any]]:
        """Return the rows without an incomplete last line. A missing file has no rows.

        Raises:
            DataError: If a line is corrupt.
        """
        if not self.path.exists():
            return []
        rows: list[dict[str, Any]] = []
        for number, line in enumerate(_cut_complete_lines(self.path.read_bytes()).split(b"\n")[:-1], 1):
            try:
                row = json.loads(line)
                moment = row[_TIME_COLUMN]
                rows.append({**row, _TIME_COLUMN: moment and datetime.fromisoformat(moment)})
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{self.path}, line {number}: The line is corrupt. Delete the line. The next run repeats the "
                    "request of the line."
                ) from error
        return rows


def _cut_complete_lines(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]


_INABILITIES = ("can't", "cannot", "won't", "am unable to", "'m unable to", "am not able to", "'m not able to")
_REFUSED_VERBS = (
    *("assist", "complete", "comply", "continue", "fulfill", "give", "help"),
    *("provide", "quote", "recite", "repeat", "reproduce", "share", "write"),
)
REFUSAL_PHRASES = (
    *(f"i {inability} {verb}".replace("i '", "i'") for inability, verb in product(_INABILITIES, _REFUSED_VERBS)),
    *("i'm sorry, but", "i am sorry, but", "i apologize, but", "i don't have access to", "i do not have access to"),
    *("as an ai language model", "as an ai assistant", "as a language model", "as a large language model"),
    *("protected by copyright", "copyrighted", "under copyright", "copyright restrictions"),
    *("tut mir leid, aber", "kann ich leider nicht", "ich kann leider", "urheberrechtlich geschützt"),
    *("je suis désolé, mais", "je ne peux pas fournir", "je ne peux pas reproduire", "je ne suis pas en mesure"),
    *("protégé par le droit d'auteur", "protégé par des droits d'auteur"),
    *("对不起,我", "抱歉,我", "很抱歉,", "我无法提供", "我不能提供", "我无法继续", "受版权保护"),
)
"""Phrases in the form of :func:`_fold`. An answer counts as refused if it contains one of them near its beginning."""
# A refusal phrase counts only if it begins within this number of characters of the answer.
_MAX_PHRASE_START = 200
# Number of words that a refusal may use after its phrase for an explanation or another offer.
_MAX_EXPLANATION_WORDS = 60
_APOSTROPHES = str.maketrans(dict.fromkeys("‘’‛ʼ`´", "'"))
_FILTER_REASONS = frozenset(
    ("content_filter", "content_filtered", "recitation", "safety", "blocklist", "prohibited_content", "spii", "other")
)
_LENGTH_REASONS = frozenset(("length", "max_tokens", "model_context_window_exceeded"))


def recognise_outcome(text: str, finish_reason: str | None, expected_words: int) -> tuple[Outcome, str | None]:
    """Return the outcome of a request, and the phrase of a refusal.

    A refusal phrase does not count if at least ``expected_words`` + 60 words follow it. An example is "I can't give all
    of it, but it begins …".

    Args:
        text: The answer.
        finish_reason: The reason for the end of the answer, as the server reported it.
        expected_words: A shortened answer is measured if it has at least this number of words. A length limit or a
            filter may have shortened it.
    """
    reason = (finish_reason or "").casefold()
    n_words = len(hash_normalised_words(text))
    # Anthropic's servers report refusals themselves.
    if reason == "refusal":
        return "refused", None
    if reason in _FILTER_REASONS and n_words < expected_words:
        return "filtered", None
    if not n_words:
        return ("cut" if reason in _LENGTH_REASONS else "empty"), None
    phrase, rest = _find_refusal_phrase(text)
    if phrase is not None and len(hash_normalised_words(rest)) < expected_words + _MAX_EXPLANATION_WORDS:
        return "refused", phrase
    if reason in _LENGTH_REASONS and n_words < expected_words:
        return "cut", None
    return "answered", None


def _find_refusal_phrase(text: str) -> tuple[str | None, str]:
    """Return the earliest refusal phrase and the text after it."""
    folded = _fold(text)
    matches: list[tuple[int, str]] = []
    for phrase in REFUSAL_PHRASES:
        start = folded.find(phrase, 0, _MAX_PHRASE_START + len(phrase))
        if start >= 0:
            matches.append((start, phrase))
    if not matches:
        return None, ""
    start, phrase = min(matches)
    return phrase, folded[start + len(phrase) :]


def _fold(text: str) -> str:
    """Return the text in NFKC, case folded, with one kind of apostrophe and single spaces."""
    normalised = unicodedata.normalize("NFKC", text.translate(_APOSTROPHES))
    folded = unicodedata.normalize("NFKC", normalised.casefold())
    return re.sub(r"\s+", " ", folded).strip()


# asking.py adds the other columns.
_COLUMNS = [name for name in CHAT_ANSWERS.names if name not in ("model", "benchmark", "run_id")]
_TEXT_COLUMNS = [column.name for column in CHAT_ANSWERS.columns if column.quotes_text]

# Answers about several documents arrive in a mixed order, and building a matcher is expensive. So a few are cached.
get_matcher = lru_cache(8)(DocumentMatcher)


def send_requests(
    entry: ChatModel,
    requests: Sequence[AskRequest],
    journal: AskJournal,
    budget: Budget,
    *,
    keeps_text: bool,
    notify: Callable[[str], None],
    on_answer: Callable[[int], None],
) -> None:
    """Send the requests, and append a row per answer to the journal as soon as the answer arrives.

    If an error ends the run, the journal contains the answers before it.

    Args:
        entry: The chat model.
        requests: The requests to send.
        journal: The journal, which the caller has locked.
        budget: The budget of the run.
        keeps_text: Store prompts, answers and excerpts. Otherwise only their measures are stored.
        notify: Receives messages about retries.
        on_answer: Receives the number of answers after each answer.
    """
    n_answers = 0

    def record_answer(request: AskRequest, reply: ChatReply) -> None:
        nonlocal n_answers
        journal.append(build_answer_row(request, reply, entry, keeps_text=keeps_text))
        n_answers += 1
        on_answer(n_answers)

    prepared = ((request, *prepare_request(entry, request)) for request in requests)
    ask_all(entry, prepared, budget, record_answer, notify)


def prepare_request(entry: ChatModel, request: AskRequest) -> tuple[ChatPrompt, Sampling]:
    """Return the prompt and the sampling settings of a request."""
    sampling = Sampling(request.get_temperature(entry), entry.answer_tokens, request.draw or None)
    return ChatPrompt(entry.system_prompt, request.prompt), sampling


def build_answer_row(request: AskRequest, reply: ChatReply, entry: ChatModel, *, keeps_text: bool) -> dict[str, Any]:
    """Return the row of an answer without the columns model, benchmark and run_id."""
    whole_prompt = f"{entry.system_prompt or ''}\n\n{request.prompt}".strip()
    _, sampling = prepare_request(entry, request)
    reply_columns = asdict(reply)
    del reply_columns["text"]
    settings = {**sampling._asdict(), "system_prompt": entry.system_prompt if keeps_text else None}
    return {
        **_build_row(request.document, whole_prompt, reply.text, reply.finish_reason, request.target, keeps_text),
        **reply_columns,
        "passage": request.passage,
        "passage_start": request.span[0],
        "passage_end": request.span[1],
        "rung": request.style,
        "draw": request.draw,
        "request_sha256": request.compute_digest(entry),
        "settings": canonical_json(settings),
        "model_fingerprint": entry.fingerprint,
        "words_in": request.words_in,
    }


def build_imported_row(
    output: ImportedOutput, document: SearchedDocument, number: int, repeat: int, *, keeps_text: bool
) -> dict[str, Any]:
    """Return the row of an imported output without the columns model, benchmark and run_id.

    Args:
        output: The output.
        document: The document that the output is about.
        number: Number of the output among the outputs for the same passage, from 0.
        repeat: Number of the output among identical outputs, from 0.
        keeps_text: Store prompt, answer and excerpts.
    """
    passage: int | None = None
    span: tuple[int, int] | None = None
    if isinstance(output.passage, tuple):
        span = output.passage
    else:
        passage = output.passage
    words_in: int | None = None
    if output.prompt is not None:
        words_in = get_matcher(document.text).measure_answer(output.prompt, None, None).words_out
    return {
        **_build_row(document, output.prompt, output.output, output.finish_reason, span, keeps_text),
        "passage": passage,
        "passage_start": span and span[0],
        "passage_end": span and span[1],
        "rung": "handed over",
        "draw": number,
        "request_sha256": digest(compute_output_digest(output), text_sha256(document.text), repeat),
        "finish_reason": output.finish_reason,
        "settings": output.settings if keeps_text else None,
        "provider_request_id": output.request_id,
        "asked_at": output.asked_at,
        "words_in": words_in,
    }


def compute_output_digest(output: ImportedOutput) -> str:
    """Return the digest of an imported output. The position of the output in the file does not matter."""
    return digest(output.model_dump(mode="json", exclude={"document"}))


def remove_text(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of an answer without its texts and the system prompt.

    A run that may not store texts needs this, because an earlier, killed run may have left texts in the journal.
    """
    settings = {**json.loads(row["settings"]), "system_prompt": None}
    return {**row, **dict.fromkeys(_TEXT_COLUMNS), "settings": canonical_json(settings)}


def _build_row(
    document: SearchedDocument,
    prompt: str | None,
    output: str,
    finish_reason: str | None,
    target: tuple[int, int] | None,
    keeps_text: bool,
) -> dict[str, Any]:
    """Return a row with the document, the digests, the outcome and the measures of an answer. Other columns are None.

    An answer with a near stretch of the document counts as answered, even if it contains a refusal or was shortened.
    """
    row: dict[str, Any] = {
        **dict.fromkeys(_COLUMNS),
        "document_id": document.name,
        "side": document.side,
        "document_sha256": text_sha256(document.text),
        "prompt_sha256": None if prompt is None else text_sha256(prompt),
        "output_sha256": text_sha256(output),
    }
    if keeps_text:
        row |= {"prompt": prompt, "output": output}
    row["outcome"], row["refusal_phrase"] = recognise_outcome(output, finish_reason, MIN_NEAR_WORDS)
    if row["outcome"] == "empty":
        return row
    measures = get_matcher(document.text).measure_answer(output, prompt, target)
    if row["outcome"] != "answered" and not measures.near_span:
        return row
    row |= {"outcome": "answered", "refusal_phrase": None, **asdict(measures)}
    output_start = row.pop("output_start")
    if keeps_text and measures.run_start is not None:
        # The slices save cut_excerpt from splitting a whole book into words.
        original = document.text[measures.run_start : measures.run_start + EXCERPT_CHARACTERS]
        row["original_excerpt"] = cut_excerpt(original)
        row["output_excerpt"] = cut_excerpt(output[output_start : output_start + EXCERPT_CHARACTERS])
    return row
