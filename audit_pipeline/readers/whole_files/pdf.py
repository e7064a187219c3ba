"""PDF files, as PDFium reads them (by pypdfium2).

PDFium reads what every browser shows, and files whose owner forbids printing or changing, as all viewers do. pypdf
needs another package for these, and marks no hyphen at a line's end.

A PDF holds no paragraphs and no words, only letters at places. So lines are joined again here: a line that is clearly
shorter than the page's others ends a paragraph, and what is at the head or foot of many pages is left out.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

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
from audit_pipeline.readers.whole_files.legible import REPAIRS, explain_illegible
from audit_pipeline.readers.whole_files.pdf_letters import HYPHEN, GlyphNames, read_page_text
from audit_pipeline.readers.whole_files.pdf_visibility import remove_unseen_text

_NO_TEXT = "no text on them, only pictures (a scan?) or nothing"
_LEAST_PAGES, _SHARE_OF_PAGES = 4, 0.4
"""A line at the head or foot of so many pages, and of such a share of them, is a running head."""
_SHORT, _NOT_FULL = 0.75, 0.9
"""A line shorter than this share of its page's full lines ends a paragraph; the second, where a sentence ends."""
_SENTENCE_END = re.compile(r"""[.!?…:;]["'”’»)\]]{0,3}\Z""")
_HYPHENS = re.compile("[\x02\ufffe]")
_REPAIRS = REPAIRS | dict.fromkeys(map(ord, "\u00ad\u200b"))
# PDFium is not made for several threads.
_ONE_AT_A_TIME = threading.Lock()


def read_pdf(path: Path) -> WholeDocument:
    """The running text of a PDF, paragraphs parted by an empty line.

    Pages without text, and those of fonts that do not say which letters they draw, are problems. Raises NoTextError
    where a password locks it or no page is left, and DataError where it is damaged.
    """
    with _ONE_AT_A_TIME, _open_document(path) as document:
        # Not every title is text.
        title: str | None = None
        made: str | None = None
        with suppress(UnicodeDecodeError):
            made = document.get_metadata_value("CreationDate")
            title = document.get_metadata_value("Title")
        unread: Counter[str] = Counter()
        pages = [_split_lines(text) for text in _read_pages(path, document, unread)]
    reasons = [
        explain_illegible("\n".join(line.removesuffix(HYPHEN) for line in page)) if page else _NO_TEXT for page in pages
    ]
    lost = Counter(reason for reason in reasons if reason is not None)
    problems = tuple((f"{count:,} of {len(pages):,} pages", reason) for reason, count in lost.items())
    if lost.total() == len(pages):
        why = "; ".join(f"{part}: {reason}" for part, reason in problems) or "no pages"
        raise NoTextError(f"{path}: no text can be extracted ({why}): run text recognition first")
    pages = [page if reason is None else [] for page, reason in zip(pages, reasons, strict=True)]
    joined, places = join_paragraphs(remove_running_heads(pages))
    return WholeDocument(joined, title, problems + describe_unread(unread), places, parse_edition_dates([made]))


def _open_document(path: Path) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(path)
    except pdfium.PdfiumError as error:
        if error.err_code == pdfium_c.FPDF_ERR_PASSWORD:
            raise NoTextError(f"{path}: locked with a password; use a copy that is not") from error
        if error.err_code == pdfium_c.FPDF_ERR_SECURITY:
            raise NoTextError(f"{path}: copy-protected; use a copy that is not") from error
        raise DataError(f"{path}: damaged, or not a PDF ({error})") from error


def _read_pages(path: Path, document: pdfium.PdfDocument, unread: Counter[str]) -> Iterator[str]:
    """Yield the text of each page. What nobody sees is left out and counted in ``unread``."""
    names = GlyphNames(path)
    for number in range(len(document)):
        try:
            page = document[number]
            text, letters_beside = read_page_text(page, number, names)
            unread[UNSEEN] += letters_beside
            if text.strip() and remove_unseen_text(page):
                seen, _ = read_page_text(page, number, names)
                unread[UNSEEN] += len("".join(text.split())) - len("".join(seen.split()))
                text = seen
        except pdfium.PdfiumError as error:
            raise DataError(f"{path}: page {number + 1} is damaged ({error})") from error
        page.close()
        yield text


def _split_lines(text: str) -> list[str]:
    """Return the lines of a page that hold something, blanks collapsed. A line that parts a word ends in HYPHEN."""
    text = _HYPHENS.sub(f"{HYPHEN}\n", text.translate(_REPAIRS))
    lines = (" ".join(line.split()) for line in re.split(r"\r\n|\r|\n", text))
    return [line for line in lines if line]


def remove_running_heads(pages: Sequence[Sequence[str]]) -> list[list[str]]:
    """The lines of each page without those that many pages have as head or foot, and without page numbers there.

    Lines are the same here if they differ in numbers alone. Of fewer than four pages only numbers are taken away.
    """
    heads = Counter(_mask_numbers(page[0]) for page in pages if page)
    feet = Counter(_mask_numbers(page[-1]) for page in pages if len(page) > 1)
    least = max(_LEAST_PAGES, _SHARE_OF_PAGES * len(pages))
    kept = []
    for page in pages:
        lines = list(page)
        if len(lines) > 1 and (heads[_mask_numbers(lines[0])] >= least or _is_page_number(lines[0])):
            lines = lines[1:]
        if len(lines) > 1 and (feet[_mask_numbers(lines[-1])] >= least or _is_page_number(lines[-1])):
            lines = lines[:-1]
        kept.append(lines)
    return kept


def _mask_numbers(line: str) -> str:
    return re.sub(r"\d+", "0", line).casefold()


def _is_page_number(line: str) -> bool:
    return re.fullmatch(r"\W*(?:page |seite |p\. ?)?(?:\d{1,5}|[ivxlc]{1,7})\W*", line, re.I) is not None


def join_paragraphs(pages: Sequence[Sequence[str]]) -> tuple[str, Places]:
    """The lines as paragraphs, joined by a blank, or by nothing where a hyphen parted a word; and where each page's
    first line begins.

    A line ends a paragraph if it is clearly shorter than its page's full lines, or a little shorter and a sentence
    ends with it. A full line at the end of a page goes on with the next one.
    """
    pieces: list[str] = []
    places: list[tuple[int, str]] = []
    gap, size = "", 0
    for number, page in enumerate(pages, 1):
        # Of a full line: that at nine tenths of all, by length.
        width = sorted(map(len, page))[len(page) * 9 // 10] if page else 0
        if page:
            places.append((size + len(gap), format_page_label(number)))
        for line in page:
            text = line.removesuffix(HYPHEN)
            pieces += gap, text
            size += len(gap) + len(text)
            gap = "" if text != line else "\n\n" if _ends_paragraph(line, width) else " "
    return "".join(pieces), tuple(places)


def _ends_paragraph(line: str, width: float) -> bool:
    return len(line) < _SHORT * width or (len(line) < _NOT_FULL * width and _SENTENCE_END.search(line) is not None)
