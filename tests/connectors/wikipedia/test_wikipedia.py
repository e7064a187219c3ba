"""The source put together: settings, the parquet form, the table of dates, inputs beside each other."""

from __future__ import annotations

import gzip
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_wikipedia import FLOOD, FLOOD_LATER, Rev, export, page
from pydantic import ValidationError

from audit_pipeline.connectors.wikipedia.harvest import harvest
from audit_pipeline.connectors.wikipedia.pages import CreationDates, read_dates
from audit_pipeline.connectors.wikipedia.parquet import remove_tail_sections
from audit_pipeline.connectors.wikipedia.settings import LICENCE, NAME, WikipediaSettings
from audit_pipeline.errors import DataError, SourceError

TEXT = "The 2023 Orla floods began.\n\nThey rose. \n\nCourse \n\nIt rained.\n\nReferences\n\nExternal links\nCategory:X"
ROWS = (
    ("1", "https://en.wikipedia.org/wiki/2023%20Orla%20floods", "2023 Orla floods", TEXT),
    ("2", "https://en.wikipedia.org/wiki/Velm%20fair", "Velm fair", "The Velm fair is a fair."),
    ("3", "https://en.wikipedia.org/wiki/List", "List of floods in 2023", "A list."),
    ("4", "https://en.wikipedia.org/wiki/2016_Velm_fair", "2016 Velm fair", "It was held."),
    ("5", "https://en.wikipedia.org/wiki/2023_quake", "2023 quake", "References\n\nOne"),
    ("6", "https://en.wikipedia.org/wiki/2023_storm", "2023 storm", "It blew."),
    ("six", "https://en.wikipedia.org/wiki/2023_gale", "2023 gale", "It blew."),
    ("8", None, "2023 thaw", None),
)
DATES = {1: date(2023, 2, 1), 2: date(2015, 6, 30), 4: date(2016, 5, 5), 5: date(2023, 9, 9), 8: date(2023, 9, 9)}


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    path = tmp_path / "rows" / "train-00000-of-00001.parquet"
    path.parent.mkdir()
    columns = ("id", "url", "title", "text")
    pq.write_table(pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in ROWS]), path)
    return path


