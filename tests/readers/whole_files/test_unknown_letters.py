"""Ligatures, and characters that stand for an unknown letter."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_epubs import epub, page
from made_whole_files import docx, drawn_pdf, lines_at, paragraph
from made_whole_files import read_content as read

from audit_pipeline.readers.whole_files.pdf import _read_unicode_map

LINES = ["The o@ce of the keeper was e@cient and di@cult in the harbour town,", "for nobody had an a@davit."]
JOINED = " ".join(LINES)
UNKNOWN = "these characters stand for unknown letters: {}. They stay in the text, which changes every score"


@pytest.mark.parametrize(
    ("target", "font", "letter"),
    [
        ("FB03", "Helvetica", "ffi"),
        ("006600660069", "Helvetica", "ffi"),
        ("000E", "CMR10", "ffi"),
        ("000D", "ABCDEF+CMBX12", "fl"),
        ("001E", "SFRM1000", "ffi"),
        ("F761", "Helvetica", "a"),
        ("F061", "Helvetica", "a"),
        ("F061", "ABCDEF+SymbolMT", "α"),
    ],
)
def test_codes_of_a_pdf_are_mapped_to_letters(tmp_path: Path, target: str, font: str, letter: str) -> None:
    whole = read(tmp_path, "a.pdf", drawn_pdf(lines_at(LINES), letters={ord("@"): target}, font=font))
    assert (whole.text, whole.problems) == (JOINED.replace("@", letter), ())


@pytest.mark.parametrize("target", [None, "E000", "FFFD", "0000"])
@pytest.mark.parametrize(("glyph", "letter"), [("f_f_i", "ffi"), ("f_f_i.liga", "ffi"), ("T_h", "Th")])
def test_names_of_glyphs_are_mapped_to_letters(tmp_path: Path, target: str | None, glyph: str, letter: str) -> None:
    letters = None if target is None else {ord("@"): target}
    whole = read(tmp_path, "a.pdf", drawn_pdf(lines_at(LINES), letters=letters, glyph=glyph))
    assert (whole.text, whole.problems) == (JOINED.replace("@", letter), ())


def test_a_code_of_another_tex_font_is_no_ligature(tmp_path: Path) -> None:
    whole = read(tmp_path, "a.pdf", drawn_pdf(lines_at(LINES), letters={ord("@"): "000E"}, font="CMSY10"))
    assert whole.text == JOINED.replace("@", "\x0e")
    assert whole.problems == (("4 characters", UNKNOWN.format("U+000E (4)")),)


@pytest.mark.parametrize(("target", "left"), [("E000", "\ue000"), ("FFFD", "\ufffd"), ("0000", "\ufffd")])
@pytest.mark.parametrize("glyph", ["", "g12"])
def test_unknown_codes_of_a_pdf_stay_and_are_counted(tmp_path: Path, target: str, left: str, glyph: str) -> None:
    whole = read(tmp_path, "a.pdf", drawn_pdf(lines_at(LINES), letters={ord("@"): target}, glyph=glyph))
    assert whole.text == JOINED.replace("@", left)
    assert whole.problems == (("4 characters", UNKNOWN.format(f"U+{ord(left):04X} (4)")),)


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.epub", "a.docx"])
def test_unknown_letters_are_counted_in_every_format(tmp_path: Path, name: str) -> None:
    words = "The o\ufb03ce was \ue000ne in the \x1aharbour \ufffdown."
    markup = f"<p>{words}</p>".encode()
    contents = {
        "a.html": markup,
        "a.epub": epub({"one.xhtml": page(f"<p>{words}</p>")}),
        "a.docx": docx(paragraph(words.replace("\x1a", "\x9a"))),
    }
    whole = read(tmp_path, name, contents.get(name, words.encode()))
    assert whole.text.startswith("The office was \ue000ne in the ")
    assert [part for part, _ in whole.problems] == ["3 characters"]
    assert whole.problems[0][1].startswith(UNKNOWN.partition("{}")[0] + "U+E000 (1), ")


@pytest.mark.parametrize("name", ["a.txt", "a.html"])
def test_a_nul_within_a_word_becomes_a_replacement_character(tmp_path: Path, name: str) -> None:
    whole = read(tmp_path, name, b"The o\0ce was fine.")
    assert whole.text == "The o\ufffdce was fine."
    assert whole.problems == (("1 character", UNKNOWN.format("U+FFFD (1)")),)


def test_ranges_of_a_unicode_map_count_up_or_list_their_targets() -> None:
    table = b"""
    2 beginbfchar <01> <0041> <02> <00660069> endbfchar
    3 beginbfrange <0003> <0005> <0061> <0006> <0008> [<0058> <0059> <00660066>] <0009><000A><007A> endbfrange
    """
    characters = dict(enumerate(["A", "fi", "a", "b", "c", "X", "Y", "ff", "z", "{"], start=1))
    assert _read_unicode_map(table) == characters
