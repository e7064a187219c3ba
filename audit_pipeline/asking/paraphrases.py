"""Paraphrases for the quiz, asked of another model, and added to a file that a person can read and correct.

What belongs here: which passages have none yet, asking, and the file's new rows. What does not: the prompt and how an
answer is read (quiz.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.asking.config import ChatModel
from audit_pipeline.asking.engine import Allowance, ChatReply, Prompt, Sampling, ask_all
from audit_pipeline.asking.ladder import WINDOW, find_passages
from audit_pipeline.asking.quiz import build_paraphrase_prompt, parse_paraphrases, read_paraphrases
from audit_pipeline.errors import DataError
from audit_pipeline.extraction.documents import SearchedDocument


@dataclass(frozen=True)
class UnparaphrasedPassage:
    """A passage of a document (by name) that the file has no paraphrases of."""

    document: str
    text: str

    def build_request(self, entry: ChatModel) -> tuple[Prompt, Sampling]:
        """What ``entry`` is asked. Three wordings of a passage are longer than an answer of the ladder."""
        # Drawn: an answer that is no three paraphrases may be one the next time.
        sampling = Sampling(entry.temperature, max(entry.answer_tokens, 9 * WINDOW))
        return Prompt(None, build_paraphrase_prompt(self.text)), sampling


def find_unparaphrased(file: Path, documents: Sequence[SearchedDocument], passages: int) -> list[UnparaphrasedPassage]:
    """The passages of the ladder without a row in ``file`` (.jsonl), which need not be there.

    Raises DataError where the file is of another kind, or no row of it can be used.
    """
    if file.suffix != ".jsonl":
        raise DataError(f"{file}: paraphrases are added to a .jsonl file")
    is_begun = file.exists() and file.stat().st_size > 0
    known = {(one.document, one.number) for one in read_paraphrases(file, documents)[0]} if is_begun else set()
    return [
        UnparaphrasedPassage(document.name, document.text[slice(*span)])
        for document in documents
        for passage in find_passages(document.text, passages)
        if (document.name, (span := passage.span(0, WINDOW))[0]) not in known
    ]


def add_paraphrases(
    file: Path,
    entry: ChatModel,
    wanted: Sequence[UnparaphrasedPassage],
    allowance: Allowance,
    tell: Callable[[str], None],
) -> tuple[int, int]:
    """Ask for paraphrases and add a row for each passage to ``file`` as they come.

    Returns how many were added, and how many answers were no three paraphrases. Raises as
    :func:`audit_pipeline.asking.engine.ask_all`; rows that were added by then stay.
    """
    added, unusable = 0, 0
    # People edit the file: its last line may have no end.
    is_unfinished = file.exists() and not file.read_bytes().endswith(b"\n") and file.stat().st_size > 0
    with file.open("a", encoding="utf-8") as rows:
        rows.write("\n" if is_unfinished else "")

        def keep(passage: UnparaphrasedPassage, reply: ChatReply) -> None:
            nonlocal added, unusable
            found = parse_paraphrases(reply.text)
            if found is None:
                unusable += 1
                return
            row = {"document": passage.document, "passage": passage.text, "paraphrases": found}
            rows.write(json.dumps({**row, "paraphrased_by": reply.answered_by}, ensure_ascii=False) + "\n")
            rows.flush()
            added += 1

        requests = ((passage, *passage.build_request(entry)) for passage in wanted)
        ask_all(entry, requests, allowance, keep, tell)
    return added, unusable
