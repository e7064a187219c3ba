"""Paraphrases for the quiz, asked of another model, and added to a file that a person can read and correct.

What belongs here: which passages have none yet, asking, and the file's new rows. What does not: the prompt and how an
answer is read (quiz.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from audit_pipeline.asking.config import ChatModel
from audit_pipeline.asking.engine import Allowance, ChatReply, Prompt, Sampling, ask_all
from audit_pipeline.asking.ladder import WINDOW, find_passages
from audit_pipeline.asking.quiz import build_paraphrase_prompt, parse_paraphrases, read_paraphrases
from audit_pipeline.errors import DataError
from audit_pipeline.extraction.documents import SearchedDocument


def add_paraphrases(
    file: Path,
    entry: ChatModel,
    documents: Sequence[SearchedDocument],
    passages: int,
    allowance: Allowance,
    tell: Callable[[str], None],
) -> tuple[int, int]:
    """Add a row to ``file`` (.jsonl) for each passage of the ladder without one; how many were added, and how many
    answers of ``entry`` were no three paraphrases.

    A passage of the quiz is a whole one of the ladder. Raises DataError where the file is of another kind, and as
    :func:`audit_pipeline.asking.engine.ask_all`; rows that were added by then stay.
    """
    if file.suffix != ".jsonl":
        raise DataError(f"{file}: paraphrases are added to a .jsonl file")
    is_begun = file.exists() and file.stat().st_size > 0
    known = {(one.document, one.span) for one in read_paraphrases(file, documents)[0]} if is_begun else set()
    wanted = [
        (document.name, document.text[slice(*span)])
        for document in documents
        for passage in find_passages(document.text, passages)
        if (document.name, span := passage.span(0, WINDOW)) not in known
    ]
    added, unusable = 0, 0
    with file.open("a", encoding="utf-8") as rows:

        def keep(place: tuple[str, str], reply: ChatReply) -> None:
            nonlocal added, unusable
            found = parse_paraphrases(reply.text)
            if found is None:
                unusable += 1
                return
            row = {"document": place[0], "passage": place[1], "paraphrases": found, "paraphrased_by": reply.answered_by}
            rows.write(json.dumps(row, ensure_ascii=False) + "\n")
            rows.flush()
            added += 1

        # Three wordings of a passage are longer than an answer of the ladder.
        sampling = Sampling(0.0, max(entry.answer_tokens, 9 * WINDOW))
        prompts = ((place, Prompt(None, build_paraphrase_prompt(place[1])), sampling) for place in wanted)
        ask_all(entry, prompts, allowance, keep, tell)
    return added, unusable
