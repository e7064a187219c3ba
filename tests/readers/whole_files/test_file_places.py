"""The places of pages and chapters in a text, and the place of a word."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_epubs import epub, page
from made_whole_files import docx, paragraph, pdf
from made_whole_files import read_content as read
from profiles import max_examples

from audit_pipeline.readers.whole_files.book_matter import extract_book_text
from audit_pipeline.readers.whole_files.document import NO_LINES, Places, describe_place
from audit_pipeline.readers.whole_files.epub import Chapter, Epub
from audit_pipeline.readers.whole_files.html import extract_prose
from audit_pipeline.readers.whole_files.pdf import join_paragraphs

FULL = "The lamps were lit before the carriage came down the long hill to"
RUNNING = " ".join([f"{FULL} the town."] * 10)


def split_at(text: str, places: Places) -> list[tuple[str, str]]:
    """Return each label with the text from its place to the next."""
    offsets = [*(offset for offset, _ in places), len(text)]
    return [(label, text[begin:end]) for (_, label), (begin, end) in zip(places, pairwise(offsets), strict=True)]


@pytest.mark.parametrize(
    ("word", "place"),
    [
        ("zero", "line 1"),
        ("one", "chapter 1 (I), paragraph 1"),
        ("two", "chapter 1 (I), paragraph 1"),
        ("three", "chapter 1 (I), paragraph 2"),
        ("four", "chapter 2 (b.xhtml), paragraph 1"),
        ("five", "chapter 2 (b.xhtml), paragraph 2"),
        ("six", "page 12"),
        ("seven", "page 12"),
        ("eight", "paragraph 1"),
        ("nine", "paragraph 2"),
    ],
)
def test_the_place_of_a_word_is_a_page_paragraph_or_line(word: str, place: str) -> None:
    text = "zero\none\ntwo\n \n\nthree\n\n\n\nfour\n\nfive six\n\nseven\n\neight\n\nnine"
    labels = (("one", "chapter 1 (I)"), ("four", "chapter 2 (b.xhtml)"), ("six", "page 12"), ("eight", ""))
    places = tuple((text.index(first), label) for first, label in labels)
    assert describe_place(text, text.index(word), places) == place
    if word != "zero":
        assert describe_place(text, text.index(word) - 1, places) == place, "white space before a word is skipped"


@given(st.text("ab \n", max_size=40).map("a".__add__), st.data())
def test_lines_and_paragraphs_are_counted_from_one(text: str, data: st.DataObject) -> None:
    offset = data.draw(st.sampled_from([offset for offset, character in enumerate(text) if not character.isspace()]))
    lines = [line.strip() for line in text[: offset + 1].split("\n")]
    paragraphs = 1 + sum(bool(line) and not before for before, line in pairwise(lines))
    assert describe_place(text, offset, ()) == f"line {len(lines)}"
    assert describe_place(text, offset, NO_LINES) == f"paragraph {paragraphs}"


def test_pages_without_text_count_as_pages_of_a_pdf(tmp_path: Path) -> None:
    body = [[FULL, "first."], [], ["Second.", FULL, "the lan-"], [f"tern of {FULL}", "go out."], ["Fifth."]]
    pages = [["A Book of Lamps", *lines, str(number)] if lines else [] for number, lines in enumerate(body, 1)]
    whole = read(tmp_path, "a.pdf", pdf(pages))
    assert split_at(whole.text, whole.places) == [
        ("page 1", f"{FULL} first.\n\n"),
        ("page 3", f"Second.\n\n{FULL} the lan"),
        ("page 4", f"tern of {FULL} go out.\n\n"),
        ("page 5", "Fifth."),
    ]
    assert describe_place(whole.text, whole.text.index("go out"), whole.places) == "page 4"


LINES = st.lists(st.text("abc", min_size=1, max_size=9), min_size=1, max_size=12).map(" ".join)


@given(st.lists(st.lists(st.tuples(LINES, st.sampled_from(["", ".", "\x02"])).map("".join), max_size=5), max_size=6))
def test_the_text_at_the_place_of_a_page_has_its_letters(pages: list[list[str]]) -> None:
    def letters(words: Sequence[str]) -> str:
        return "".join("".join(words).split()).replace("\x02", "")

    found = [(label, letters(words)) for label, words in split_at(*join_paragraphs(pages))]
    assert found == [(f"page {number}", letters(lines)) for number, lines in enumerate(pages, 1) if lines]


def test_chapters_are_labelled_by_number_and_heading(tmp_path: Path) -> None:
    long = "Which is long. " * 9
    whole = read(
        tmp_path,
        "a.epub",
        epub(
            {
                "title.xhtml": page("<h1>The Lamp</h1>"),
                "one.xhtml": page(f"<h2>I. The<br/> Hill</h2><p>{RUNNING}</p><p>Then</p>"),
                "two.xhtml": page(f"<p>No heading.</p><p>{RUNNING}</p>"),
                "picture.xhtml": page("<img src='a.png'/>"),
                "three.xhtml": page(f"<h2>{long}</h2><p>{RUNNING}</p>"),
                # The heading is not part of the text.
                "four.xhtml": page(f"<h2 epub:type='pagebreak'>IV</h2><p>Last. {RUNNING}</p>"),
            }
        ),
    )
    labels = [label for _, label in whole.places]
    assert labels == [
        "chapter 1 (I. The Hill)",
        "chapter 2 (OPS/two.xhtml)",
        "chapter 3 (OPS/three.xhtml)",
        "chapter 4 (OPS/four.xhtml)",
    ]
    begins = [whole.text[offset:].split()[0] for offset, _ in whole.places]
    assert begins == ["I.", "No", "Which", "Last."]
    assert describe_place(whole.text, whole.text.index("Then"), whole.places) == f"{labels[0]}, paragraph 3"


PARTS = [
    "*** START OF THE PROJECT GUTENBERG EBOOK THE LAMP ***",
    "*** END OF THE PROJECT GUTENBERG EBOOK THE LAMP ***",
    "CONTENTS",
    "I. The Hill     1",
    "Copyright 2024",
    "[Illustration: a ship]",
    "INDEX",
    "Ada, 12",
    "",
]


@max_examples(100)
@given(st.lists(st.lists(st.sampled_from(PARTS) | st.none(), max_size=6), max_size=5))
def test_the_text_at_the_place_of_a_chapter_has_its_lines(bodies: list[list[str | None]]) -> None:
    chapters = [
        Chapter(
            f"{number}.xhtml",
            frozenset(),
            # None stands for running text that no other chapter has.
            "".join(f"<p>{RUNNING.replace('lamps', f'lamps{number}') if part is None else part}</p>" for part in parts),
        )
        for number, parts in enumerate(bodies)
    ]
    whole = extract_book_text(Epub(None, tuple(chapters), ()))
    text, places = whole.text, whole.places
    by_path = {chapter.path: iter(extract_prose(chapter.markup).text.split("\n")) for chapter in chapters}
    found = split_at(text, places)
    assert "".join(words for _, words in found) == text
    for count, (label, words) in enumerate(found, 1):
        number, _, path = label.removesuffix(")").partition(" (")
        assert number == f"chapter {count}"
        assert words.split()
        # Each line is searched after the previous line, so the order is checked, too.
        assert all(line in by_path[path] for line in words.split("\n") if line)


def test_places_are_paragraphs_of_pages_and_word_files_and_lines_of_text_files(tmp_path: Path) -> None:
    web = read(tmp_path, "a.html", b"<p>One\n\n\nand one.</p><p>Two.</p>")
    word = read(tmp_path, "a.docx", docx(paragraph("One.") + paragraph("Two.")))
    text = read(tmp_path, "a.txt", b"\xef\xbb\xbfOne.\r\n\r\nTwo.\r\n")
    found = [describe_place(whole.text, whole.text.index("Two"), whole.places) for whole in (web, word, text)]
    assert found == ["paragraph 2", "paragraph 2", "line 3"]
