"""The inventory of a user's files: counts, reasons against an audit, and the entries of the workspace."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from made_epubs import epub, page
from made_whole_files import scan

from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.user_files import (
    Inventory,
    UserFiles,
    explain_unused_parts,
    inspect_user_files,
)
from audit_pipeline.pipeline.workspace_creation import ensure_workspace
from audit_pipeline.statistics.claims import HeldOutReason, decide_claim_level

GERMAN = "Die Laternen wurden angezündet, bevor der Wagen den langen Hügel herunterkam, und niemand sagte ein Wort. "
ENGLISH = "The lanterns were lit before the carriage came down the long hill, and nobody said a word about it. "
CHINESE = "灯笼在马车下长山之前就被点亮了，没有人说一句话。"


def shelf(folder: Path, **texts: str) -> Path:
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


def test_the_inventory_counts_the_files(tmp_path: Path) -> None:
    books = shelf(tmp_path / "books", de=GERMAN * 10, en=ENGLISH * 20)
    (books / "empty.txt").write_text(" ")
    rows = [{"text": ENGLISH * 5 + str(number), "day": f"202{number}-03-04"} for number in range(3)]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    looked = inspect_user_files(UserFiles((books,), (tmp_path / "new.jsonl",), date_column="day"))
    audited, held_out = looked.sides["audited"], looked.sides["held_out"]
    assert (audited.documents, audited.groups, audited.undated, audited.newest) == (2, 2, 2, None)
    assert audited.words == len((GERMAN * 10 + ENGLISH * 20).split())
    assert audited.languages == {"de": 1, "en": 1}
    assert (held_out.documents, held_out.oldest, held_out.newest) == (3, date(2020, 3, 4), date(2022, 3, 4))
    assert [part for part, _ in looked.unused] == ["empty.txt"]
    assert looked.planned_comparison.held_out == 3
    # 160 and 380 words, and 95 in each row: windows of 64 words.
    assert looked.planned_comparison.windows == len((GERMAN * 10).split()) // 64 + len((ENGLISH * 20).split()) // 64 + 3


def test_the_date_column_of_rows_says_which_documents_are_newer_than_the_model(tmp_path: Path) -> None:
    rows = [{"text": f"{ENGLISH} {year}", "day": f"{year}-01-01"} for year in (2019, 2024, 2025)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    looked = inspect_user_files(UserFiles((tmp_path / "rows.jsonl",), date_column="day"))
    assert [looked.count_audited_from(date(year, 1, 1)) for year in (2019, 2020, 2025, 2026)] == [3, 2, 1, 0]


def test_a_document_of_a_year_is_newer_than_a_day_only_if_the_whole_year_is(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,day\nThe lanterns were lit,2019\nNobody said a word,2020-05-31\n")
    looked = inspect_user_files(UserFiles((rows,), date_column="day"))
    facts = looked.sides["audited"]
    assert (facts.oldest, facts.newest, facts.dated_by_interval) == (date(2019, 1, 1), date(2020, 5, 31), 1)
    assert [looked.count_audited_from(date(2019, month, 1)) for month in (1, 2)] == [2, 1]


def test_short_texts_have_shorter_windows_and_chinese_ones_chinese_words(tmp_path: Path) -> None:
    assert (
        inspect_user_files(UserFiles((shelf(tmp_path / "short", a=ENGLISH * 2, b=ENGLISH * 2 + "more"),))).window_words
        == 32
    )
    chinese = inspect_user_files(UserFiles((shelf(tmp_path / "zh", a=CHINESE * 30),)))
    assert (chinese.unit, chinese.window_words) == ("jieba", 64)


@pytest.mark.parametrize(
    ("held_out", "members", "said"),
    [
        ({"a": ENGLISH}, {}, "the same text is in the audited files and in the held-out files"),
        (
            {"a": ENGLISH.upper().replace(" ", "\u00a0\n")},
            {},
            "the same text is in the audited files and in the held-out files",
        ),
        ({"b": " "}, {}, r"the held-out files \(.*\) have no readable document"),
        ({"b": GERMAN}, {"c": GERMAN}, "the same text is in the held-out files and in the members files"),
        ({"b": GERMAN}, {"c": " "}, r"the members files \(.*\) have no readable document"),
    ],
)
def test_sides_that_cannot_be_told_apart_are_refused(
    tmp_path: Path, held_out: dict[str, str], members: dict[str, str], said: str
) -> None:
    own = UserFiles(
        (shelf(tmp_path / "books", a=ENGLISH),),
        (shelf(tmp_path / "new", **held_out),),
        (shelf(tmp_path / "old", **members),) if members else (),
    )
    with pytest.raises(DataError, match=said):
        inspect_user_files(own)


def test_a_group_on_two_sides_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": f"{ENGLISH} {name}", "book": "The Lamp"}))
    with pytest.raises(DataError, match="the group 'The Lamp' is in the audited files and in the held-out files"):
        inspect_user_files(UserFiles((tmp_path / "one.jsonl",), (tmp_path / "two.jsonl",), group_column="book"))


def test_unreadable_files_are_an_error_with_the_first_reasons(tmp_path: Path) -> None:
    folder = shelf(tmp_path / "books")
    with pytest.raises(DataError, match="it has no readable file"):
        inspect_user_files(UserFiles((folder,)))
    for number in range(5):
        (folder / f"{number}.pdf").write_bytes(b"%PDF")
    with pytest.raises(DataError, match=r"0\.pdf: the file is damaged or not a PDF") as raised:
        inspect_user_files(UserFiles((folder,)))
    assert "\n" not in str(raised.value)


def test_files_without_text_are_named_and_make_no_document(tmp_path: Path) -> None:
    """If a side has no readable document, the error has the reasons of this side only."""
    good, bad = (
        shelf(tmp_path / "good", a=ENGLISH * 10),
        shelf(tmp_path / "bad", z="".join(map(chr, range(0xE000, 0xE100)))),
    )
    chapter = page(f"<p>{ENGLISH * 3}</p>")
    (good / "b.epub").write_bytes(epub({"1.xhtml": chapter, "2.xhtml": page("<img src='p.png'/>")}))
    (good / "c.pdf").write_bytes(scan())
    looked = inspect_user_files(UserFiles((good, bad)))
    assert [document.name for document in looked.documents] == ["good/a.txt", "good/b.epub"]
    assert [part for part, _ in looked.unused] == [
        "good/c.pdf",
        "bad/z.txt",
        "good/b.epub!1 of 2 chapters (OPS/2.xhtml)",
    ]
    with pytest.raises(DataError, match=r"the held-out files .* have no readable document: .* private-use") as caught:
        inspect_user_files(UserFiles((good,), (bad,)))
    assert "c.pdf" not in str(caught.value)


def test_equal_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    books, new = shelf(tmp_path / "books", a=ENGLISH, b=GERMAN), shelf(tmp_path / "new", a=ENGLISH, b=GERMAN)
    with pytest.raises(DataError) as raised:
        inspect_user_files(UserFiles((books,), (new,)))
    assert f"({books}/a.txt and {new}/a.txt)" in str(raised.value)
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps({'text': 'other'})}\n{json.dumps({'text': GERMAN})}\n")
    with pytest.raises(DataError, match=r"rows\.jsonl#1 and .*new/b\.txt"):
        inspect_user_files(UserFiles((tmp_path / "rows.jsonl",), (new,)))


def test_a_reason_that_many_files_share_is_said_once(tmp_path: Path) -> None:
    books = shelf(tmp_path / "books", a=ENGLISH)
    for name in ("b.mobi", "c.azw", "d.azw3", "e.MOBI", "f.xls"):
        (books / name).write_bytes(b"BOOKMOBI")
    convert, unknown = explain_unused_parts(inspect_user_files(UserFiles((books,))).unused)
    assert convert == "b.mobi, c.azw, d.azw3 and 1 more: Kindle books cannot be read. Convert them to EPUB."
    assert unknown.startswith("f.xls: the file format is not one of .txt")
    (books / "a.txt").unlink()
    with pytest.raises(DataError) as raised:
        inspect_user_files(UserFiles((books,)))
    assert str(raised.value).count("Convert them to EPUB") == 1


def both_sides(folder: Path, *, because: HeldOutReason | None = None) -> Inventory:
    sides = {
        side: (shelf(folder / side, a=f"{text} {side}"),) for side, text in zip("abc", (ENGLISH,) * 3, strict=True)
    }
    return inspect_user_files(UserFiles(sides["a"], sides["b"], sides["c"], held_out_because=because))


@pytest.mark.parametrize(
    ("because", "design", "of_known", "level"),
    [
        # Nobody stated a reason: the design says so, and states nothing.
        (None, "unstated", "unstated", "screening only"),
        ("newer", "temporal", "temporal", "screening only"),
        ("unpublished", "selected", "selected", "screening only"),
        # Chance chose among the audited documents, and did not choose the members.
        ("random", "exchangeable", "selected", "statistical evidence"),
    ],
)
def test_the_reason_for_what_is_held_out_is_the_design_that_claims_go_by(
    tmp_path: Path, because: HeldOutReason | None, design: str, of_known: str, level: str
) -> None:
    entries = both_sides(tmp_path, because=because).benchmarks
    assert [entry["design"] for entry in entries.values()] == [design, of_known]
    assert decide_claim_level(design, "mild shift") == level
    stated = "the user of corpus-audit check --held-out" + (f" --held-out-because {because}" if because else "")
    assert [entry["design_stated_by"] for entry in entries.values()] == [stated, f"{stated} and --members"]


def test_known_members_and_held_out_files_make_a_labelled_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = both_sides(tmp_path, because="random")
    ensure_workspace(tmp_path / "made", looked, {"tiny": {"hub": "a/tiny"}})
    built = load_benchmarks(tmp_path / "made" / "config")
    assert list(built) == ["own_files_32", "own_files_known_32", "instrument_check_64"]
    built = {name: spec for name, spec in built.items() if spec.control is None}
    assert list(looked.benchmarks) == ["own_files", "own_files_known"]
    assert [built[name].design for name in built] == ["exchangeable", "selected"]
    assert not any(spec.settings.on_request for spec in built.values()), "the weekly audit takes them"
    assert [spec.settings.extraction is not None for spec in built.values()] == [True, False]
    assert [spec.title for spec in built.values()] == ["Your files: a", "Your files: a (known beforehand)"]


def test_the_title_names_the_first_files_and_counts_the_others(tmp_path: Path) -> None:
    folder = shelf(tmp_path / "books", a=ENGLISH, b=ENGLISH * 2, c=ENGLISH * 3, d=ENGLISH * 4, e=ENGLISH * 5)
    looked = inspect_user_files(UserFiles(tuple(sorted(folder.iterdir()))))
    assert looked.title == "Your files: a.txt, b.txt, c.txt and 2 more"