@pytest.fixture(params=["table", "dump of histories"])
def dates(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "table":
        path = tmp_path / "dates.parquet"
        pq.write_table(pa.Table.from_pylist([{"page_id": one, "created": day} for one, day in DATES.items()]), path)
        return path
    path = tmp_path / "stub-meta-history.xml.gz"
    stubs = [page(one, f"Page {one}", Rev(one, 0, f"{day}T10:00:00Z"), stub=True) for one, day in DATES.items()]
    path.write_bytes(gzip.compress(export(stubs)))
    return path


@pytest.mark.parametrize("whole_folder", [False, True])
def test_the_parquet_form_by_title_and_dates(parquet: Path, dates: Path, tmp_path: Path, whole_folder: bool) -> None:
    settings = WikipediaSettings(parquet=parquet.parent if whole_folder else parquet, dates=dates)
    found = harvest(settings, tmp_path / "downloads")
    assert found.missing == ()
    assert [(one.name, one.published) for one in found.documents] == [("1", date(2023, 2, 1)), ("4", date(2016, 5, 5))]
    first = found.documents[0]
    assert first.text == "The 2023 Orla floods began.\n\nThey rose.\n\nCourse\n\nIt rained."
    assert (first.url, first.licence, first.date_kind) == (ROWS[0][1], LICENCE, "first revision")
    name = parquet.name
    assert {item.part: item.reason for item in found.left_out} == {
        f"{name}: 1 page (List of floods in 2023)": "a timeline or list by its title",
        f"{name}: 1 page (Velm fair)": "not an event page by title (this form has no categories)",
        f"{name}: 2023 quake": "its text is empty",
        f"{name}: 2023 storm": "no date of creation: its first revision is not here, and `dates` does not name it",
        f"{name}: row 7 (2023 gale)": "its id is no page id: 'six'",
        f"{name}: 2023 thaw": "its text is empty",
    }
    assert not (tmp_path / "downloads").exists()


def test_the_parquet_form_cannot_go_back_in_time(parquet: Path, dates: Path, tmp_path: Path) -> None:
    found = harvest(WikipediaSettings(parquet=parquet, dates=dates, as_of=date(2016, 12, 31)), tmp_path)
    assert [one.name for one in found.documents] == ["1"]
    reasons = {item.part: item.reason for item in found.left_out}
    assert reasons[f"{parquet.name}: 2016 Velm fair"] == "existed on 2016-12-31, and its text of that day is not here"


def test_the_lead_of_the_parquet_form() -> None:
    assert remove_tail_sections(TEXT, "lead") == "The 2023 Orla floods began.\n\nThey rose."
    assert remove_tail_sections("只有一段。\n\n历史\n\n很久。\n\n参考文献\n\n书", "lead") == "只有一段。"
    assert (
        remove_tail_sections("只有一段。\n\n历史\n\n很久。\n\n参考文献\n\n书", "article")
        == "只有一段。\n\n历史\n\n很久。"
    )


def test_damaged_parquet_is_missing_and_the_other_files_are_read(parquet: Path, dates: Path, tmp_path: Path) -> None:
    (parquet.parent / "a-damaged.parquet").write_bytes(parquet.read_bytes()[:200])
    pq.write_table(pa.table({"id": ["1"], "text": ["x"]}), parquet.parent / "b-other.parquet")
    found = harvest(WikipediaSettings(parquet=parquet.parent, dates=dates), tmp_path)
    assert len(found.documents) == 2
    assert [item.part for item in found.missing] == ["a-damaged.parquet", "b-other.parquet"]
    assert "no column url and title" in found.missing[1].reason
    absent = harvest(WikipediaSettings(parquet=tmp_path / "absent", dates=dates), tmp_path)
    assert absent.missing[0].collection == "events"


def test_inputs_beside_each_other_take_each_page_once(parquet: Path, dates: Path, tmp_path: Path) -> None:
    dump = tmp_path / "w.xml"
    dump.write_bytes(export([page(1, "2023 Orla floods", FLOOD, FLOOD_LATER), page(6, "2023 storm", FLOOD)]))
    found = harvest(WikipediaSettings(dump=dump, parquet=parquet, dates=dates), tmp_path)
    assert [(one.name, one.text[:20]) for one in found.documents][:2] == [
        ("1", "The 2023 Orla floods"),
        ("6", "The 2023 Orla floods"),
    ]
    assert found.documents[0].url.endswith("oldid=12")
    assert [one.name for one in found.documents] == ["1", "6", "4"]
    assert found.left_out[-1].part == "1 page"
    assert NAME == "wikipedia"


def test_dates_that_cannot_be_read_leave_the_dated_pages(tmp_path: Path) -> None:
    dump = tmp_path / "w.xml"
    dump.write_bytes(export([page(1, "2023 Orla floods", FLOOD)]))
    found = harvest(WikipediaSettings(dump=dump, dates=tmp_path / "absent.csv"), tmp_path)
    assert len(found.documents) == 1
    assert (found.missing[0].part, found.missing[0].collection) == ("absent.csv", "events")


def test_dates_from_csv_with_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "dates.csv"
    path.write_text(
        "page_id,title,created\n1,A,2020-01-02\n2,B,soon\nx,C,2020-01-01\n4,D,2021-03-04T23:59:59Z\n1,A,2019-01-01\n"
    )
    dates, refused = read_dates(path)
    assert (len(dates), dates.get(1), dates.get(4), dates.get(2)) == (3, date(2019, 1, 1), date(2021, 3, 4), None)
    assert [(item.part, item.reason) for item in refused] == [
        ("dates.csv:2", "its date of creation cannot be read: 'soon'"),
        ("dates.csv:3", "its page id is not a number: 'x'"),
    ]


def test_dates_from_parquet_of_other_types(tmp_path: Path) -> None:
    path = tmp_path / "dates.parquet"
    moments = [datetime(2020, 1, 1, 23, tzinfo=UTC), None]
    pq.write_table(pa.table({"page_id": ["5", "6"], "created": pa.array(moments, pa.timestamp("us", "UTC"))}), path)
    dates, refused = read_dates(path)
    assert dates.get(5) == date(2020, 1, 1)
    assert len(refused) == 1
    assert CreationDates().get(5) is None


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("d.csv", "id,created\n1,2020-01-01\n", "no column page_id; the columns are: id, created"),
        ("d.csv", "page_id,created\n1,2020-01-01,x\n", "cannot be read"),
        ("d.csv", "", "cannot be read"),
        ("d.parquet", "nothing", "cannot be read"),
        ("d.txt", "", "read from .csv or .parquet"),
    ],
)
def test_dates_that_are_none(tmp_path: Path, name: str, content: str, reason: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=reason):
        read_dates(tmp_path / name)


@given(st.lists(st.tuples(st.integers(1, 8), st.dates(date(2001, 1, 15), date(2026, 1, 1))), max_size=20))
def test_dates_against_a_dictionary(rows: list[tuple[int, date]]) -> None:
    dates = CreationDates([number for number, _ in rows], [day for _, day in rows])
    for number in range(10):
        assert dates.get(number) == min((day for other, day in rows if other == number), default=None)


def test_what_has_to_be_set(tmp_path: Path) -> None:
    def to_be_set(**settings: object) -> str:
        return WikipediaSettings(**settings).to_be_set or ""

    assert "wikipedia.dump" in to_be_set()
    assert "wikipedia.contact" in to_be_set(categories=("2023 events",))
    assert "wikipedia.dates" in to_be_set(parquet=tmp_path)
    assert to_be_set(dump=tmp_path) == ""
    assert to_be_set(categories=("2023 events",), contact="ann@example.org") == ""
    with pytest.raises(SourceError, match=r"wikipedia\.dump"):
        harvest(WikipediaSettings(), tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"event_title": "("},
        {"depth": -1},
        {"collection": "a:b"},
        {"seconds_between": 0},
        {"unknown": 1},
        {"part": "all"},
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        WikipediaSettings.model_validate(wrong)
