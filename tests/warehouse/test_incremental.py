"""A build that carries rows over from the earlier warehouse gives what a build of everything gives, and reads less."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.catalogue.contracts import SCORES, TOKEN_STATISTICS
from audit_pipeline.catalogue.integrity import file_sha256
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import MadeAgainWarning
from audit_pipeline.operate.removal import RemovalTarget, find_removal, remove
from audit_pipeline.operate.stages.warehouse import build_warehouse
from audit_pipeline.warehouse import carried_over_rows, fill
from audit_pipeline.warehouse.build import WarehouseReport
from audit_pipeline.warehouse.carried_over_rows import LoadedFile, plan_reload
from audit_pipeline.warehouse.query import query_warehouse
from audit_pipeline.warehouse.schema import list_tables
from audit_pipeline.warehouse.table_files import FileRows, ListedFiles

from .conftest import BENCHMARKS, DAY, MODELS, Folder, write_config

LONG_AGO = 60.0
COMPARED = {
    # The digest of a file that was compared once is kept, where nothing names it any longer, too.
    "loaded_files": "* EXCLUDE sha256",
    # The last digit of a mean depends on the order in which rows are added up, which nobody promises.
    "group_scores": "* REPLACE (round(mean_score, 12) AS mean_score)",
}


def settle(paths: DataPaths) -> None:
    """As if the files that have just been written had been so a minute ago."""
    for file in paths.root.rglob("*.parquet"):
        stat = file.stat()
        if stat.st_mtime > time.time() - LONG_AGO / 2:
            moved = stat.st_mtime_ns - int(LONG_AGO * 1e9)
            os.utime(file, ns=(moved, moved))


def files_of(paths: DataPaths) -> int:
    """How many Parquet files the warehouse is made of."""
    return sum(1 for file in paths.root.rglob("*.parquet") if "kind=renyi" not in str(file))


def differences(one: Path, other: Path) -> dict[str, list[tuple[object, ...]]]:
    """By table: rows that only one of two warehouses holds; and what is declared in only one of them."""
    found = {}
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{one}' AS one (READ_ONLY); ATTACH '{other}' AS other (READ_ONLY)")
        for table in list_tables(include_text=True):
            columns = COMPARED.get(table.name, "*")
            a, b = (f"(SELECT {columns} FROM {name}.{table.name})" for name in ("one", "other"))
            rows = connection.execute(f"({a} EXCEPT ALL {b}) UNION ALL ({b} EXCEPT ALL {a})").fetchall()
            if rows:
                found[table.name] = rows
        for what in ("duckdb_views()", "duckdb_columns()", "duckdb_tables()"):
            names = "view_name AS name, comment" if "views" in what else "table_name AS name, comment"
            a, b = (
                f"(SELECT {names} FROM {what} WHERE database_name = '{name}' AND NOT internal)"
                for name in ("one", "other")
            )
            rows = connection.execute(f"({a} EXCEPT ALL {b}) UNION ALL ({b} EXCEPT ALL {a})").fetchall()
            if rows:
                found[what] = rows
    return found


def with_everything(paths: DataPaths, config: Path | None = None) -> tuple[WarehouseReport, Path]:
    """What a build of everything gives, in a file of its own; the warehouse and what is kept of it stay as they are."""
    kept = [(file, file.with_name(f"{file.name}.kept")) for file in (paths.warehouse, paths.warehouse_record)]
    for file, aside in kept:
        shutil.copy2(file, aside)
    report = build_warehouse(paths, config=config, everything=True)
    other = paths.warehouse.rename(paths.warehouse.with_name("everything.duckdb"))
    for file, aside in kept:
        aside.replace(file)
    return report, other


def carried(paths: DataPaths, config: Path | None = None) -> WarehouseReport:
    """Build, and compare with a build of everything."""
    settle(paths)
    report = build_warehouse(paths, config=config)
    expected, other = with_everything(paths, config)
    assert differences(paths.warehouse, other) == {}
    assert (report.rows, report.doubled) == (expected.rows, expected.doubled)
    assert report.unreadable == expected.unreadable
    assert expected.files_carried_over == 0
    assert report.files_loaded + report.files_carried_over == expected.files_loaded
    return report


@pytest.fixture
def once(audited: Folder) -> Folder:
    """The audited folder, whose warehouse has been built."""
    settle(audited.paths)
    build_warehouse(audited.paths)
    return audited


def test_the_file_is_of_the_oldest_storage_that_duckdb_writes_and_stays_so(once: Folder) -> None:
    # After the checksum of the header: the magic, and the number of the storage that DuckDB 1.1 reads.
    header = b"DUCK" + (64).to_bytes(8, "little")
    assert once.paths.warehouse.read_bytes()[8:20] == header
    assert build_warehouse(once.paths).files_carried_over > 0
    assert once.paths.warehouse.read_bytes()[8:20] == header


@pytest.fixture
def whatever_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are carried over, however many of them have gone."""
    monkeypatch.setattr(carried_over_rows, "MOST_TAKEN_OUT", 1000.0)


