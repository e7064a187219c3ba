"""Removing a model or a benchmark removes the journal of a killed run."""

from __future__ import annotations

from pathlib import Path

from audit_pipeline.extras.chat.rows import AskJournal
from audit_pipeline.extras.maintenance.forgetting import RemovalTarget, execute_removal, find_removal, list_stored_names
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Pair
from tests.warehouse.chats import answer_row


def test_a_journal_without_results_is_removed(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path / "data")
    folder = paths.run_file("chat_answers", Pair("shelf", "talker").partition, "any").parent
    journal = AskJournal(folder / ".asked.jsonl")
    with journal.hold():
        journal.append(answer_row("two", output="a sentence that is nowhere else"))
    assert list_stored_names("model", paths) == {"talker"}
    assert list_stored_names("benchmark", paths) == {"shelf"}
    removal = find_removal(RemovalTarget("benchmark", "shelf"), paths)
    assert [(row["what"], row["files"]) for row in removal.list_kinds()] == [("chat_answers", 2)]
    execute_removal(removal, paths)
    assert not folder.exists()
