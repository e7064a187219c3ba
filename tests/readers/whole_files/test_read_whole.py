"""Files that are one document, in every format: their text, titles and problems."""

from __future__ import annotations

from html import escape, unescape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_epubs import epub, packed, page
from made_whole_files import docx, paragraph, pdf, scan
from made_whole_files import read_content as read

from audit_pipeline.errors import DataError
from audit_pipeline.readers.whole_files.document import (
    NO_LINES,
    WHOLE_FILES,
    NoTextError,
    WholeDocument,
    clean_title,
    is_single_document,
)
from audit_pipeline.readers.whole_files.pdf import join_paragraphs

FULL = "The lamps were lit before the carriage came down the long hill to"
NEXT = "the town below, and nobody who stood there in the cold said a word"


def test_suffixes_are_known_in_upper_and_lower_case() -> None:
    assert all(is_single_document(Path(f"a{one.upper()}")) for one in WHOLE_FILES)
    assert not any(is_single_document(Path(one)) for one in ("a.jsonl", "a.doc", "pdf", "a.txt.gz"))


def test_text_files_keep_their_markup(tmp_path: Path) -> None:
    assert read(tmp_path, "a.md", b"\xef\xbb\xbf# One\r\n\r\n*two*\n") == WholeDocument("# One\n\n*two*\n")


def test_only_the_main_element_of_a_page_is_read(tmp_path: Path) -> None:
    whole = read(
        tmp_path,
        "a.html",
        b"<html><head><title> The\n lamp </title><style>p {}</style></head><body><nav>Home</nav><div>Menu</div>"
        b"<main><h1>One</h1><p>Two &amp;\n three.</p><script>no()</script></main><p>Imprint</p></body></html>",
    )
    assert whole == WholeDocument("One\n\nTwo & three.", "The lamp", places=NO_LINES)


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<main></main><article>seen</article>", "seen"),
        ("<main>&nbsp;<script>x</script><p hidden>gone</p></main><article>seen</article>", "seen"),
        (f"<main>Loading</main><article>{FULL}</article>", f"Loading\n\n{FULL}"),
        ("<p>around</p><main></main><main>seen</main>", "seen"),
        ("<main>one</main><p>and</p><main>two</main>", "one\n\nand\n\ntwo"),
        ("<html><body>one</body><body>two</body></html>", "one\n\ntwo"),
        ("<html><body><p>one</p></body>two<p>three</p></html>four", "one\n\ntwo\n\nthree\n\nfour"),
        ("<html><body><p>one</p></body></html><html><body><p>two</p></body></html>", "one\n\ntwo"),
        ("<html><head><title>t</title><p>seen", "seen"),
        ("<meta charset='iso-8859-1'>\x93seen\x94", "“seen”"),
    ],
)
def test_a_page_is_read_as_browsers_show_it(tmp_path: Path, markup: str, text: str) -> None:
    assert read(tmp_path, "a.html", markup.encode("latin-1")).text == text


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ("The Lamp", "The Lamp"),
        (" The\n Lamp ", "The Lamp"),
        ("Document of a Life", "Document of a Life"),
        ("1984", "1984"),
        ("", None),
        ("Untitled-1", None),
        ("Document1", None),
        ("Microsoft Word - draft 3.doc", None),
        ("lamp_final.indd", None),
        ("a\x07b", None),
        ("word " * 100, None),
    ],
)
def test_default_titles_of_programs_are_ignored(given: str, title: str | None) -> None:
    assert clean_title(given) == title


def test_titles_of_word_files_and_pdfs_are_read(tmp_path: Path) -> None:
    properties = '<p xmlns:d="http://purl.org/dc/elements/1.1/"><d:title>{}</d:title></p>'

    def titled(core: str) -> str | None:
        return read(tmp_path, "a.docx", docx(paragraph(FULL), **{"docProps/core.xml": core})).title

    assert titled(properties.format("The Lamp &amp; the Hill")) == "The Lamp & the Hill"
    assert titled(properties.format("Untitled")) is None
    assert titled("<cut") is None
    assert read(tmp_path, "a.docx", docx(paragraph(FULL))).title is None
    assert read(tmp_path, "a.pdf", pdf([[FULL]], title="Die Lampe – ü")).title == "Die Lampe – ü"
    assert read(tmp_path, "a.pdf", pdf([[FULL]])).title is None