@dataclass
class Life:
    """What happens to a data folder, drawn at random."""

    folder: Folder
    config: Path
    random: random.Random
    damaged: dict[Path, bytes] = field(default_factory=dict)
    runs: int = 0

    @property
    def paths(self) -> DataPaths:
        return self.folder.paths

    def files(self, *names: str) -> list[Path]:
        return sorted(file for name in names for file in self.paths.table(name).rglob("*.parquet"))

    def a_file(self, *names: str) -> Path | None:
        files = self.files(*names)
        return self.random.choice(files) if files else None

    def audit(self) -> None:
        self.runs += 1
        benchmark, model = self.random.choice(sorted(BENCHMARKS)), self.random.choice(sorted(MODELS))
        # Of the past at times: it is not the latest then.
        finished = DAY + timedelta(days=self.random.randrange(-3, 9), minutes=self.runs)
        self.folder.write_audit(benchmark, model, f"run-of-{self.runs}", finished, signal=self.random.random())

    def build_benchmark(self) -> None:
        self.runs += 1
        benchmark = self.random.choice(sorted(BENCHMARKS))
        for row in self.folder.examples[benchmark]:
            row["group"] = f"{benchmark}-{self.random.randrange(9)}"
        self.folder.rewrite_examples(benchmark)
        file = self.paths.examples(benchmark)
        digest = file_sha256(file) if self.random.random() < 0.5 else None
        finished = DAY + timedelta(days=self.runs)
        self.folder.write_lineage("examples", benchmark, f"built-{self.runs}", finished, file_sha256=digest)

    def delete(self) -> None:
        file = self.a_file("scores", "evaluations", "lineage", "examples", "token_statistics", "split_quality")
        if file is not None:
            file.unlink()

    def damage(self) -> None:
        file = self.a_file("scores", "lineage", "examples", "token_statistics", "documents")
        if file is not None:
            self.damaged.setdefault(file, file.read_bytes())
            file.write_bytes(file.read_bytes()[:-30])

    def restore(self) -> None:
        for file, content in self.damaged.items():
            if file.parent.exists():
                file.write_bytes(content)
        self.damaged.clear()

    def cache(self) -> None:
        self.runs += 1
        texts = [self.folder.words(2) for _ in range(3)]
        self.folder.write_token_statistics(
            self.random.choice(sorted(MODELS)), ["four five", *texts], f"part-{self.random.randrange(-3, 99)}"
        )

    def copy(self) -> None:
        """A second file of the same run: what its rows are of does not tell the two apart."""
        file = self.a_file("scores", "examples")
        if file is not None:
            shutil.copy(file, file.with_name(f"copy-{self.random.randrange(3)}.parquet"))

    def exchange(self) -> None:
        """Each of two files has the other's name."""
        one, other = self.a_file("scores"), self.a_file("scores")
        if one is not None and other is not None:
            ours, theirs = one.read_bytes(), other.read_bytes()
            one.write_bytes(theirs)
            other.write_bytes(ours)

    def forget(self) -> None:
        remove(find_removal(RemovalTarget("model", self.random.choice(sorted(MODELS))), self.paths))

    def configure(self) -> None:
        models = self.random.sample(sorted([*MODELS, "another", "one more"]), 2)
        write_config(self.config, models)

    def fail(self) -> None:
        self.runs += 1
        pair = self.random.choice(sorted(BENCHMARKS)), self.random.choice(sorted(MODELS))
        self.folder.write_outcome(*pair, f"failed-{self.runs}", DAY + timedelta(days=self.runs))

    def events(self) -> list[Callable[[], None]]:
        often = [self.audit] * 6 + [self.build_benchmark] * 2 + [self.cache] * 2
        return [
            *(*often, self.delete, self.damage, self.restore, self.copy, self.exchange),
            *(self.configure, self.fail),
        ]


def live(folder: Folder, config: Path, seed: int, events: int) -> Iterator[WarehouseReport]:
    life = Life(folder, write_config(config), random.Random(seed))
    settle(folder.paths)
    build_warehouse(folder.paths, config=config)
    for number in range(events):
        # Once in a life: it takes half of the rows with it.
        happens = life.forget if number == events - 2 else life.random.choice(life.events())
        happens()
        yield carried(folder.paths, config)


