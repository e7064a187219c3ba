"""Exports of patents-public-data: nested and flat columns, dates, numbers, and rows that cannot be used."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from made_patents import ABSTRACT, CLAIMS, DESCRIPTION, TITLE, write_csv

from audit_pipeline.readers.formats import ROW_SUFFIXES
from audit_pipeline.sources.base import LeftOut, MissingPart
from audit_pipeline.sources.patents.exports import read_exported_patents
from audit_pipeline.sources.patents.record import PARTS, Part, Patent

TODAY = date(2024, 12, 31)
TEXTS = {"title": TITLE, "abstract": ABSTRACT, "description": "\n".join(DESCRIPTION), "claims": "\n".join(CLAIMS)}


def localized(text: str, language: str = "zh") -> list[dict[str, object]]:
    return [
        {"text": "In English.", "language": "en", "truncated": False},
        {"text": text, "language": language, "truncated": False},
    ]


def nested(**changes: object) -> dict[str, object]:
    """A row as BigQuery writes it to Parquet and JSON."""
    return {
        "publication_number": "CN-112345678-A",
        "application_number": "CN-202011084321-A",
        "family_id": "74512345",
        "publication_date": 20210209,
        "filing_date": 20201012,
        "priority_date": 20201012,
        "priority_claim": [{"application_number": "CN-202011084321-A", "filing_date": 20201012}],
        **{f"{name}_localized": localized(text) for name, text in TEXTS.items()},
        **changes,
    }


def flat(**changes: object) -> dict[str, object]:
    """A row of a query that picks the Chinese texts."""
    row = {key: value for key, value in nested().items() if not key.endswith("_localized") and key != "priority_claim"}
    return {**row, **TEXTS, **changes}


def found(root: Path, parts: tuple[Part, ...] = PARTS) -> tuple[list[Patent], dict[str, str], dict[str, str]]:
    items = list(read_exported_patents(root, ("CN",), parts, TODAY))
    return (
        [item for item in items if isinstance(item, Patent)],
        {item.part: item.reason for item in items if isinstance(item, LeftOut)},
        {item.part: item.reason for item in items if isinstance(item, MissingPart)},
    )


EXPECTED = Patent(
    number="CN112345678A",
    title=TITLE,
    parts={"abstract": ABSTRACT, "description": "\n".join(DESCRIPTION), "claims": "\n".join(CLAIMS)},
    published=date(2021, 2, 9),
    priority=date(2020, 10, 12),
    keys=("family:74512345", "application:CN202011084321"),
    url="https://patents.google.com/patent/CN112345678A/zh",
)


def test_every_form_of_one_row_is_one_patent(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([nested()]), tmp_path / "a.parquet")
    dated = flat(publication_date=date(2021, 2, 9), filing_date=None, priority_date=date(2020, 10, 12))
    pq.write_table(pa.Table.from_pylist([dated]), tmp_path / "b.parquet")
    gaps = nested(publication_date=20210209.0, filing_date=20201012.0)
    pq.write_table(pa.Table.from_pylist([gaps]), tmp_path / "b2.parquet")
    as_json = {key: json.dumps(value) if isinstance(value, list) else value for key, value in nested().items()}
    write_csv(tmp_path / "c.csv", [as_json])
    write_csv(tmp_path / "d.csv", [flat(publication_date="20210209.0", family_id="74512345.0")])
    strings = {key: str(value) if isinstance(value, int) else value for key, value in nested().items()}
    (tmp_path / "e.jsonl").write_text(json.dumps(strings, ensure_ascii=False) + "\n")
    patents, left_out, missing = found(tmp_path)
    assert patents == [EXPECTED] * 6
    assert left_out == {}
    assert missing == {}


def test_rows_that_cannot_be_used(tmp_path: Path) -> None:
    rows = [
        nested(),
        nested(publication_number="US-2021000001-A1"),
        nested(publication_number="US-2021000002-A1"),
        nested(publication_number="KR-20210000003-A"),
        nested(publication_number="unknown"),
        nested(publication_date=0),
        nested(priority_date=None),
        nested(priority_date=20210101),
        nested(publication_date=20251231),
        nested(publication_date=20210231),
        nested(abstract_localized="[{not json"),
        nested(abstract_localized=5),
        nested(abstract_localized="灯" * 200),
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([json.dumps(row) for row in rows] + ["{5"]))
    patents, left_out, missing = found(path)
    assert len(patents) == 2
    assert missing == {}
    assert left_out == {
        "rows.jsonl:14": "unreadable row: broken JSON: Expecting property name enclosed in double quotes at character 2",  # noqa: E501
        "rows.jsonl:5": "no publication number: 'unknown'",
        "CN112345678A in rows.jsonl:6": "no publication date",
        "CN112345678A in rows.jsonl:7": "no priority date",
        "CN112345678A in rows.jsonl:8": "priority date after filing date: 2021-01-01 and 2020-10-12",
        "CN112345678A in rows.jsonl:9": "publication date in the future: 2025-12-31",
        "CN112345678A in rows.jsonl:10": "unreadable date: publication_date is '20210231'",
        "CN112345678A in rows.jsonl:11": "unreadable field: abstract looks like JSON and is none",
        "CN112345678A in rows.jsonl:12": "unreadable field: abstract is not text but int",
        "rows.jsonl": "rows of other countries than CN: 3 (2 of US, 1 of KR)",
    }


def test_texts_in_other_languages_are_none(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([nested(abstract_localized=localized("Résumé", "fr"))]), tmp_path / "a.parquet")
    patents, _, _ = found(tmp_path)
    assert patents[0].parts["abstract"] == ""


def test_files_that_cannot_be_used_name_what_to_do(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", [flat()])
    write_csv(
        tmp_path / "b.csv", [{key: value for key, value in flat().items() if key not in ("claims", "priority_date")}]
    )
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    (tmp_path / "e.docx").write_bytes(b"")
    patents, left_out, missing = found(tmp_path)
    assert len(patents) == 1
    assert left_out == {"e.docx": f"not one of {', '.join(ROW_SUFFIXES)}"}
    assert missing.keys() == {"b.csv", "d.parquet"}
    assert "no column priority_date, claims_localized; export them too" in missing["b.csv"]
    assert len(found(tmp_path / "b.csv", ("abstract",))[2]) == 1
    assert "no such file or folder" in found(tmp_path / "nowhere")[2]["nowhere"]


def test_parts_that_are_not_wanted_need_no_column(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [{key: value for key, value in flat().items() if key != "claims"}])
    patents, _, missing = found(path, ("abstract", "description"))
    assert missing == {}
    assert patents[0].parts.keys() == {"abstract", "description"}
