"""The source put together: settings, a data set of pages, the table of dates, both inputs at once."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from audit_pipeline.errors import DataError
from audit_pipeline.sources.base import collect
from audit_pipeline.sources.wikipedia import harvest as whole
from audit_pipeline.sources.wikipedia.data_set import read_dates
from audit_pipeline.sources.wikipedia.harvest import harvest
from audit_pipeline.sources.wikipedia.pages import build_page_document, remove_tail_sections
from audit_pipeline.sources.wikipedia.source import LICENCE, WikipediaSettings

TEXT = "The 2023 Orla floods began.\n\nThey rose. \n\nCourse \n\nIt rained.\n\nReferences\n\nExternal links\nCategory:X"
ROWS = (
    ("1", "https://en.wikipedia.org/wiki/2023%20Orla%20floods", "2023 Orla floods", TEXT),
    ("2", "https://en.wikipedia.org/wiki/Velm%20fair", "Velm fair", "The Velm fair is a fair."),
    ("3", "https://en.wikipedia.org/wiki/List", "List of floods in 2023", "A list."),
    ("4", "https://en.wikipedia.org/wiki/2016_Velm_fair", "2016 Velm fair", "It was held."),
    ("5", "https://en.wikipedia.org/wiki/2023_quake", "2023 quake", "References\n\nOne"),
    ("6", "https://en.wikipedia.org/wiki/2023_storm", "2023 storm", "It blew."),
)
SUBSET = "20231101.en"


def write_rows(folder: Path, columns: tuple[str, ...] = ("id", "url", "title", "text")) -> Path:
    """A clone of the data set, in two files."""
    place = folder / SUBSET
    place.mkdir(parents=True)
    for part in (0, 1):
        rows = [dict(zip(columns, row, strict=False)) for row in ROWS[part * 3 : part * 3 + 3]]
        pq.write_table(pa.Table.from_pylist(rows), place / f"train-0000{part}-of-00002.parquet")
    return folder


@pytest.fixture
def settings(tmp_path: Path) -> WikipediaSettings:
    dates = tmp_path / "dates.parquet"
    days = {1: date(2023, 2, 1), 2: date(2015, 6, 30), 4: date(2016, 5, 5), 5: date(2023, 9, 9)}
    pq.write_table(pa.table({"page_id": list(days), "created": list(days.values())}), dates)
    return WikipediaSettings(path=write_rows(tmp_path / "wikipedia"), subset=SUBSET, dates=dates)


def test_a_data_set_by_title_and_dates(settings: WikipediaSettings, tmp_path: Path) -> None:
    found = collect(harvest(settings, tmp_path / "downloads"))
    assert found.missing == ()
    assert [(page.name, page.published) for page in found.documents] == [
        ("1", date(2023, 2, 1)),
        ("4", date(2016, 5, 5)),
    ]
    first = found.documents[0]
    assert first.text == "The 2023 Orla floods began.\n\nThey rose.\n\nCourse\n\nIt rained."
    assert (first.url, first.licence, first.date_kind) == (ROWS[0][1], LICENCE, "first revision")
    name = f"{settings.path}, {SUBSET}"
    assert {item.part.removeprefix(name): item.reason for item in found.left_out} == {
        ": 1 (List of floods in 2023)": "a timeline or list by its title",
        ": 1 (Velm fair)": "not an event page by its title",
        ": 1 (2023 quake)": "its text is empty",
        ": 1 (2023 storm)": "dates.parquet has no date of creation",
    }
    assert not (tmp_path / "downloads").exists()


def test_the_lead() -> None:
    chinese = "只有一段。\n\n历史\n\n很久。\n\n参考文献\n\n书"
    assert remove_tail_sections(TEXT, "lead") == "The 2023 Orla floods began.\n\nThey rose."
    assert remove_tail_sections(chinese, "lead") == "只有一段。"
    assert remove_tail_sections(chinese, "article") == "只有一段。\n\n历史\n\n很久。"


def test_what_cannot_be_read_is_missing(settings: WikipediaSettings, tmp_path: Path) -> None:
    changes = {
        "cannot be read": {"path": tmp_path / "absent"},
        "the dates cannot be read": {"dates": tmp_path / "absent.csv"},
        "has no column title, text": {"path": write_rows(tmp_path / "other", ("id", "url"))},
    }
    for reason, change in changes.items():
        found = collect(harvest(settings.model_copy(update=change), tmp_path))
        assert found.documents == ()
        assert found.missing[0].held("events", "1")
        assert reason in found.missing[0].reason


def test_a_page_of_both_inputs_is_taken_from_the_data_set(
    settings: WikipediaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [build_page_document(settings, number, "x", "of the API", date(2020, 1, 1)) for number in (4, 7)]
    monkeypatch.setattr(whole, "_iterate_api", lambda settings, downloads, api: iter(pages))
    found = collect(harvest(settings, tmp_path))
    assert [(page.name, page.text[:10]) for page in found.documents] == [
        ("1", "The 2023 O"),
        ("4", "It was hel"),
        ("7", "of the API"),
    ]
    assert found.left_out[-1].part == "pages: 1"


def test_dates_from_csv_and_of_other_types(tmp_path: Path) -> None:
    path = tmp_path / "dates.csv"
    path.write_text(
        "page_id,title,created\n1,A,2020-01-02\n2,B,soon\nx,C,2020-01-01\n4,D,2021-03-04T23:59:59Z\n1,A,2019-01-01\n"
    )
    assert read_dates(path, [1, 2, 4, 9]) == {1: date(2019, 1, 1), 4: date(2021, 3, 4)}
    assert read_dates(path, [4]) == {4: date(2021, 3, 4)}
    moments = pa.array([datetime(2020, 1, 1, 23, tzinfo=UTC), None], pa.timestamp("us", "America/New_York"))
    pq.write_table(pa.table({"page_id": ["5", "6"], "created": moments}), tmp_path / "dates.parquet")
    assert read_dates(tmp_path / "dates.parquet", [5, 6]) == {5: date(2020, 1, 1)}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("d.csv", "id,created\n1,2020-01-01\n", "page_id"),
        ("d.parquet", "nothing", "cannot be read"),
        ("d.txt", "", "read from .csv and .parquet"),
    ],
)
def test_dates_that_are_none(tmp_path: Path, name: str, content: str, reason: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=reason):
        read_dates(tmp_path / name, [1])


def test_what_has_to_be_set(tmp_path: Path) -> None:
    def to_be_set(**settings: object) -> str:
        return WikipediaSettings(**settings).to_be_set or ""

    assert "wikipedia.hub or path, or categories" in to_be_set()
    assert "wikipedia.contact" in to_be_set(categories=("2023 events",))
    assert "wikipedia.subset and dates" in to_be_set(hub="wikimedia/wikipedia")
    assert to_be_set(path=tmp_path, subset=SUBSET, dates=tmp_path) == ""
    assert to_be_set(categories=("2023 events",), contact="ann@example.org") == ""
