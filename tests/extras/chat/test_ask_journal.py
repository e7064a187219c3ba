"""The journal of a run: rows are read unchanged, without an incomplete last line."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from audit_pipeline.errors import DataError
from audit_pipeline.extras.chat.rows import AskJournal
from audit_pipeline.extras.maintenance.forgetting import RemovalTarget, execute_removal, find_removal, list_stored_names
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Pair
from tests.warehouse.chats import answer_row

AT = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)


def row(number: int, asked_at: datetime | None = AT) -> dict[str, Any]:
    return {"number": number, "output": "two\nlines \u2028 and “more” \r", "asked_at": asked_at, "edits": None}


@pytest.fixture
def journal(tmp_path: Path) -> AskJournal:
    return AskJournal(tmp_path / "answers.jsonl")


def test_rows_are_read_unchanged(journal: AskJournal) -> None:
    assert journal.read() == []
    journal.append(row(0))
    journal.append(row(1, None))
    assert journal.read() == [row(0), row(1, None)]
    assert journal.path.stat().st_mode & 0o777 == 0o600


def test_an_incomplete_last_line_is_removed(journal: AskJournal) -> None:
    journal.append(row(0))
    whole = journal.path.stat().st_size
    journal.append(row(1))
    for size in range(journal.path.stat().st_size - 1, whole, -1):
        os.truncate(journal.path, size)
        assert journal.read() == [row(0)]
    with journal.hold():
        journal.append(row(2))
    assert journal.read() == [row(0), row(2)]


@pytest.mark.parametrize("damaged", [b"nonsense", b"[]", b'{"number": 1}', b'{"asked_at": "then"}'])
def test_a_corrupt_line_is_reported_with_file_and_number(damaged: bytes, journal: AskJournal) -> None:
    journal.append(row(0))
    with journal.path.open("ab") as file:
        file.write(damaged + b"\n")
    journal.append(row(2))
    with pytest.raises(DataError, match=r"answers\.jsonl, line 2: The line is corrupt"):
        journal.read()


def test_a_journal_without_results_is_removed(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path / "data")
    folder = paths.run_file("chat_answers", Pair("shelf", "talker").partition, "any").parent
    journal = AskJournal(folder / ".asked.jsonl")
    with journal.hold():
        journal.append(answer_row("two", output="a sentence that is nowhere else"))
    assert list_stored_names("model", paths) == {"talker"}
    assert list_stored_names("benchmark", paths) == {"shelf"}
    removal = find_removal(RemovalTarget("benchmark", "shelf"), paths)
    assert [(row["what"], row["files"]) for row in removal.list_removed_kinds()] == [("chat_answers", 2)]
    execute_removal(removal, paths)
    assert not folder.exists()
