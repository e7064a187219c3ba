"""Every pair has exactly one status: what the planner says of the facts that stand in the tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.catalogue.contracts import COVERAGE
from audit_pipeline.catalogue.files import read_json, write_json
from audit_pipeline.catalogue.ledger import Entry as LedgerEntry
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.sql import quote_identifier
from audit_pipeline.catalogue.table import Table
from audit_pipeline.operate.coverage import Present, build_coverage_table
from audit_pipeline.operate.facts import BenchmarkFacts, Situation
from audit_pipeline.operate.situation import CODE
from audit_pipeline.operate.stages.warehouse import build_warehouse
from audit_pipeline.warehouse.query import open_read_only
from audit_pipeline.warehouse.schema import (
    create_tables,
    create_views,
    fill_derived_tables,
    list_tables,
)
from audit_pipeline.warehouse.table_files import insert_rows as fill_table

from .conftest import BENCHMARKS, DAY, MODELS, Folder, temporal, write_config

# --- the rule, told once more in Python, over histories of up to two models and two benchmarks ---

NAMES = st.sampled_from(["m1", "m2"])
SPOTS = st.sampled_from(["x", "y"])
HOURS = st.integers(0, 4)
DIGESTS = st.sampled_from(["d1", "d2", None])
PRINTS = st.sampled_from(["f1", "f2", None])
TOKENIZERS = st.sampled_from(["t1", "t2", None])


@dataclass(frozen=True)
class Entry:
    """A lineage entry of a pair, with or without the rows that it explains."""

    table: str
    model: str
    benchmark: str
    run_id: str
    hour: int
    digest: str | None
    fingerprint: str | None
    tokenizer: str | None
    has_rows: bool
    code: str | None


@dataclass(frozen=True)
class Stop:
    model: str
    benchmark: str
    run_id: str
    hour: int
    status: str


@dataclass(frozen=True)
class Card:
    fingerprint: str
    name: str | None
    tokenizer: str | None
    hour: int | None


@dataclass
class History:
    models: list[str]
    asked: dict[str, bool | None]
    built: dict[str, str]
    entries: list[Entry]
    stops: list[Stop]
    cards: list[Card] = field(default_factory=list)
    on_request: set[str] = field(default_factory=set)


ENTRIES = st.builds(
    Entry,
    st.sampled_from(["scores", "evaluations"]),
    NAMES,
    SPOTS,
    st.sampled_from(["r1", "r2", "r3"]),
    HOURS,
    DIGESTS,
    PRINTS,
    TOKENIZERS,
    st.sampled_from([True, True, True, False]),
    st.sampled_from(["now", "now", "old"]),
)
HISTORIES = st.builds(
    History,
    st.lists(NAMES, unique=True),
    st.dictionaries(SPOTS, st.sampled_from([True, False, None])),
    st.dictionaries(SPOTS, st.sampled_from(["d1", "d2"])),
    st.lists(ENTRIES, max_size=6, unique_by=lambda entry: (entry.table, entry.model, entry.benchmark, entry.run_id)),
    st.lists(
        st.builds(
            Stop,
            NAMES,
            SPOTS,
            st.sampled_from(["r1", "r4", "r5"]),
            HOURS,
            st.sampled_from(["failed", "not_applicable"]),
        ),
        max_size=4,
        unique_by=lambda stop: (stop.model, stop.benchmark, stop.run_id),
    ),
    st.lists(
        st.builds(
            Card, st.sampled_from(["f1", "f2", "f3"]), st.none() | NAMES, TOKENIZERS, st.none() | st.integers(0, 4)
        ),
        max_size=3,
        unique_by=lambda card: card.fingerprint,
    ),
    st.sets(NAMES | SPOTS, max_size=2),
)


def when(hour: int | None) -> datetime | None:
    return None if hour is None else DAY + timedelta(hours=hour)


def expected(history: History) -> dict[tuple[str, str], dict[str, Any]]:
    """The coverage, worked out pair by pair."""
    ran = {(entry.model, entry.benchmark) for entry in history.entries if entry.has_rows}
    pairs = {(model, benchmark) for model in history.models for benchmark in history.asked}
    pairs |= ran | {(stop.model, stop.benchmark) for stop in history.stops}
    return {pair: status_of(history, *pair, has_run=pair in ran) for pair in pairs}


Found = tuple[int, str, Entry | None]


def latest(history: History, table: str, model: str, benchmark: str) -> Found | None:
    """The rows of a pair that count: hour, run, and the entry that explains them, where there is one."""
    found: list[Found] = [
        (entry.hour, entry.run_id, entry)
        for entry in history.entries
        if entry.has_rows and (entry.table, entry.model, entry.benchmark) == (table, model, benchmark)
    ]
    return max(found, key=lambda one: one[:2], default=None)


def status_of(history: History, model: str, benchmark: str, *, has_run: bool) -> dict[str, Any]:
    audit, scored = (latest(history, table, model, benchmark) for table in ("evaluations", "scores"))
    stops = [stop for stop in history.stops if (stop.model, stop.benchmark) == (model, benchmark)]
    stop = max(stops, key=lambda found: (found.hour, found.run_id), default=None)
    row: dict[str, Any] = {
        "is_configured": model in history.models and benchmark in history.asked,
        "last_audited_at": when(audit[0]) if audit and audit[2] else None,
        "outcome_at": when(stop.hour) if stop else None,
        "stage": None,
        "reason": None,
        "run_id": audit[1] if audit else None,
        "has_results": audit is not None,
    }
    if stop and (audit is None or stop.hour > audit[0]):
        return {**row, "status": stop.status, "reason": f"why {stop.run_id}", "stage": "scores", "run_id": stop.run_id}
    if audit is None and not has_run and history.on_request & {model, benchmark}:
        return {**row, "status": "not_requested", "reason": "audited on request only"}
    if audit is None:
        unfinished = "scored, not evaluated" if has_run else "never audited"
        reason = unfinished if benchmark in history.built else "the benchmark has not been built"
        return {**row, "status": "missing", "reason": reason}
    doubts = doubts_about(history, model, benchmark, audit[2], scored)
    return {**row, "status": "stale" if doubts else "done", "reason": "; ".join(doubts) or None}


def doubts_about(history: History, model: str, benchmark: str, audit: Entry | None, scored: Found | None) -> list[str]:
    doubts = []
    if history.asked and benchmark not in history.asked:
        doubts.append("the benchmark is no longer in the configuration")
    if benchmark not in history.built:
        doubts.append("the benchmark is no longer built")
    if audit and differ(audit.digest, history.built.get(benchmark)):
        doubts.append("the benchmark was rebuilt since")
    if benchmark in history.built and history.asked.get(benchmark) is False:
        doubts.append("its entry in the configuration or its sources changed since it was built")
    seen: list[tuple[int, str, str]] = [
        (entry.hour, entry.fingerprint, entry.tokenizer or "")
        for entry in history.entries
        if entry.model == model and entry.fingerprint is not None
    ]
    seen += [
        (-1 if card.hour is None else card.hour, card.fingerprint, card.tokenizer or "")
        for card in history.cards
        if card.name == model
    ]
    if audit and seen:
        _, fingerprint, tokenizer = max(seen)
        if differ(fingerprint, audit.fingerprint) or differ(tokenizer or None, audit.tokenizer):
            doubts.append("the model's files changed since")
    gone = {
        table
        for table in ("scores", "evaluations")
        if (last := last_entry(history, table, model, benchmark)) is not None and not last.has_rows
    }
    if scored is None or "scores" in gone:
        doubts.append("a file of its scores is damaged or gone")
    elif gone:
        doubts.append("a file of its findings is damaged or gone")
    if scored is not None and scored[2] is not None and differ(scored[2].code, "now"):
        doubts.append("the code that scores changed since")
    if audit and differ(audit.code, "now"):
        doubts.append("the code that evaluates changed since")
    return doubts


def last_entry(history: History, table: str, model: str, benchmark: str) -> Entry | None:
    entries = [one for one in history.entries if (one.table, one.model, one.benchmark) == (table, model, benchmark)]
    return max(entries, key=lambda one: (one.hour, one.run_id), default=None)


def differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def insert(connection: duckdb.DuckDBPyConnection, into: str, /, **row: object) -> None:
    names, marks = ", ".join(map(quote_identifier, row)), ", ".join("?" for _ in row)
    connection.execute(f"INSERT INTO {into} ({names}) VALUES ({marks})", list(row.values()))


def fill(connection: duckdb.DuckDBPyConnection, history: History) -> None:
    for table in list_tables(include_text=True):
        connection.execute(f"DELETE FROM {table.name}")
    for model in history.models:
        insert(connection, "configured_models", name=model, on_request=model in history.on_request)
    for benchmark, is_up_to_date in history.asked.items():
        on_request = benchmark in history.on_request
        insert(
            connection,
            "configured_benchmarks",
            benchmark=benchmark,
            is_up_to_date=is_up_to_date,
            on_request=on_request,
        )
    for benchmark, digest in history.built.items():
        insert(connection, "benchmarks", benchmark=benchmark, digest=digest)
    for entry in history.entries:
        partition = f"{entry.benchmark}|{entry.model}"
        insert(
            connection,
            "lineage",
            **{"table": entry.table, "partition": partition, "run_id": entry.run_id, "finished_at": when(entry.hour)},
            benchmark_digest=entry.digest,
            model_fingerprint=entry.fingerprint,
            tokenizer_fingerprint=entry.tokenizer,
            code_version=entry.code,
            data_version=f"{entry.run_id} of {entry.table}",
            upstream_data_versions="{}",
        )
        if entry.has_rows:
            for _ in range(2):
                insert(connection, entry.table, model=entry.model, benchmark=entry.benchmark, run_id=entry.run_id)
    for stop in history.stops:
        insert(
            connection,
            "outcomes",
            model=stop.model,
            benchmark=stop.benchmark,
            stage="scores",
            status=stop.status,
            reason=f"why {stop.run_id}",
            run_id=stop.run_id,
            recorded_at=when(stop.hour),
        )
    for card in history.cards:
        loaded = when(card.hour)
        insert(
            connection,
            "models",
            fingerprint=card.fingerprint,
            name=card.name,
            tokenizer_fingerprint=card.tokenizer,
            first_loaded_at=loaded.isoformat() if loaded else None,
            card=json.dumps(
                {
                    "fingerprint": card.fingerprint,
                    "name": card.name,
                    "tokenizer_fingerprint": card.tokenizer,
                    "first_loaded_at": loaded.isoformat() if loaded else None,
                }
            ),
        )
    # What a build leaves behind in its connection, which ends with it.
    for (name,) in connection.execute("SELECT table_name FROM duckdb_tables() WHERE temporary").fetchall():
        connection.execute(f"DROP TABLE {name}")
    loaded = [to_ledger_entry(entry) for entry in history.entries if entry.has_rows]
    fill_derived_tables(connection, loaded, [], loaded, {}, DataPaths(Path("nowhere")))
    for entry in history.entries:
        if not entry.has_rows:
            partition = f"{entry.benchmark}|{entry.model}"
            insert(connection, "files_gone", table=entry.table, partition=partition, run_id=entry.run_id)
    fill_table(connection, COVERAGE, build_coverage_table(connection, present(history), DataPaths(Path("nowhere"))))


def to_ledger_entry(entry: Entry) -> LedgerEntry:
    time = when(entry.hour) or DAY
    partition = f"{entry.benchmark}|{entry.model}"
    return LedgerEntry(entry.table, partition, entry.run_id, entry.table, "", "", time, time, {}, {}, rows=2)


def present(history: History) -> Present:
    """What the configuration asks for, and what of it is built."""
    benchmarks = {
        name: BenchmarkFacts({True: built, False: "another", None: None}[is_up_to_date], built)
        for name, is_up_to_date in history.asked.items()
        for built in [history.built.get(name)]
    }
    return Present(Situation(benchmarks=benchmarks, code={"scores": "now", "evaluations": "now"}), {})


@pytest.fixture(scope="module")
def emptied() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        # Rows here hold what the view reads, and nothing else.
        create_tables(connection, [without_constraints(table) for table in list_tables(include_text=True)])
        create_views(connection)
        yield connection


def without_constraints(table: Table) -> Table:
    return replace(table, kept="derived", columns=tuple(replace(column, null=True) for column in table.columns))


@max_examples(60)
@given(HISTORIES)
def test_the_table_says_what_the_rule_says(emptied: duckdb.DuckDBPyConnection, history: History) -> None:
    fill(emptied, history)
    rows = emptied.sql("FROM coverage").to_arrow_table().to_pylist()
    found = {(row.pop("model"), row.pop("benchmark")): row for row in rows}
    assert len(found) == len(rows)
    assert found == expected(history)

    left = emptied.sql("FROM not_audited").to_arrow_table().to_pylist()
    worst_first = ("failed", "stale", "missing")
    order = [(worst_first.index(row["status"]), row["model"], row["benchmark"]) for row in left]
    assert order == sorted(order)
    assert {(row["model"], row["benchmark"]) for row in left} == {
        pair for pair, row in found.items() if row["status"] in worst_first
    }


# --- on a data folder, as people change it ---


@dataclass
class Audited:
    """The audited folder, with a configuration of its own, and its coverage as it is now."""

    folder: Folder
    config: Any
    unreadable: Sequence[Path] = ()

    def coverage(self) -> dict[tuple[str, str], tuple[str, str | None]]:
        report = build_warehouse(self.folder.paths, config=self.config)
        self.unreadable = [one.path for one in report.filled.left_out]
        with open_read_only(self.folder.paths.warehouse) as connection:
            rows = connection.sql("SELECT model, benchmark, status, reason FROM coverage").fetchall()
        return {(model, benchmark): (status, reason) for model, benchmark, status, reason in rows}

    def changed(self) -> dict[tuple[str, str], tuple[str, str | None]]:
        return {pair: said for pair, said in self.coverage().items() if said != ("done", None)}


@pytest.fixture
def live(audited: Folder, tmp_path: Any) -> Audited:
    return Audited(audited, write_config(tmp_path / "config"))


ALL_DONE = {(model, benchmark): ("done", None) for model in MODELS for benchmark in BENCHMARKS}


def test_a_fault_and_the_run_that_made_up_for_it(live: Audited) -> None:
    pair = ("tiny-125m", "speeches_64")
    live.folder.write_outcome("speeches_64", "tiny-125m", "r7", DAY + timedelta(days=2), "failed", "out of memory")
    assert live.changed() == {pair: ("failed", "out of memory")}
    live.folder.write_audit("speeches_64", "tiny-125m", "r8", DAY + timedelta(days=3))
    assert live.changed() == {}


def test_another_build_of_a_benchmark_and_scores_that_are_not_an_audit(live: Audited) -> None:
    path = live.folder.paths.benchmark_manifest("notes_32")
    write_json(path, {**read_json(path), "digest": "of another build"})
    live.folder.paths.run_file("evaluations", "speeches_64|tiny-125m", "run-0-speeches_64").unlink()
    assert live.changed() == {
        **{(model, "notes_32"): ("stale", "the benchmark was rebuilt since") for model in MODELS},
        ("tiny-125m", "speeches_64"): ("missing", "scored, not evaluated"),
    }


def test_a_benchmark_taken_out_of_the_configuration_is_not_done_silently(live: Audited) -> None:
    write_config(live.config, speeches=temporal("speeches", 64))
    removed = "the benchmark is no longer in the configuration"
    assert live.changed() == {(model, "notes_32"): ("stale", removed) for model in MODELS}
    live.folder.paths.benchmark_manifest("notes_32").unlink()
    gone = f"{removed}; the benchmark is no longer built"
    assert live.changed() == {(model, "notes_32"): ("stale", gone) for model in MODELS}


def test_a_configuration_that_cannot_be_read_removes_nothing(live: Audited) -> None:
    (live.config / "benchmarks.yaml").write_text("benchmarks: [", encoding="utf-8")
    assert live.coverage() == ALL_DONE


def test_a_new_model_and_a_new_benchmark(live: Audited) -> None:
    families = {source: temporal(source, length) for source, length in BENCHMARKS.values()}
    write_config(live.config, [*MODELS, "new"], **families, more=temporal("notes", 8))
    unbuilt = ("missing", "the benchmark has not been built")
    assert live.changed() == {
        ("new", "notes_32"): ("missing", "never audited"),
        ("new", "speeches_64"): ("missing", "never audited"),
        **{(model, "more_8"): unbuilt for model in (*MODELS, "new")},
    }


def test_other_files_under_a_models_name_and_the_first_ones_again(live: Audited) -> None:
    live.folder.write_card("tiny-125m", "another", DAY + timedelta(days=2))
    changed = ("stale", "the model's files changed since")
    assert live.changed() == {("tiny-125m", benchmark): changed for benchmark in BENCHMARKS}
    # Back to the first files: no card tells, since theirs is an old one, but the run that used them does.
    live.folder.write_audit("notes_32", "tiny-125m", "back", DAY + timedelta(days=3))
    assert live.changed() == {}


def test_a_model_off_the_command_line_is_covered_too(live: Audited) -> None:
    write_config(live.config, ["tiny-125m"])
    assert live.coverage() == ALL_DONE
    with open_read_only(live.folder.paths.warehouse) as connection:
        outside = connection.sql("SELECT DISTINCT model FROM coverage WHERE NOT is_configured").fetchall()
    assert outside == [("small <2b> $x$",)]


def test_what_a_pair_rests_on_beside_benchmark_and_files(live: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CODE, "evaluations", "another")
    evaluates = "the code that evaluates changed since"
    assert set(live.changed().values()) == {("stale", evaluates)}
    monkeypatch.setitem(CODE, "scores", "another")
    assert set(live.changed().values()) == {("stale", f"the code that scores changed since; {evaluates}")}
    monkeypatch.undo()
    live.folder.paths.run_file("scores", "speeches_64|tiny-125m", "run-0-speeches_64").write_bytes(b"half")
    gone = "a file of its scores is damaged or gone"
    assert live.changed() == {("tiny-125m", "speeches_64"): ("stale", gone)}


def test_the_columns_of_both_are_these(warehouse: Any) -> None:
    told = ["model", "benchmark", "is_configured", "status", "reason", "has_results", "stage"]
    told += ["last_audited_at", "outcome_at", "run_id"]
    with open_read_only(warehouse) as connection:
        for name in ("coverage", "not_audited"):
            assert connection.table(name).columns == told