@pytest.mark.usefixtures("whatever_is_taken_out")
def test_whatever_happens_the_rows_are_those_of_a_build_of_everything(audited: Folder, tmp_path: Path) -> None:
    reports = list(live(audited, tmp_path / "config", seed=2, events=3))
    assert all(report.files_carried_over for report in reports)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 13))
def test_in_a_long_life_the_rows_are_those_of_a_build_of_everything(audited: Folder, tmp_path: Path, seed: int) -> None:
    reports = list(live(audited, tmp_path / "config", seed, events=25))
    assert sum(report.files_carried_over > 0 for report in reports) > 12


def test_only_what_is_new_is_loaded(once: Folder) -> None:
    before = files_of(once.paths)
    once.write_audit("speeches_64", "tiny-125m", "later", DAY + timedelta(days=5))
    report = carried(once.paths)
    assert (report.files_loaded, report.files_carried_over) == (4, before), "scores, evaluations, an entry of each"
    again = build_warehouse(once.paths)
    assert (again.files_loaded, again.files_carried_over) == (0, before + 4)


def test_a_part_of_the_cache_brings_those_of_its_model_with_it(once: Folder) -> None:
    """The first part that holds a text gives its row; the others of the model must be there to be left out."""
    once.write_token_statistics("tiny-125m", ["four five", "six"], part="part-00")
    report = carried(once.paths)
    assert report.files_loaded == 2
    assert report.rows[TOKEN_STATISTICS.name] == 5


@pytest.mark.usefixtures("whatever_is_taken_out")
def test_a_second_file_of_one_run_is_counted_and_goes_alone(once: Folder) -> None:
    file = once.paths.run_file("scores", "notes_32|tiny-125m", "again-notes")
    copy = file.with_name("copy.parquet")
    shutil.copy(file, copy)
    settle(once.paths)
    assert build_warehouse(once.paths).doubled == {SCORES.name: 60 * 22}
    copy.unlink()
    report = carried(once.paths)
    assert (report.doubled, report.files_loaded) == ({}, 1), "the other one, whose rows could not be told from it"


def test_a_run_that_is_no_longer_the_latest_changes_the_scores_of_groups(once: Folder) -> None:
    entry = once.paths.run_file("lineage", "scores:notes_32|tiny-125m", "again-notes")
    entry.unlink()
    report = carried(once.paths)
    assert report.files_loaded == 0
    found = query_warehouse(once.paths.warehouse, "SELECT run_id FROM runs WHERE lineage_rows = 0").to_pylist()
    assert found == [{"run_id": "again-notes"}]


def test_an_entry_that_names_another_digest_than_the_one_that_was_compared_damages_the_file(once: Folder) -> None:
    assert build_warehouse(once.paths).unreadable == ()
    once.write_lineage("examples", "notes_32", "later", DAY + timedelta(days=3), file_sha256="0" * 64)
    report = carried(once.paths)
    assert [one.path for one in report.unreadable] == [once.paths.examples("notes_32")]
    assert "it is not as it was written" in report.unreadable[0].reason


@pytest.mark.usefixtures("whatever_is_taken_out")
def test_a_file_that_changed_a_moment_ago_is_loaded_again(once: Folder) -> None:
    once.write_audit("speeches_64", "tiny-125m", "later", DAY + timedelta(days=5))
    assert build_warehouse(once.paths).files_loaded == 4
    assert build_warehouse(once.paths).files_loaded == 4
    settle(once.paths)
    assert build_warehouse(once.paths).files_loaded == 4, "the time of their last change is another one"
    assert build_warehouse(once.paths).files_loaded == 0


def test_a_file_that_changed_without_a_trace_is_found_by_a_build_of_everything(once: Folder) -> None:
    file = once.paths.examples("notes_32")
    stat, content = file.stat(), bytearray(file.read_bytes())
    once.write_lineage("examples", "notes_32", "later", DAY + timedelta(days=3), file_sha256=file_sha256(file))
    settle(once.paths)
    assert build_warehouse(once.paths).unreadable == ()
    content[content.index(b"parquet-cpp")] ^= 1
    with file.open("rb+") as handle:
        handle.write(content)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert build_warehouse(once.paths).unreadable == ()
    assert [one.path for one in build_warehouse(once.paths, everything=True).unreadable] == [file]


def _without_record(paths: DataPaths) -> None:
    paths.warehouse_record.unlink()


def _damaged_record(paths: DataPaths) -> None:
    paths.warehouse_record.write_text(paths.warehouse_record.read_text("utf-8").replace("crc32", "crc33"), "utf-8")


def _record_of_another_version(paths: DataPaths) -> None:
    paths.warehouse_record.write_text('{"crc32": 1}', "utf-8")


