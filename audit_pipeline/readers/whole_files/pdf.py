"""Reader of PDF files with PDFium (pypdfium2).

PDFium reads the text that browsers show. It also reads files whose owner forbids printing or changing, as all viewers
do. pypdf needs another package for such files, and does not mark hyphens at line ends.

A PDF contains no paragraphs and no words, only letters at positions. So lines are joined here. A line that is clearly
shorter than the other lines of its page ends a paragraph. Headers and footers that occur on many pages are removed.

PDFium translates codes to Unicode with the tables of the fonts. Some tables are missing or contain private codes. Then
other sources are used: the names of the font's glyphs (such as f_f_i), and known tables for TeX, Adobe and symbol
fonts.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pypdf
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c
from fontTools.agl import toUnicode
from mammoth.docx.dingbats import dingbats

from audit_pipeline.errors import DataError
from audit_pipeline.readers.dates import parse_edition_dates
from audit_pipeline.readers.whole_files.document import (
    UNSEEN,
    NoTextError,
    Places,
    WholeDocument,
    describe_unread,
    format_page_label,
)
from audit_pipeline.readers.whole_files.legibility import REPAIRS, explain_illegible
from audit_pipeline.readers.whole_files.pdf_visibility import remove_unseen_text

_NO_TEXT = "these pages contain no text, only pictures (a scan?) or nothing"
# The same first or last line of at least this number and this share of pages is a header or footer.
_MIN_PAGES = 4
_SHARE_OF_PAGES = 0.4
# A line that is shorter than this share of its page's full lines ends a paragraph.
_SHORT = 0.75
# A line that is shorter than this share of its page's full lines ends a paragraph if it also ends a sentence.
_NOT_FULL = 0.9
_SENTENCE_END = re.compile(r"""[.!?…:;]["'”’»)\]]{0,3}\Z""")
_HYPHENS = re.compile("[\x02\ufffe]")
_REPAIRS = REPAIRS | dict.fromkeys(map(ord, "\u00ad\u200b"))
# PDFium is not thread-safe.
_PDFIUM_LOCK = threading.Lock()

# PDFium's character for a hyphen within a word at the end of a line, together with the line end.
_HYPHEN = "\x02"
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
# First code, last code, and either the target of the first code or an array of the targets of all codes.
_MAP_RANGE = re.compile(rb"<([0-9A-Fa-f]+)>\s*<([0-9A-Fa-f]+)>\s*(?:<([0-9A-Fa-f]+)>|\[([^\]]*)\])")
_MAX_NESTED_FORMS = 5


def read_pdf(path: Path) -> WholeDocument:
    """Read the running text of a PDF. An empty line separates paragraphs.

    Pages without text, and pages in fonts with unknown letters, are listed as problems.

    Raises:
        NoTextError: If the file has a password, or no page has readable text.
        DataError: If the file is damaged.
    """
    with _PDFIUM_LOCK, _open_document(path) as document:
        title: str | None = None
        created: str | None = None
        # Some titles are not valid text.
        with suppress(UnicodeDecodeError):
            created = document.get_metadata_value("CreationDate")
            title = document.get_metadata_value("Title")
        unread: Counter[str] = Counter()
        pages = list(map(_split_lines, _read_pages(path, document, unread)))
    lost: Counter[str] = Counter()
    readable_pages: list[list[str]] = []
    for page in pages:
        reason = _explain_unreadable_page(page)
        if reason is None:
            readable_pages.append(page)
        else:
            lost[reason] += 1
            # An empty page in its place preserves the page numbers.
            readable_pages.append([])
    problems = tuple((f"{count:,} of {len(pages):,} pages", reason) for reason, count in lost.items())
    if lost.total() == len(pages):
        reasons = "; ".join(f"{part}: {reason}" for part, reason in problems) or "the file has no pages"
        raise NoTextError(f"{path}: no text can be extracted ({reasons}). Run text recognition first.")
    text, places = join_paragraphs(remove_running_heads(readable_pages))
    return WholeDocument(text, title, problems + describe_unread(unread), places, parse_edition_dates([created]))


def _explain_unreadable_page(lines: Sequence[str]) -> str | None:
    if not lines:
        return _NO_TEXT
    return explain_illegible("\n".join(line.removesuffix(_HYPHEN) for line in lines))