def test_the_front_matter_of_a_book_is_skipped(tmp_path: Path) -> None:
    running = f"<p>{'The lamps were lit again. ' * 30}</p>"
    whole = read(
        tmp_path, "a.epub", epub({"copyright.xhtml": page("<p>All rights reserved.</p>"), "one.xhtml": page(running)})
    )
    assert whole.title == "The Lamp"
    assert whole.text == ("The lamps were lit again. " * 30).strip()


def test_a_book_of_front_matter_only_is_read(tmp_path: Path) -> None:
    whole = read(tmp_path, "a.epub", epub({"copyright.xhtml": page("<p>All rights reserved.</p>")}))
    assert whole.text == "All rights reserved."


def test_lines_of_a_pdf_are_joined_to_paragraphs(tmp_path: Path) -> None:
    body = [FULL, NEXT, "and all of them waited.", FULL, "the exam-", "ple of the others."]
    pages = [[f"A Book of Lamps {number}", *body, str(number)] for number in range(1, 6)]
    first = f"{FULL} {NEXT} and all of them waited."
    assert read(tmp_path, "a.pdf", pdf(pages)).text == "\n\n".join(
        [first, f"{FULL} the example of the others."] * len(pages)
    )


def test_a_pdf_with_an_owner_password_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, "a.pdf", pdf([[FULL]], owner="secret")).text == FULL


def test_insertions_in_word_files_are_read_and_deletions_are_skipped(tmp_path: Path) -> None:
    body = (
        paragraph("One &amp; two.")
        + "<w:sdt><w:sdtContent>"
        + paragraph("In a content control.")
        + "</w:sdtContent></w:sdt>"
        + "<w:p><w:r><w:t>Kept </w:t></w:r><w:ins><w:r><w:t>put in</w:t></w:r></w:ins>"
        + "<w:del><w:r><w:delText>taken out</w:delText></w:r></w:del></w:p>"
        + "<w:tbl><w:tr><w:tc>"
        + paragraph("cell")
        + "</w:tc></w:tr></w:tbl>"
    )
    assert read(tmp_path, "a.docx", docx(body)).text == "One & two.\n\nIn a content control.\n\nKept put in\n\ncell"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("locked.pdf", pdf([[FULL]], owner="a", user="b"), "locked with a password"),
        ("scan.pdf", scan(), r"no text can be extracted \(1 of 1 pages: these pages contain no text, only pictures"),
        ("locked.docx", bytes.fromhex("D0CF11E0A1B11AE1") + b"x" * 600, "locked with a password"),
        ("pictures.epub", epub({"one.xhtml": page("<img src='a.png'/>")}), "there is no text"),
    ],
)
def test_files_without_text_are_refused_with_the_reason(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    with pytest.raises(NoTextError, match=said):
        read(tmp_path, name, content)


LAUGHS = "<!ENTITY l0 'ha'>" + "".join(f"<!ENTITY l{number} '{f'&l{number - 1};' * 10}'>" for number in range(1, 10))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("latin.txt", b"caf\xe9", "invalid UTF-8 at byte 4"),
        ("empty.pdf", b"", "the file is damaged or not a PDF"),
        ("cut.pdf", pdf([[FULL]])[:300], "the file is damaged or not a PDF"),
        ("text.docx", b"some text", "the file is damaged or not a Word file"),
        ("cut.docx", docx(paragraph(FULL))[:-40], "the file is damaged or not a Word file"),
        ("other.docx", packed({"a": "b"}), "not a Word file"),
        ("broken.docx", docx("<w:p><w:r>"), "the file is damaged or not a Word file"),
        ("bomb.docx", docx("", **{"word/styles.xml": f"<!DOCTYPE a [{LAUGHS}]><a>&l9;</a>"}), "DTDForbidden"),
        ("deep.docx", docx("<w:p>" * 20_000 + "</w:p>" * 20_000), "damaged"),
        ("text.epub", b"some text", "is not a readable zip file"),
    ],
)
def test_damaged_files_are_refused_with_the_reason(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    with pytest.raises(DataError, match=said) as raised:
        read(tmp_path, name, content)
    assert str(tmp_path / name) in str(raised.value)
    assert not isinstance(raised.value, NoTextError)


WORDS = st.lists(st.text("abcdefg", min_size=1, max_size=9), min_size=1, max_size=12).map(" ".join)


@given(st.lists(st.lists(WORDS, max_size=6), max_size=6))
def test_joining_lines_preserves_all_words(pages: list[list[str]]) -> None:
    words = [word for lines in pages for line in lines for word in line.split()]
    assert join_paragraphs(pages)[0].split() == words


def test_a_pdf_in_an_unknown_font_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoTextError, match=r"2 of 2 pages: the letters form words of no language.*Run text"):
        read(tmp_path, "a.pdf", pdf([shifted([FULL, NEXT, FULL])] * 2))


