"""The source of patents: its documents and groups, and the reasons for skipping texts."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import jieba
from ledger_lines import step_of
from made_files import write_rows
from made_patents import ABSTRACT, CLAIMS, DESCRIPTION, TEXTS, TITLE, page

from audit_pipeline.benchmarks.build import build
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.sources.base import FetchedDocuments, LeftOut, collect
from audit_pipeline.sources.patents import fetch as patents
from audit_pipeline.sources.patents.source import PatentsSettings
from audit_pipeline.sources.store import store_documents
from audit_pipeline.store.paths import PROJECT_ROOT, DataPaths

TODAY = date(2024, 12, 31)
TEXT = "\n".join((ABSTRACT, *DESCRIPTION, *CLAIMS))


def fetch_all(tmp_path: Path, **changes: object) -> FetchedDocuments:
    return collect(patents.fetch_documents(PatentsSettings.model_validate(changes), tmp_path / "downloads", TODAY))


def reasons(found: FetchedDocuments) -> Counter[str]:
    """Count the reasons without the measured values, which precede the limits."""
    return Counter(re.sub(r"\d+%?(?=.*;)", "N", item.reason.partition(":")[0]) for item in found.left_out)


def save(folder: Path, name: str, source: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(source, encoding="utf-8")
    return folder


def export(path: Path, *numbers: str) -> Path:
    days = {"publication_date": 20240910, "priority_date": 20240402, "family_id": 901}
    return write_rows(path, [{"publication_number": number, **days, **TEXTS} for number in numbers])


def test_a_page_becomes_a_document(tmp_path: Path) -> None:
    folder = save(tmp_path / "pages", "a.html", page())
    (document,) = fetch_all(tmp_path, pages=folder).documents
    assert document.text == TEXT
    assert (document.collection, document.name, document.title) == ("CN", "CN112345678A", TITLE)
    assert (document.published, document.earliest) == (date(2021, 2, 9), date(2020, 10, 12))
    assert document.date_kind == "publication of the patent (its priority date is kept as the earliest)"
    assert (document.language, document.licence) == ("zh", patents.LICENCE)
    assert document.group == "patents:family:74512345"
    assert document.url == "https://patents.google.com/patent/CN112345678A/zh"


def test_pages_and_export_together(tmp_path: Path) -> None:
    folder = save(tmp_path / "pages", "a.html", page())
    save(folder, "b.html", page("CN112345678B", published="2022-08-19", family="74512345"))
    found = fetch_all(tmp_path, pages=folder, export=export(tmp_path / "e.csv", "CN-118000001-A", "CN-118000001-B"))
    assert [(document.name, document.group) for document in found.documents] == [
        ("CN112345678A", "patents:family:74512345"),
        ("CN112345678B", "patents:family:74512345"),
        ("CN118000001A", "patents:family:901"),
        ("CN118000001B", "patents:family:901"),
    ]
    assert found.documents[2].published == date(2024, 9, 10)
    assert found.documents[2].earliest == date(2024, 4, 2)


def test_unusable_pages_are_counted_by_reason(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    save(folder, "good.html", page())
    save(folder, "undated.html", page(published=None, events=[]))
    save(folder, "contradiction1.html", page(meta_published="2021-02-10"))
    save(folder, "contradiction2.html", page(meta_published="2021-03-10"))
    save(folder, "index.html", "<html><body>搜索</body></html>")
    save(folder, "us.html", page("US20210000001A1"))
    save(folder, "short.html", page("CN100000001A", description=(), claims=()))
    save(
        folder,
        "english.html",
        page("CN100000002A", abstract="A lantern. " * 9, description=("It is made of bamboo. " * 30,), claims=()),
    )
    save(folder, "repeats.html", page("CN100000003A", description=[f"第{n}段，{DESCRIPTION[-1]}" for n in range(9)]))
    save(folder, "empty.html", page("CN100000004A", abstract="", description=(), claims=()))
    save(folder, "nested.html", page("CN100000005A", abstract="&amp;" + "amp;" * 40 + "lt;"))
    found = fetch_all(tmp_path, pages=folder)
    assert [document.name for document in found.documents] == ["CN112345678A"]
    assert found.missing == ()
    assert reasons(found) == {
        "the patent has different publication dates": 2,
        "the patent has no publication date": 1,
        (
            "the file is not a page of Google Patents as the server sends it. Save the page with wget, not in a "
            "browser."
        ): 1,
        "the patent is from US, which is not in patents.countries (CN)": 1,
        "the text has only N characters; more than 200 are required": 1,
        "only N of the characters are Chinese; at least 30% are required": 1,
        "N of the N-character sequences are repeated; at most 50% are allowed": 1,
        "the patent has no text in these parts": 1,
        "the text still contains markup within markup after 8 rounds of cleaning": 1,
    }
    assert (
        LeftOut("contradiction1.html", "the patent has different publication dates: 2021-02-09 and 2021-02-10")
        in found.left_out
    )


def test_cleaning_follows_the_settings(tmp_path: Path) -> None:
    folder = save(tmp_path / "pages", "a.html", page(description=("[0001] 本发明涉及\u200b照明。", *DESCRIPTION)))
    (document,) = fetch_all(tmp_path, pages=folder).documents
    assert "本发明涉及照明。" in document.text.split("\n")
    found = fetch_all(tmp_path, pages=folder, cleaning={"more_than_characters": 5000})
    assert found.documents == ()
    assert reasons(found) == {"the text has only N characters; more than 5000 are required": 1}


def test_documents_of_missing_inputs_stay(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path / "data")
    now = datetime(2024, 12, 31, tzinfo=UTC)
    folder = save(tmp_path / "pages", "a.html", page())
    store_documents("patents", fetch_all(tmp_path, pages=folder), paths, step_of("run1"), now)
    gone = fetch_all(tmp_path, pages=tmp_path / "nowhere", export=export(tmp_path / "e.csv", "CN-118000001-A"))
    assert [(item.part, item.collection) for item in gone.missing] == [("nowhere", "CN")]
    report = store_documents("patents", gone, paths, step_of("run2"), now)
    assert report.documents == 2
    assert report.kept == {"CN": 1}


def test_windows_of_patentmia_in_jieba_words(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path / "data")
    folder = save(tmp_path / "pages", "a.html", page())
    found = fetch_all(tmp_path, pages=folder, export=export(tmp_path / "e.csv", "CN-118000001-A"))
    # Documents of one family would be one group. These two belong to different families.
    different = [replace(one, text=one.text[at:]) for at, one in enumerate(found.documents)]
    store_documents(
        "patents", FetchedDocuments(tuple(different)), paths, step_of("run1"), datetime(2024, 12, 31, tzinfo=UTC)
    )
    shipped = load_benchmarks(PROJECT_ROOT / "config", TODAY)["patentmia_64"]
    assert (shipped.sources, shipped.settings.unit) == (("patents",), "jieba")
    report = build(replace(shipped, words=16), paths, "run")
    assert report.failed == ()
    rows = report.examples.to_pylist()
    assert {row["label"]: row["document_id"] for row in rows} == {
        1: "patents:CN:CN112345678A",
        0: "patents:CN:CN118000001A",
    }
    for row in rows:
        assert len([word for word in jieba.lcut(row["text"]) if word.strip()]) == row["words"] == 16
        assert row["language"] == "zh"
        assert row["text"] in {one.name: one.text.replace("\n", "") for one in different}[row["document_id"][-12:]]


def test_a_missing_path_is_reported(tmp_path: Path) -> None:
    assert "set patents.pages or patents.export" in str(PatentsSettings().missing_setting)
    assert PatentsSettings(pages=tmp_path).missing_setting is None