def _damaged_warehouse(paths: DataPaths) -> None:
    content = bytearray(paths.warehouse.read_bytes())
    content[len(content) // 2] ^= 1
    paths.warehouse.write_bytes(content)


def _written_into(paths: DataPaths) -> None:
    with duckdb.connect(str(paths.warehouse)) as connection:
        connection.execute("DELETE FROM scores; CREATE TABLE mine AS SELECT 1 AS number")


def _deleted(paths: DataPaths) -> None:
    paths.warehouse.unlink()


def _half_of_the_rows_gone(paths: DataPaths) -> None:
    for file in sorted(paths.table("scores").rglob("*.parquet"))[::2]:
        file.unlink()


@pytest.mark.filterwarnings("ignore::audit_pipeline.errors.MadeAgainWarning")
@pytest.mark.parametrize(
    "events",
    [
        (_damaged_warehouse, _half_of_the_rows_gone),
        pytest.param(
            (_without_record, _damaged_record, _record_of_another_version, _written_into, _deleted),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_everything_is_built_where_the_earlier_warehouse_cannot_be_relied_on(
    once: Folder, events: tuple[Callable[[DataPaths], None], ...]
) -> None:
    for happens in events:
        happens(once.paths)
        assert build_warehouse(once.paths).files_carried_over == 0, happens.__name__
    assert carried(once.paths).files_loaded == 0


def test_everything_is_built_where_code_or_settings_are_others(once: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = once.paths
    assert build_warehouse(paths, include_text=False).files_carried_over == 0
    assert query_warehouse(paths.warehouse, "SELECT count(*) AS n FROM examples WHERE excerpt <> ''").to_pylist() == [
        {"n": 0}
    ]
    monkeypatch.setattr(carried_over_rows, "code_digest", lambda: "of another version")
    assert build_warehouse(paths, include_text=False).files_carried_over == 0
    assert build_warehouse(paths, include_text=False).files_loaded == 0


def test_everything_is_built_where_the_copy_cannot_be_brought_up_to_date(
    once: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise duckdb.InternalException("a fault of the database")

    once.paths.examples("notes_32").unlink()
    monkeypatch.setattr(fill, "delete_changed_rows", refuse)
    with pytest.warns(MadeAgainWarning, match="the whole warehouse is built again: a fault of the database"):
        report = build_warehouse(once.paths)
    assert report.files_carried_over == 0
    assert report.rows["examples"] == 60


def test_what_is_taken_out_adds_up_until_everything_is_built(once: Folder) -> None:
    """Each time a tenth of the scores is replaced; DuckDB does not give the room back."""
    carried_over = []
    file = once.paths.run_file("scores", "notes_32|tiny-125m", "again-notes")
    for _ in range(4):
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content)
        settle(once.paths)
        os.utime(file, ns=(file.stat().st_mtime_ns - 1000, file.stat().st_mtime_ns - len(carried_over) * 1000))
        carried_over.append(build_warehouse(once.paths).files_carried_over)
    assert carried_over[0] > 0
    assert 0 in carried_over
    share = pq.read_metadata(file).num_rows / sum(
        pq.read_metadata(one).num_rows for one in once.paths.root.rglob("*.parquet")
    )
    assert carried_over.index(0) == int(carried_over_rows.MOST_TAKEN_OUT / share)


VALUES = st.frozensets(st.sampled_from("abcd").map(lambda value: (value,)), max_size=2)


@given(st.lists(st.tuples(VALUES, st.booleans(), st.booleans()), max_size=7))
def test_no_row_that_stays_can_be_taken_for_one_that_goes(
    files: list[tuple[frozenset[tuple[str]], bool, bool]],
) -> None:
    """By what files hold, whether each is there still, and whether it has changed."""
    listed = {Path(f"{place}"): (1, 1, place) for place, (_, there, _) in enumerate(files) if there}
    loaded = {
        Path(f"{place}"): LoadedFile(Path(f"{place}"), (1, 2 if changed else 1, place), None, FileRows(1, holds))
        for place, (holds, _, changed) in enumerate(files)
    }
    found = plan_reload(ListedFiles(SCORES, listed), loaded, {})
    assert found.carried.keys() | set(found.load) == listed.keys()
    assert not found.carried.keys() & set(found.load)
    assert all(loaded[path].identity == listed[path] for path in found.carried)
    assert not any(one.gave.holds & found.out for one in found.carried.values())
    gone = loaded.keys() - found.carried.keys()
    assert found.out == frozenset().union(*(loaded[path].gave.holds for path in gone))
    assert found.rows_out == len(gone)
    # As few as possible: each that goes has changed, or shares with another that goes.
    changed = {path for path in loaded if loaded[path].identity != listed.get(path)}
    for path in gone - changed:
        others = frozenset().union(*(loaded[other].gave.holds for other in gone - {path}))
        assert loaded[path].gave.holds & others