def test_pages_in_an_unknown_font_are_skipped_and_counted(tmp_path: Path) -> None:
    pages = [[FULL, NEXT], shifted([FULL, NEXT, FULL]), shifted([NEXT, FULL, NEXT]), [NEXT, FULL], []]
    whole = read(tmp_path, "a.pdf", pdf(pages))
    assert whole.text == f"{FULL} {NEXT} {NEXT} {FULL}"
    assert [label for _, label in whole.places] == ["page 1", "page 4"]
    assert dict(whole.problems) == {
        "2 of 5 pages": "the letters form words of no language",
        "1 of 5 pages": "these pages contain no text, only pictures (a scan?) or nothing",
    }


def shifted(lines: list[str]) -> list[str]:
    """Shift letters as a subset font without a map to Unicode does."""
    return [
        "".join(character if character == " " else chr(ord(character) - 29) for character in line) for line in lines
    ]


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.docx", "a.epub"])
def test_unreadable_letters_are_refused_in_every_format(tmp_path: Path, name: str) -> None:
    words = escape(" ".join(shifted([FULL, NEXT.replace(",", ""), FULL])))
    contents = {
        "a.html": f"<p>{words}</p>".encode(),
        "a.docx": docx(paragraph(words)),
        "a.epub": epub({"one.xhtml": page(f"<p>{words}</p>")}),
    }
    with pytest.raises(NoTextError, match="the letters form words of no language"):
        read(tmp_path, name, contents.get(name, unescape(words).encode()))


def test_chapters_without_text_are_reported_with_their_share(tmp_path: Path) -> None:
    chapters: dict[str, str | bytes] = {
        "cover.xhtml": page("<img src='cover.png'/>"),
        "1.xhtml": page(f"<p>{FULL}</p>"),
        "2.xhtml": page("<img src='fixed.png'/>"),
        "3.xhtml": page("<svg><text>drawn</text></svg>"),
        "4.xhtml": page(""),
        "5.xhtml": page("<object data='a.swf'></object>"),
        "6.xhtml": b"\xff",
        "7.xhtml": page(f"<p>{escape(' '.join(shifted([FULL, NEXT, FULL])))}</p>"),
    }
    whole = read(tmp_path, "a.epub", epub(chapters))
    assert whole.text == FULL
    assert dict(whole.problems) == {
        "4 of 8 chapters (OPS/2.xhtml, OPS/3.xhtml, OPS/4.xhtml, …)": "there is no text, only pictures or nothing",
        "1 of 8 chapters (OPS/6.xhtml)": "the file contains invalid UTF-8 at byte 1",
        "1 of 8 chapters (OPS/7.xhtml)": "the letters form words of no language",
    }, "a cover is no lost chapter"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("frames.html", b"<html><frameset><frame src='a.html'/></frameset></html>"),
        ("script.html", b"<body><script>document.write('x')</script><noscript>Turn it on.</noscript></body>"),
        ("pictures.docx", docx("<w:p><w:r><w:drawing/></w:r></w:p>")),
    ],
)
def test_intact_files_without_words_have_an_empty_text(tmp_path: Path, name: str, content: bytes) -> None:
    assert not read(tmp_path, name, content).text
