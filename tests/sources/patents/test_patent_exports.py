"""Exports of patents-public-data: columns, dates, numbers, and rows that cannot be used."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from made_files import write_rows
from made_patents import TEXTS, TITLE, sort_items

from audit_pipeline.readers.formats import ROW_SUFFIXES
from audit_pipeline.sources.patents.fetch import read_exported_patents
from audit_pipeline.sources.patents.record import PARTS, Part, Patent

TODAY = date(2024, 12, 31)


# A row as the query of docs/benchmarks/patentmia.md writes it.
FLAT: dict[str, object] = {
    **{"publication_number": "CN-112345678-A", "application_number": "CN-202011084321-A", "family_id": "74512345"},
    **{"publication_date": 20210209, "filing_date": 20201012, "priority_date": 20201012},
    **TEXTS,
}


def flat(**changes: object) -> dict[str, object]:
    return {**FLAT, **changes}


def found(root: Path, parts: tuple[Part, ...] = PARTS) -> tuple[list[Patent], dict[str, str], dict[str, str]]:
    return sort_items(read_exported_patents(root, ("CN",), parts, TODAY))


EXPECTED = Patent(
    number="CN112345678A",
    title=TITLE,
    parts={part: TEXTS[part] for part in PARTS},
    published=date(2021, 2, 9),
    priority=date(2020, 10, 12),
    keys=("family:74512345", "application:CN202011084321"),
    url="https://patents.google.com/patent/CN112345678A/zh",
)


def test_all_formats_of_a_row_yield_the_same_patent(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([flat()]), tmp_path / "a.parquet")
    dated = flat(publication_date=date(2021, 2, 9), filing_date=None, priority_date=date(2020, 10, 12))
    pq.write_table(pa.Table.from_pylist([dated]), tmp_path / "b.parquet")
    gaps = flat(publication_date=20210209.0, filing_date=20201012.0)
    pq.write_table(pa.Table.from_pylist([gaps]), tmp_path / "b2.parquet")
    write_rows(tmp_path / "d.csv", [flat(publication_date="20210209.0", family_id="74512345.0")])
    strings = {key: str(value) if isinstance(value, int) else value for key, value in flat().items()}
    (tmp_path / "e.jsonl").write_text(json.dumps(strings, ensure_ascii=False) + "\n")
    patents, left_out, missing = found(tmp_path)
    assert patents == [EXPECTED] * 5
    assert left_out == {}
    assert missing == {}


def test_unusable_rows_are_reported_with_their_reason(tmp_path: Path) -> None:
    rows = [
        flat(),
        flat(publication_number="US-2021000001-A1"),
        flat(publication_number="US-2021000002-A1"),
        flat(publication_number="KR-20210000003-A"),
        flat(publication_number="unknown"),
        flat(publication_date=0),
        flat(priority_date=None),
        flat(priority_date=20210101),
        flat(publication_date=20251231),
        flat(publication_date=20210231),
        flat(abstract=5),
        flat(abstract="灯" * 200),
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([json.dumps(row) for row in rows] + ["{5"]))
    patents, left_out, missing = found(path)
    assert len(patents) == 2
    assert missing == {}
    assert left_out == {
        "rows.jsonl:13": "the row cannot be read: broken JSON: Expecting property name enclosed in double quotes at character 2",  # noqa: E501
        "rows.jsonl:5": "publication_number is not a publication number: 'unknown'",
        "CN112345678A in rows.jsonl:6": "the patent has no publication date",
        "CN112345678A in rows.jsonl:7": "the patent has no priority date",
        "CN112345678A in rows.jsonl:8": "the priority date 2021-01-01 is after the filing date 2020-10-12",
        "CN112345678A in rows.jsonl:9": "the publication date is in the future: 2025-12-31",
        "CN112345678A in rows.jsonl:10": "publication_date is not a date that can be read: '20210231'",
        "CN112345678A in rows.jsonl:11": ("the column abstract contains a value of type int instead of a text"),
        "rows.jsonl": "rows of countries that are not in patents.countries: 3 (2 of US, 1 of KR)",
    }


def test_unusable_files_are_reported_with_advice(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.csv", [flat()])
    write_rows(
        tmp_path / "b.csv", [{key: value for key, value in flat().items() if key not in ("claims", "priority_date")}]
    )
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    (tmp_path / "e.docx").write_bytes(b"")
    patents, left_out, missing = found(tmp_path)
    assert len(patents) == 1
    assert left_out == {"e.docx": f"the file format is not one of {', '.join(ROW_SUFFIXES)}"}
    assert missing.keys() == {"b.csv", "d.parquet"}
    assert "these columns are missing: priority_date, claims. Export them, too" in missing["b.csv"]
    assert len(found(tmp_path / "b.csv", ("abstract",))[2]) == 1
    assert "no such file or folder" in found(tmp_path / "nowhere")[2]["nowhere"]
