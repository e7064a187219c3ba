"""Forgetting a model or a benchmark takes its answers, the journal of a run that was killed, and what was concluded."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit_pipeline.extras.chat.journal import AskJournal
from audit_pipeline.extras.maintenance.removal import RemovalTarget, carry_out, find_removal, list_kept_names
from audit_pipeline.pipeline.stages.warehouse import build_warehouse
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Pair
from audit_pipeline.warehouse.query import query_warehouse
from tests.warehouse.chats import answer_row, document_row, write_asking
from tests.warehouse.conftest import Folder

SECRET = "a sentence that is nowhere else"
TABLES = ("chat_answers", "chat_documents")
PAIRS = (Pair("shelf", "talker"), Pair("shelf", "other"), Pair("letters", "talker"))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Three pairs, each with a finished run; of the first, a journal of one that was killed as well."""
    made = Folder(DataPaths(tmp_path / "data"))
    for pair in PAIRS:
        answer = answer_row("one", output=SECRET, prompt=SECRET, original_excerpt=SECRET, output_excerpt=SECRET)
        write_asking(made, [answer], [document_row("one", title=SECRET)], pair=pair)
    keep_in_journal(made)
    build_warehouse(made.paths)
    return made


def journal_of(folder: Folder) -> Path:
    return folder.paths.run_file("chat_answers", PAIRS[0].partition, "any").parent / ".asked.jsonl"


def keep_in_journal(folder: Folder) -> None:
    """As a run that was killed leaves it, with the file of its lock."""
    journal = AskJournal(journal_of(folder))
    with journal.hold():
        journal.append(answer_row("two", output=SECRET))


def holding(folder: Folder, name: str) -> list[Path]:
    """The files and folders whose path names a model or benchmark."""
    return [path for path in folder.paths.root.rglob("*") if name in path.name]


def test_answers_journal_and_lineage_go(folder: Folder) -> None:
    target = RemovalTarget("model", "talker")
    removal = find_removal(target, folder.paths)
    counted = {row["what"]: row["files"] for row in removal.measure()}
    # Two pairs go, each with a row of each table; the journal and its lock are files, too.
    assert {table: counted[table] for table in TABLES} == {"chat_answers": 4, "chat_documents": 2}
    carry_out(removal, folder.paths)
    assert not journal_of(folder).parent.exists()
    assert holding(folder, target.name) == []
    assert target.name not in list_kept_names(target.dimension, folder.paths)
    build_warehouse(folder.paths)
    for table in (*TABLES, "runs"):
        rows = query_warehouse(folder.paths.warehouse, f"SELECT DISTINCT benchmark, model FROM {table}").to_pylist()
        assert {(row["benchmark"], row["model"]) for row in rows} == {("shelf", "other")}, table


def test_a_journal_alone_is_found_and_goes(tmp_path: Path) -> None:
    """Of a first run that was killed there is no row and no lineage."""
    folder = Folder(DataPaths(tmp_path / "data"))
    keep_in_journal(folder)
    assert list_kept_names("model", folder.paths) == {"talker"}
    assert list_kept_names("benchmark", folder.paths) == {"shelf"}
    carry_out(find_removal(RemovalTarget("benchmark", "shelf"), folder.paths), folder.paths)
    assert not journal_of(folder).parent.exists()
