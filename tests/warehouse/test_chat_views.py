"""Views about chat models: attempts, and models without a card and scores."""

from __future__ import annotations

from datetime import timedelta

from made_data_folder import DAY, Folder

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.warehouse.query import query_warehouse

from .chats import CHAT, CHAT_PAIR, answer_row, document_row, refused_row, write_asking

LATER = DAY + timedelta(days=1)
ATTEMPTS = "SELECT run_id, settings, tried, unit, found, outcome, is_current FROM attempts WHERE kind = 'asked'"


def sees(folder: Folder, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in query_warehouse(build_warehouse(folder.paths).path, sql).to_pylist()]


def test_every_run_of_asking_is_an_attempt(folder: Folder) -> None:
    held_out = document_row("new", side="held_out", claim="reproduced")
    write_asking(
        folder,
        [answer_row("one"), answer_row("two", outcome="refused"), answer_row("new", side="held_out")],
        [refused_row("one"), refused_row("two"), document_row("one", "title"), held_out],
        run_id="run-first",
    )
    write_asking(
        folder,
        [answer_row("one", draw=1)],
        [document_row("one", claim="reproduced"), document_row("one", "prefix", claim="reproduced"), held_out],
        at=LATER,
    )
    first = "audited documents reproduced by the rung named beforehand: 0 of 2"
    second = "audited documents reproduced by the rung named beforehand: 1 of 1"
    assert sees(folder, ATTEMPTS) == [
        ("run-first", 2, 2, "requests", 0, f"{first}; requests about them that were answered: 1 of 2", False),
        ("run-asked", 2, 1, "requests", 1, f"{second}; requests about them that were answered: 1 of 1", True),
    ]


def test_a_run_that_asks_nothing_new_concludes_from_earlier_answers(folder: Folder) -> None:
    write_asking(folder, [answer_row("one")], run_id="run-killed")
    write_asking(folder, [], [document_row("one", claim="reproduced")], at=LATER)
    rows = sees(folder, ATTEMPTS)
    assert [(run_id, tried, found, is_current) for run_id, _, tried, _, found, _, is_current in rows] == [
        ("run-killed", 1, None, False),
        ("run-asked", 0, 1, True),
    ]
    assert sees(folder, "SELECT count(*) FROM chat_answers") == [(1,)]
    assert sees(folder, "SELECT count(*) FROM current_chat_documents") == [(1,)]


def test_a_model_with_answers_only_is_covered_without_lineage_gaps(folder: Folder) -> None:
    write_asking(folder, [answer_row("one")], [document_row("one")])
    for view in ("lineage_gaps", "leaderboard", "changes_since_last_audit"):
        assert sees(folder, f"FROM {view}") == [], view
    covered = f"SELECT benchmark, status, reason, has_results FROM coverage WHERE model = '{CHAT}'"
    assert sees(folder, covered) == [(CHAT_PAIR.benchmark, "done", None, True)]
    assert sees(folder, "SELECT DISTINCT model, benchmark FROM current_runs") == [(CHAT, CHAT_PAIR.benchmark)]
    assert sees(folder, "SELECT DISTINCT texts, tokens FROM cost") == [(None, None)]
