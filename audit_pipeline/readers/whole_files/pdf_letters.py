"""The letters of a PDF page, including codes that PDFium cannot translate.

PDFium translates codes to Unicode with the tables of the fonts. Some tables are missing or contain private codes. Then
other sources are used: the names of the font's glyphs (such as f_f_i), and known tables for TeX, Adobe and symbol
fonts.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pypdf
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c
from fontTools.agl import toUnicode
from mammoth.docx.dingbats import dingbats

from audit_pipeline.readers.whole_files.legible import REPAIRS

HYPHEN = "\x02"
"""PDFium's character for a hyphen within a word at the end of a line, together with the line end."""

# Adobe's glyph list encodes old-style figures and small capitals as 0xF700 plus their code in Latin-1.
_ADOBE_LETTERS: dict[int, str] = {
    0xF700 + code: chr(code) for code in (*range(0x30, 0x3A), *range(0x61, 0x7B), *range(0xE0, 0xFF))
}
# Ligatures in TeX's encodings OT1 and T1.
_TEX_LIGATURES = dict(zip("\x0b\x0c\r\x0e\x0f\x1b\x1c\x1d\x1e\x1f", ("ff", "fi", "fl", "ffi", "ffl") * 2, strict=True))
_TEX_TEXT_FONT = re.compile(r"(?:cm|ec|sf)(?:rm|r|bx|b|ti|sl|ss|xt|bi)[a-z]*\d", re.IGNORECASE)
_SYMBOL_CODE = re.compile("[\uf020-\uf0ff]")
_SYMBOL_FONT = re.compile(r"(symbol|wingdings|webdings) ?([23]?)", re.IGNORECASE)
_ASCII_END = 0x7F
_UNKNOWN = re.compile("[\0\x01\x03-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ue000-\uf8ff\ufffd]")

_MAP_SECTION = re.compile(rb"begin(bfchar|bfrange)(.*?)end(?:bfchar|bfrange)", re.DOTALL)
_MAP_CODES = re.compile(rb"<([0-9A-Fa-f]+)>")
_MAX_NESTED_FORMS = 5


class PageText(NamedTuple):
    """The text of a page.

    Attributes:
        text: The text on the page. Its lines end in line feeds.
        letters_beside: The number of letters outside the page, which no reader sees.
    """

    text: str
    letters_beside: int


def read_page_text(page: pdfium.PdfPage, number: int, names: GlyphNames) -> PageText:
    """Read the text of a page.

    Args:
        page: The page.
        number: Number of the page from 0.
        names: The glyph names of the file's fonts.
    """
    text_page = page.get_textpage()
    text: str = text_page.get_text_bounded()
    doubtful = _find_doubtful(text_page, text)
    letters_beside = 0
    if len(text) != text_page.count_chars():
        letters_beside = _count_letters(_read_letters(text_page, {})) - _count_letters(text)
    # A lone \r may be TeX's code of the ligature fl, so it is not a line end.
    text = text.replace("\r\n", "\n")
    if doubtful:
        known = _map_doubtful(text_page, doubtful, names.find_letters(number))
        # PDFium's text omits NUL and joins the characters around it. So the text is read letter by letter.
        if known or "\0" in doubtful.values():
            text = _read_letters(text_page, known).replace("\r\n", "\n")
    text_page.close()
    return PageText(text.translate(_ADOBE_LETTERS), max(letters_beside, 0))


def _count_letters(text: str) -> int:
    return len("".join(text.replace("\0", "").split()))


def _find_doubtful(text_page: pdfium.PdfTextPage, text: str) -> dict[int, str]:
    """Return the characters whose letters PDFium may not know.

    These are control and private-use characters, and characters without an entry in their font's table.

    Args:
        text_page: The page.
        text: The text of the page as PDFium returns it, without NUL and characters outside the page.

    Returns:
        The characters by their number in PDFium.
    """
    characters: str | list[str] = text
    if len(text) != text_page.count_chars():
        count = text_page.count_chars()
        characters = [chr(pdfium_c.FPDFText_GetUnicode(text_page.raw, number)) for number in range(count)]
    doubtful = {}
    for number, character in enumerate(characters):
        # Calls of PDFium take most of the time, and most characters need no call.
        if character.isalnum() or character in " \n":
            continue
        if character == "\r":
            is_doubtful = pdfium_c.FPDFText_IsGenerated(text_page.raw, number) != 1
        else:
            has_no_entry = pdfium_c.FPDFText_HasUnicodeMapError(text_page.raw, number) == 1
            is_doubtful = has_no_entry or _UNKNOWN.match(character) is not None
        if is_doubtful:
            doubtful[number] = character
    return doubtful


def _map_doubtful(
    text_page: pdfium.PdfTextPage, doubtful: Mapping[int, str], letters: Mapping[tuple[str, str], str]
) -> dict[int, str]:
    """Return the letters for the doubtful characters whose font or glyph name is known, by their number in PDFium."""
    known = {}
    for number, character in doubtful.items():
        font = _read_font_name(text_page, number)
        mapped = letters.get((font, character)) or _map_code(character, font)
        if mapped != character:
            known[number] = mapped
    return known