def _open_document(path: Path) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(path)
    except pdfium.PdfiumError as error:
        if error.err_code == pdfium_c.FPDF_ERR_PASSWORD:
            raise NoTextError(f"{path}: the file is locked with a password. Use a copy without a password.") from error
        if error.err_code == pdfium_c.FPDF_ERR_SECURITY:
            raise NoTextError(f"{path}: the file is copy-protected. Use a copy without protection.") from error
        raise DataError(f"{path}: the file is damaged or not a PDF ({error})") from error


def _read_pages(path: Path, document: pdfium.PdfDocument, unread: Counter[str]) -> Iterator[str]:
    """Yield the text of each page without unseen text, which is counted in ``unread``."""
    names = _GlyphNames(path)
    for number in range(len(document)):
        try:
            page = document[number]
            text, n_letters_outside = _read_page_text(page, number, names)
            unread[UNSEEN] += n_letters_outside
            if text.strip() and remove_unseen_text(page):
                seen, _ = _read_page_text(page, number, names)
                unread[UNSEEN] += len("".join(text.split())) - len("".join(seen.split()))
                text = seen
        except pdfium.PdfiumError as error:
            raise DataError(f"{path}: page {number + 1} is damaged ({error})") from error
        page.close()
        yield text


def _split_lines(text: str) -> list[str]:
    """Return the non-blank lines of a page, with single blanks. A line that ends within a word ends in _HYPHEN."""
    text = _HYPHENS.sub(f"{_HYPHEN}\n", text.translate(_REPAIRS))
    lines = [" ".join(line.split()) for line in re.split(r"\r\n|\r|\n", text)]
    return list(filter(None, lines))


def remove_running_heads(pages: Sequence[Sequence[str]]) -> list[list[str]]:
    """Remove page numbers, and the headers and footers that many pages share.

    Lines that differ only in numbers count as equal. If there are fewer than four pages, only page numbers are removed.

    Returns:
        The remaining lines of each page.
    """
    heads: Counter[str] = Counter()
    feet: Counter[str] = Counter()
    for page in pages:
        if page:
            heads[_mask_numbers(page[0])] += 1
        if len(page) > 1:
            feet[_mask_numbers(page[-1])] += 1
    min_count = max(_MIN_PAGES, _SHARE_OF_PAGES * len(pages))
    remaining = []
    for page in pages:
        lines = list(page)
        if len(lines) > 1 and (heads[_mask_numbers(lines[0])] >= min_count or _is_page_number(lines[0])):
            lines = lines[1:]
        if len(lines) > 1 and (feet[_mask_numbers(lines[-1])] >= min_count or _is_page_number(lines[-1])):
            lines = lines[:-1]
        remaining.append(lines)
    return remaining


def _mask_numbers(line: str) -> str:
    return re.sub(r"\d+", "0", line).casefold()


def _is_page_number(line: str) -> bool:
    return re.fullmatch(r"\W*(?:page |seite |p\. ?)?(?:\d{1,5}|[ivxlc]{1,7})\W*", line, re.I) is not None


