"""The chain of lineage rows: what is missed, what is not, and writers that are killed or come at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.catalogue import lineage_chain, store
from audit_pipeline.catalogue.contracts import LINEAGE, SCORES
from audit_pipeline.catalogue.files import read_json, read_rows, table_from_rows, write_table
from audit_pipeline.catalogue.integrity import row_sha256, with_row_sha256
from audit_pipeline.catalogue.lineage import LineageStep, entry_file, record_lineage
from audit_pipeline.catalogue.lineage_chain import (
    ChainRecord,
    follow_chain,
    order_chain,
    read_chain_record,
    withdraw_rows,
)
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.warehouse import build
from audit_pipeline.warehouse.build import read_lineage_chain

Row = dict[str, Any]
FIRST_DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)


def whole_row(number: int, previous: str | None, **changes: object) -> Row:
    row = dict.fromkeys(LINEAGE.names) | {
        "table": "scores",
        "partition": f"b_{number}|m",
        "run_id": f"run-{number}",
        "finished_at": FIRST_DAY + timedelta(hours=number),
        "previous_sha256": previous,
    }
    return with_row_sha256(row | changes)


def chain_of(length: int) -> tuple[list[Row], ChainRecord]:
    """Rows 0 … length - 1, each linked to the one before, and what a writer leaves beside them."""
    rows: list[Row] = []
    for number in range(length):
        rows.append(whole_row(number, rows[-1]["row_sha256"] if rows else None))
    return rows, ChainRecord(rows[-1]["row_sha256"], length)


def redacted(row: Row) -> Row:
    return {name: row[name] for name in ("row_sha256", "previous_sha256")}


def problems(rows: list[Row], record: ChainRecord) -> tuple[str, ...]:
    return follow_chain(rows, record).problems


def test_a_whole_chain_has_no_problem_in_whatever_order_it_is_given() -> None:
    rows, record = chain_of(5)
    found = follow_chain(rows[::-1], record)
    assert (found.linked, found.earlier, dict(found.withdrawn), found.problems) == (5, 0, {}, ())
    assert problems([], ChainRecord()) == ()
    assert problems(*chain_of(1)) == ()


def test_the_order_is_that_of_the_links_whatever_the_clocks_say() -> None:
    rows, record = chain_of(4)
    digests = [row["row_sha256"] for row in rows]
    announced = whole_row(4, digests[-1], finished_at=FIRST_DAY - timedelta(days=9))
    earlier = with_row_sha256({**rows[0], "run_id": "earlier", "previous_sha256": None})
    found = order_chain(
        [earlier, announced, *map(redacted, rows[::-1])], replace(record, announced_sha256=announced["row_sha256"])
    )
    assert found == {digest: place for place, digest in enumerate([*digests, announced["row_sha256"]])}
    withdrawn = replace(record, withdrawn={"forgotten": {digests[1]: digests[0]}})
    assert order_chain([rows[0], *rows[2:]], withdrawn) == {digest: place for place, digest in enumerate(digests)}


def test_a_removed_row_is_missed_by_name() -> None:
    rows, record = chain_of(5)
    assert problems([*rows[:2], *rows[3:]], record) == (
        "the row before scores of b_3|m (run run-3, 2026-03-01 15:00:00) is gone",
        "5 rows were linked, and 4 are there or withdrawn",
    )
    assert problems(rows[1:], record)[0] == "the row before scores of b_1|m (run run-1, 2026-03-01 13:00:00) is gone"


def test_removed_rows_at_the_end_are_missed_by_the_row_before_them() -> None:
    rows, record = chain_of(5)
    after = "the last row, after scores of b_{}|m (run run-{}, 2026-03-01 {}:00:00), is gone"
    assert problems(rows[:4], record)[0] == after.format(3, 3, 15)
    assert problems(rows[:1], record)[0] == after.format(0, 0, 12)
    assert problems([], record)[0] == "the last row, after a row without a name, is gone"


def test_a_lost_head_is_named() -> None:
    rows, record = chain_of(3)
    [lost] = problems(rows, ChainRecord())
    assert lost.startswith("the head of the chain is gone, and maybe rows after scores of b_2|m")
    # The next writer begins anew.
    further = whole_row(7, None)
    again = ChainRecord(further["row_sha256"], 1)
    assert problems([*rows, further], again)[0].startswith("the chain begins with each of scores of b_0|m")
    [earlier, count] = problems(rows, ChainRecord(rows[1]["row_sha256"], 2))
    assert earlier.startswith("rows come after the one that the head names as the last, scores of b_1|m")
    assert count == "2 rows were linked, and 3 are there or withdrawn"
    assert record.rows == 3


def test_changed_content_is_named() -> None:
    rows, record = chain_of(3)
    assert problems([rows[0], {**rows[1], "partition": "b_9|m"}, rows[2]], record) == (
        "scores of b_9|m (run run-1, 2026-03-01 13:00:00) is not as it was written",
    )
    # With its digest made anew, it is another row.
    forged = whole_row(1, rows[0]["row_sha256"], partition="b_9|m")
    assert problems([rows[0], forged, rows[2]], record)[0].startswith("the row before scores of b_2|m")


def test_a_row_that_was_put_in_is_named() -> None:
    rows, record = chain_of(3)
    put_in = whole_row(9, rows[0]["row_sha256"])
    [fork, count] = problems([*rows, put_in], record)
    assert fork.startswith("the same row is before scores of b_1|m (run run-1, 2026-03-01 13:00:00), scores of b_9|m")
    assert count == "3 rows were linked, and 4 are there or withdrawn"


def test_of_redacted_rows_the_links_are_followed() -> None:
    rows, record = chain_of(4)
    only_links = [redacted(rows[0]), rows[1], dict.fromkeys(LINEAGE.names) | redacted(rows[2]), redacted(rows[3])]
    assert problems(only_links, record) == ()
    digest = rows[3]["row_sha256"][:12]
    assert problems([only_links[0], only_links[1], only_links[3]], record)[0] == (
        f"the row before row {digest} (only its link is here) is gone"
    )


def test_rows_of_earlier_versions_are_counted() -> None:
    rows, record = chain_of(3)
    with_digest = whole_row(20, None)
    without = {name: value for name, value in whole_row(21, None).items() if name != "row_sha256"}
    found = follow_chain([with_digest, without, *rows], record)
    assert (found.linked, found.earlier, found.problems) == (3, 2, ())
    assert follow_chain([with_digest, without], ChainRecord()).earlier == 2


def test_withdrawn_rows_are_counted_and_their_links_lead_on() -> None:
    rows, record = chain_of(6)
    links = {row["row_sha256"]: row["previous_sha256"] for row in (rows[0], rows[2], rows[3], rows[5])}
    forgotten = replace(record, withdrawn={"forgotten": links})
    found = follow_chain([rows[1], rows[4]], forgotten)
    assert (found.linked, dict(found.withdrawn), found.problems) == (2, {"forgotten": 4}, ())
    assert follow_chain(rows, forgotten).withdrawn == {}, "they were announced, and are still there"
    # What is gone besides is missed.
    [gone, _] = problems([rows[4]], forgotten)
    assert gone == f"the row before row {rows[2]['row_sha256'][:12]} (only its link is here) is gone"


@given(st.integers(1, 12), st.data())
def test_any_single_removal_is_found(length: int, data: st.DataObject) -> None:
    rows, record = chain_of(length)
    gone = data.draw(st.integers(0, length - 1))
    given_rows = [row if data.draw(st.booleans()) else redacted(row) for row in rows]
    assert problems(given_rows, record) == ()
    assert problems([*given_rows[:gone], *given_rows[gone + 1 :]], record)


@given(st.integers(2, 12), st.data())
def test_any_two_links_that_were_exchanged_are_found(length: int, data: st.DataObject) -> None:
    """In redacted rows, whose digests say nothing of their links."""
    rows, record = chain_of(length)
    links = [redacted(row) for row in rows]
    one, other = data.draw(st.lists(st.integers(0, length - 1), min_size=2, max_size=2, unique=True))
    before = links[one]["previous_sha256"], links[other]["previous_sha256"]
    links[other]["previous_sha256"], links[one]["previous_sha256"] = before
    assert problems(links, record)


@given(st.integers(2, 12), st.data())
def test_any_link_to_another_row_is_found(length: int, data: st.DataObject) -> None:
    rows, record = chain_of(length)
    links = [redacted(row) for row in rows]
    place = data.draw(st.integers(0, length - 1))
    digests = [row["row_sha256"] for row in rows]
    others = [digest for digest in (None, "f" * 64, *digests) if digest != links[place]["previous_sha256"]]
    links[place]["previous_sha256"] = data.draw(st.sampled_from(others))
    assert problems(links, record)


# Writing.


@pytest.fixture
def paths(tmp_path: Path) -> DataPaths:
    return DataPaths(tmp_path)


def record_row(paths: DataPaths, run_id: str, partition: str = "b|m") -> Path:
    step = LineageStep.now(run_id, "scores", "1")
    record_lineage(paths, step, SCORES, partition, data_version="v", upstream={})
    return entry_file(paths, "scores", partition, run_id)


def row_in(file: Path) -> Row:
    [row] = read_rows(file, label=file.name)
    return row


def found_in(paths: DataPaths) -> tuple[int, dict[str, int], tuple[str, ...]]:
    found = follow_chain(*read_lineage_chain(paths))
    return found.linked, dict(found.withdrawn), found.problems


def test_each_row_carries_the_digest_of_the_one_before(paths: DataPaths) -> None:
    rows = [row_in(record_row(paths, f"run-{number}", f"b_{number % 2}|m")) for number in range(4)]
    assert [row["previous_sha256"] for row in rows] == [None, *(row["row_sha256"] for row in rows[:3])]
    assert all(row["row_sha256"] == row_sha256(row) for row in rows)
    assert read_chain_record(paths) == ChainRecord(rows[3]["row_sha256"], 4)
    assert found_in(paths) == (4, {}, ())


def test_rows_of_an_earlier_version_are_no_part_of_it(paths: DataPaths) -> None:
    for number in range(2):
        row = whole_row(number, None) | {"asset_key": "scores", "code_version": "1", "data_version": "v"}
        row |= {"upstream_data_versions": "{}", "package_versions": "{}", "started_at": FIRST_DAY}
        table = table_from_rows([with_row_sha256(row)], LINEAGE).drop_columns(["previous_sha256"])
        write_table(entry_file(paths, "scores", row["partition"], row["run_id"]), table)
    assert row_in(record_row(paths, "new"))["previous_sha256"] is None
    record_row(paths, "newer")
    found = follow_chain(*read_lineage_chain(paths))
    assert (found.linked, found.earlier, found.problems) == (2, 2, ())


def test_a_removed_file_is_missed_whatever_comes_after(paths: DataPaths) -> None:
    files = [record_row(paths, f"run-{number}") for number in range(3)]
    files[2].unlink()
    assert found_in(paths)[2][0].startswith("the last row, after scores of b|m (run run-1, ")
    record_row(paths, "run-3")
    assert found_in(paths)[2][0].startswith("the row before scores of b|m (run run-3, ")


def test_a_row_that_its_run_writes_again_is_replaced(paths: DataPaths) -> None:
    for run_id in ("run-0", "run-1", "run-0", "run-2"):
        record_row(paths, run_id)
    assert found_in(paths) == (3, {"replaced": 1}, ())


def test_an_entry_whose_file_finds_no_room_leaves_no_gap(paths: DataPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    record_row(paths, "run-0")
    move, moved = Path.replace, paths.run_file("scores", "b|m", "run-1")

    def fill_disk(self: Path, target: Path) -> Path:
        if target == moved:
            raise OSError("full")
        return move(self, target)

    step = LineageStep.now("run-1", "scores", "1")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fill_disk)
        with pytest.raises(OSError, match="full"):
            store.write(paths, step, SCORES, "b|m", SCORES.empty_table(), upstream={})
    assert found_in(paths) == (1, {}, ())
    record_row(paths, "run-2")
    assert found_in(paths) == (2, {}, ())


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(("writes", "came"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_a_kill_between_any_two_writes_breaks_nothing(
    paths: DataPaths, monkeypatch: pytest.MonkeyPatch, writes: int, came: int
) -> None:
    """A row is three writes: the announcement, the row, and its name as the last."""
    record_row(paths, "run-0")
    done = 0

    def killed_after(write: Callable[..., None]) -> Callable[..., None]:
        def write_or_die(*given: Any) -> None:
            nonlocal done
            if done == writes:
                raise Killed
            done += 1
            write(*given)

        return write_or_die

    with monkeypatch.context() as patch:
        for name in ("write_json", "write_table"):
            patch.setattr(lineage_chain, name, killed_after(getattr(lineage_chain, name)))
        if writes < 3:
            with pytest.raises(Killed):
                record_row(paths, "secret")
        else:
            record_row(paths, "secret")
    assert found_in(paths) == (1 + came, {}, ())
    second = record_row(paths, "run-2")
    assert found_in(paths) == (2 + came, {}, ())
    assert read_json(paths.lineage_head)["announced"] is None
    second.unlink()
    assert found_in(paths)[2][0].startswith("the last row, after scores of b|m")


def test_a_withdrawal_leaves_no_name_of_an_announced_row(paths: DataPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    record_row(paths, "run-0")
    with monkeypatch.context() as patch:
        patch.setattr(lineage_chain, "write_table", Mock(side_effect=Killed))
        with pytest.raises(Killed):
            record_row(paths, "run-1", "secret|m")
    assert b"secret" in paths.lineage_head.read_bytes()
    withdraw_rows(paths, [], "forgotten")
    assert b"secret" not in paths.lineage_head.read_bytes()
    assert found_in(paths) == (1, {}, ())


def test_withdrawn_rows_may_be_withdrawn_again(paths: DataPaths) -> None:
    files = [record_row(paths, f"run-{number}") for number in range(4)]
    withdraw_rows(paths, files[1:], "forgotten")
    files[3].unlink()
    withdraw_rows(paths, files[1:3], "forgotten")
    for file in files[1:3]:
        file.unlink()
    record_row(paths, "run-4")
    assert found_in(paths) == (2, {"forgotten": 3}, ())


def test_a_damaged_row_is_read_by_name_and_an_unreadable_one_is_missed(paths: DataPaths) -> None:
    files = [record_row(paths, f"run-{number}") for number in range(3)]
    changed = row_in(files[1]) | {"data_version": "w"}
    write_table(files[1], table_from_rows([changed], LINEAGE))
    [problem] = found_in(paths)[2]
    assert problem.startswith("scores of b|m (run run-1, ")
    assert problem.endswith("is not as it was written")
    files[1].write_bytes(b"no Parquet")
    assert found_in(paths)[2][0].startswith("the row before scores of b|m (run run-2, ")


def test_rows_that_come_while_the_chain_is_read_are_read_too(paths: DataPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    record_row(paths, "run-0")
    load, coming = build.load_self_digested, ["run-0", "run-1", "run-2"]

    def while_a_run_writes(*given: Any) -> Any:
        found = load(*given)
        if coming:
            record_row(paths, coming.pop(0))
        return found

    monkeypatch.setattr(build, "load_self_digested", while_a_run_writes)
    rows, record = read_lineage_chain(paths)
    assert follow_chain(rows, record).problems == ()
    assert record.rows == 4


WRITER = """
import sys
from pathlib import Path
from audit_pipeline.catalogue.contracts import SCORES
from audit_pipeline.catalogue.lineage import LineageStep, record_lineage
from audit_pipeline.catalogue.paths import DataPaths

for number in range(30):
    step = LineageStep.now(f"run-{sys.argv[2]}-{number}", "scores", "1")
    record_lineage(DataPaths(Path(sys.argv[1])), step, SCORES, "b|m", data_version="v", upstream={})
"""


def test_two_processes_at_once_write_one_chain(paths: DataPaths) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", WRITER, str(paths.root), name]) for name in ("one", "two")]
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    assert found_in(paths) == (60, {}, ())