def _read_letters(text_page: pdfium.PdfTextPage, known: Mapping[int, str]) -> str:
    """Read the text of a page letter by letter. Letters in ``known`` replace those of PDFium."""
    pieces = []
    for number in range(text_page.count_chars()):
        if number in known:
            pieces.append(known[number])
        elif pdfium_c.FPDFText_IsHyphen(text_page.raw, number) == 1:
            pieces.append(HYPHEN)
        else:
            pieces.append(chr(pdfium_c.FPDFText_GetUnicode(text_page.raw, number)))
    return "".join(pieces)


def _map_code(code: str, font: str) -> str:
    """Return the letters of a code in a font with a known table, or the code itself."""
    if code in _TEX_LIGATURES and _TEX_TEXT_FONT.match(font):
        return _TEX_LIGATURES[code]
    if _SYMBOL_CODE.match(code) is None:
        return code
    low = ord(code) & 0xFF
    symbol_font = _SYMBOL_FONT.match(font)
    if symbol_font is None:
        # Other fonts add 0xF000 to ASCII codes.
        return chr(low) if low < _ASCII_END else code
    name = f"{symbol_font[1].title()} {symbol_font[2]}".strip()
    return chr(dingbats[name, low]) if (name, low) in dingbats else code


def _read_font_name(text_page: pdfium.PdfTextPage, number: int) -> str:
    """Return the name of a character's font without its subset prefix."""
    flags = ctypes.c_int()
    size = pdfium_c.FPDFText_GetFontInfo(text_page.raw, number, None, 0, flags)
    buffer = ctypes.create_string_buffer(size)
    pdfium_c.FPDFText_GetFontInfo(text_page.raw, number, buffer, size, flags)
    return _remove_subset_mark(buffer.value.decode("utf-8", "replace"))


def _remove_subset_mark(name: str) -> str:
    return name.rpartition("+")[2]


class GlyphNames:
    """The glyph names of a file's fonts. PDFium does not return them, so pypdf reads them on demand."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _reader(self) -> pypdf.PdfReader | None:
        try:
            return pypdf.PdfReader(self._path)
        except (pypdf.errors.PyPdfError, ValueError, KeyError, TypeError, OSError):
            # PDFium reads more damaged files than pypdf does. Then the letters stay unknown, and are reported.
            return None

    def find_letters(self, page_number: int) -> dict[tuple[str, str], str]:
        """Return the letters of glyphs on a page by font and by the character that PDFium reads for them."""
        letters: dict[tuple[str, str], str] = {}
        if self._reader is None:
            return letters
        try:
            for font in _iterate_fonts(self._reader.pages[page_number]):
                letters |= _read_font_letters(font)
        except (pypdf.errors.PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            # A damaged font has no usable glyph names.
            return letters
        return letters


def _iterate_fonts(holder: Any, nesting: int = 0) -> Iterator[Any]:
    """Yield the fonts in the resources of a page and of its forms."""
    resources = _resolve(holder.get("/Resources")) or {}
    for font in (_resolve(resources.get("/Font")) or {}).values():
        yield _resolve(font)
    for form in (_resolve(resources.get("/XObject")) or {}).values():
        if nesting < _MAX_NESTED_FORMS and _resolve(form).get("/Subtype") == "/Form":
            yield from _iterate_fonts(_resolve(form), nesting + 1)


def _resolve(item: Any) -> Any:
    return None if item is None else item.get_object()


def _read_font_letters(font: Any) -> dict[tuple[str, str], str]:
    """Return the letters in the glyph names of a font, by the font's name and PDFium's character."""
    encoding = _resolve(font.get("/Encoding"))
    if not isinstance(encoding, dict) or "/Differences" not in encoding:
        return {}
    table = _resolve(font.get("/ToUnicode"))
    characters = {} if table is None else _read_unicode_map(table.get_data())
    font_name = _remove_subset_mark(str(font.get("/BaseFont", "")).lstrip("/"))
    letters: dict[tuple[str, str], str] = {}
    code = 0
    for entry in _resolve(encoding["/Differences"]):
        if isinstance(entry, int):
            code = int(entry)
            continue
        glyph_letters = toUnicode(str(entry).lstrip("/")).translate(REPAIRS)
        if glyph_letters.isalpha():
            letters[font_name, characters.get(code, chr(code))] = glyph_letters
        code += 1
    return letters


def _read_unicode_map(content: bytes) -> dict[int, str]:
    """Return the characters of codes in a ToUnicode table. Ranges with an array of targets are ignored."""
    characters: dict[int, str] = {}
    for kind, section in _MAP_SECTION.findall(content):
        codes = [bytes.fromhex(code.decode().zfill(2)) for code in _MAP_CODES.findall(section) if len(code) % 2 == 0]
        size = 2 if kind == b"bfchar" else 3
        for start in range(0, len(codes) - size + 1, size):
            first_code = int.from_bytes(codes[start])
            last_code = int.from_bytes(codes[start + size - 2])
            text = codes[start + size - 1].decode("utf-16-be", "replace")
            for offset in range(min(last_code - first_code, 0xFF) + 1):
                characters[first_code + offset] = text[:-1] + chr(ord(text[-1]) + offset) if text else ""
    return characters