def join_paragraphs(pages: Sequence[Sequence[str]]) -> tuple[str, Places]:
    """Join lines to paragraphs.

    A blank joins two lines. Hyphenated lines are joined without a blank. A line ends a paragraph if it is
    clearly shorter than the full lines of its page. A line that is a little shorter must also end a sentence. A full
    line at the end of a page continues on the next page.

    Returns:
        The text, and the places: character offset and label of each page.
    """
    pieces: list[str] = []
    places: list[tuple[int, str]] = []
    size = 0
    gap = ""
    for number, page in enumerate(pages, 1):
        if not page:
            continue
        places.append((size + len(gap), format_page_label(number)))
        # The length of a full line is the 90th percentile of the page.
        width = sorted(map(len, page))[len(page) * 9 // 10]
        for line in page:
            text = line.removesuffix(_HYPHEN)
            pieces += gap, text
            size += len(gap) + len(text)
            gap = " "
            if text != line:
                gap = ""
            elif _ends_paragraph(line, width):
                gap = "\n\n"
    return "".join(pieces), tuple(places)


def _ends_paragraph(line: str, width: float) -> bool:
    if len(line) < _SHORT * width:
        return True
    return len(line) < _NOT_FULL * width and _SENTENCE_END.search(line) is not None


class _PageText(NamedTuple):
    """The text of a page.

    Attributes:
        text: The text on the page. Its lines end in line feeds.
        n_letters_outside: The number of letters outside the page, which no reader sees.
    """

    text: str
    n_letters_outside: int


def _read_page_text(page: pdfium.PdfPage, number: int, names: _GlyphNames) -> _PageText:
    """Read the text of a page.

    Args:
        page: The page.
        number: Number of the page from 0.
        names: The glyph names of the file's fonts.
    """
    text_page = page.get_textpage()
    text: str = text_page.get_text_bounded()
    doubtful = _find_doubtful_characters(text_page, text)
    n_letters_outside = 0
    if len(text) != text_page.count_chars():
        n_letters_outside = _count_letters(_read_letters(text_page, {})) - _count_letters(text)
    # A lone \r may be TeX's code of the ligature fl, so it is not a line end.
    text = text.replace("\r\n", "\n")
    if doubtful:
        known = _map_doubtful_characters(text_page, doubtful, names.find_letters(number))
        # PDFium's text omits NUL and joins the characters around it. So the text is read letter by letter.
        if known or "\0" in doubtful.values():
            text = _read_letters(text_page, known).replace("\r\n", "\n")
    text_page.close()
    return _PageText(text.translate(_ADOBE_LETTERS), max(n_letters_outside, 0))


def _count_letters(text: str) -> int:
    return len("".join(text.replace("\0", "").split()))


def _find_doubtful_characters(text_page: pdfium.PdfTextPage, text: str) -> dict[int, str]:
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


def _map_doubtful_characters(
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
            pieces.append(_HYPHEN)
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


class _GlyphNames:
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
    resources = _dereference(holder.get("/Resources")) or {}
    for font in (_dereference(resources.get("/Font")) or {}).values():
        yield _dereference(font)
    for form in (_dereference(resources.get("/XObject")) or {}).values():
        if nesting < _MAX_NESTED_FORMS and _dereference(form).get("/Subtype") == "/Form":
            yield from _iterate_fonts(_dereference(form), nesting + 1)


def _dereference(item: Any) -> Any:
    return None if item is None else item.get_object()


def _read_font_letters(font: Any) -> dict[tuple[str, str], str]:
    """Return the letters in the glyph names of a font, by the font's name and PDFium's character."""
    encoding = _dereference(font.get("/Encoding"))
    if not isinstance(encoding, dict) or "/Differences" not in encoding:
        return {}
    table = _dereference(font.get("/ToUnicode"))
    characters = {} if table is None else _read_unicode_map(table.get_data())
    font_name = _remove_subset_mark(str(font.get("/BaseFont", "")).lstrip("/"))
    letters: dict[tuple[str, str], str] = {}
    code = 0
    for entry in _dereference(encoding["/Differences"]):
        if isinstance(entry, int):
            code = int(entry)
            continue
        glyph_letters = toUnicode(str(entry).lstrip("/")).translate(REPAIRS)
        if glyph_letters.isalpha():
            letters[font_name, characters.get(code, chr(code))] = glyph_letters
        code += 1
    return letters


def _read_unicode_map(content: bytes) -> dict[int, str]:
    """Return the characters of codes in a ToUnicode table (ISO 32000-1, section 9.10.3)."""
    characters: dict[int, str] = {}
    for kind, section in _MAP_SECTION.findall(content):
        if kind == b"bfchar":
            codes = _MAP_CODES.findall(section)
            for code, target in zip(codes[::2], codes[1::2], strict=False):
                characters[int(code, 16)] = _decode_map_target(target)
            continue
        for first, last, target, targets in _MAP_RANGE.findall(section):
            first_code = int(first, 16)
            n_codes = min(int(last, 16) - first_code, 0xFF) + 1
            texts = list(map(_decode_map_target, _MAP_CODES.findall(targets)))
            if target:
                # The last character of the target counts up with the code.
                text = _decode_map_target(target)
                last_characters = range(ord(text[-1]), ord(text[-1]) + n_codes)
                texts = [text[:-1] + chr(min(character, sys.maxunicode)) for character in last_characters]
            characters.update(zip(range(first_code, first_code + n_codes), texts, strict=False))
    return characters


def _decode_map_target(digits: bytes) -> str:
    """Decode UTF-16 in hexadecimal digits. A missing last digit is 0."""
    return bytes.fromhex(digits.decode() + "0" * (len(digits) % 2)).decode("utf-16-be", "replace")
