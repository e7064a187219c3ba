"""Reader of PDF files with PDFium (pypdfium2).

PDFium reads the text that browsers show. It also reads files whose owner forbids printing or changing, as all viewers
do. pypdf needs another package for such files, and does not mark hyphens at line ends.

A PDF contains no paragraphs and no words, only letters at positions. So lines are joined here. A line that is clearly
shorter than the other lines of its page ends a paragraph. Headers and footers that occur on many pages are removed.
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
        reasons = "; ".join(f"{part}: {reason}" for part, reason in problems) or "no pages"
        raise NoTextError(f"{path}: no text can be extracted ({reasons}). Run text recognition first.")
    text, places = join_paragraphs(remove_running_heads(readable_pages))
    return WholeDocument(text, title, problems + describe_unread(unread), places, parse_edition_dates([created]))


def _explain_unreadable_page(lines: Sequence[str]) -> str | None:
    if not lines:
        return _NO_TEXT
    return explain_illegible("\n".join(line.removesuffix(HYPHEN) for line in lines))


def _open_document(path: Path) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(path)
    except pdfium.PdfiumError as error:
        if error.err_code == pdfium_c.FPDF_ERR_PASSWORD:
            raise NoTextError(f"{path}: is locked with a password. Use a copy without a password.") from error
        if error.err_code == pdfium_c.FPDF_ERR_SECURITY:
            raise NoTextError(f"{path}: is copy-protected. Use a copy without protection.") from error
        raise DataError(f"{path}: is damaged, or is not a PDF ({error})") from error


def _read_pages(path: Path, document: pdfium.PdfDocument, unread: Counter[str]) -> Iterator[str]:
    """Yield the text of each page without unseen text, which is counted in ``unread``."""
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
    """Return the non-blank lines of a page, with single blanks. A line that ends within a word ends in HYPHEN."""
    text = _HYPHENS.sub(f"{HYPHEN}\n", text.translate(_REPAIRS))
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
            text = line.removesuffix(HYPHEN)
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
