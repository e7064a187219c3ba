"""Builders of small PDFs and Word files, and a function that reads the content of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fpdf import FPDF
from made_epubs import packed

from audit_pipeline.readers.whole_files.document import WholeDocument, read_document

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006"
_PREFIXES = {
    "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "m": f"{_OFFICE}/math",
    "r": f"{_OFFICE}/relationships",
    "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
    "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
    "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
    "v": "urn:schemas-microsoft-com:vml",
}


def read_content(folder: Path, name: str, content: bytes) -> WholeDocument:
    """Write a file and read it as one document."""
    file = folder / name
    file.write_bytes(content)
    return read_document(file)


def pdf(pages: Sequence[Sequence[str]], *, owner: str | None = None, user: str | None = None, title: str = "") -> bytes:
    """Return a PDF of pages of lines, locked with the passwords of its owner and user if they are given."""
    file = FPDF()
    file.set_title(title)
    file.set_font("Times", size=12)
    if owner is not None:
        file.set_encryption(owner, user)
    for lines in pages:
        file.add_page()
        for line in lines:
            file.cell(0, 6, line)
            file.ln()
    return bytes(file.output())


def scan() -> bytes:
    """Return a PDF of one page with a rectangle and no text."""
    file = FPDF()
    file.add_page()
    file.rect(20, 20, 60, 60)
    return bytes(file.output())


def lines_at(lines: Sequence[str], *, y: int = 700, size: float = 12, before: str = "") -> str:
    """Return operators that draw lines in the font F1, the first ``y`` points above the bottom of the page."""
    drawn = " ".join(f"({line}) Tj T*" for line in lines)
    return f" BT {before} /F1 {size} Tf 50 {y} Td 14 TL {drawn} ET "


def drawn_pdf(
    content: str,
    *,
    catalog: str = "",
    letters: Mapping[int, str] | None = None,
    font: str = "Helvetica",
    glyph: str = "",
) -> bytes:
    """Return a PDF of one page with operators, which can use the font F1 and the layer OC1.

    Args:
        letters: Entries in the font's map to Unicode: UTF-16 in hexadecimal, by code.
        glyph: Name of the glyph of @. Without ``letters`` the font then has no map to Unicode.
    """
    meaning = f"/Encoding << /Differences [64 /{glyph}] >>" if glyph else ""
    meaning += " /ToUnicode 6 0 R" if letters or not glyph else ""
    letters = {code: f"{code:04X}" for code in range(32, 127)} | dict(letters or {})
    table = "\n".join(f"<{code:02X}> <{target}>" for code, target in letters.items())
    unicode = (
        "begincmap /CMapType 2 def 1 begincodespacerange <00> <FF> endcodespacerange "
        f"{len(letters)} beginbfchar\n{table}\nendbfchar endcmap"
    )
    resources = "/Font << /F1 5 0 R >> /Properties << /OC1 7 0 R >>"
    objects = (
        f"<< /Type /Catalog /Pages 2 0 R {catalog} >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << {resources} >> >>",
        f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        f"<< /Type /Font /Subtype /Type1 /BaseFont /{font} /FirstChar 0 /LastChar 126 "
        f"/Widths [{' '.join(['500'] * 127)}] {meaning} >>",
        f"<< /Length {len(unicode)} >>\nstream\n{unicode}\nendstream",
        "<< /Type /OCG /Name (Layer) >>",
    )
    data = b"%PDF-1.7\n"
    offsets = []
    for number, inside in enumerate(objects, 1):
        offsets.append(f"{len(data):010} 00000 n \n")
        data += f"{number} 0 obj\n{inside}\nendobj\n".encode("latin-1")
    size = len(objects) + 1
    table = f"xref\n0 {size}\n0000000000 65535 f \n{''.join(offsets)}trailer << /Size {size} /Root 1 0 R >>\n"
    return data + f"{table}startxref\n{len(data)}\n%%EOF".encode()


def docx(body: str, **members: str | bytes) -> bytes:
    """Return a Word file with the content of its body as XML, and other members by path."""
    relations = f'<Relationships><Relationship Id="r1" Type="{_OFFICE}/officeDocument" Target="word/document.xml"/>'
    document = word_part("document", f"<w:body>{body}</w:body>")
    return packed({"_rels/.rels": f"{relations}</Relationships>", "word/document.xml": document, **members})


def word_part(name: str, inside: str) -> str:
    """Return a part of a Word file: its root element with its content as XML."""
    namespaces = " ".join(f'xmlns:{prefix}="{address}"' for prefix, address in _PREFIXES.items())
    return f"<w:{name} {namespaces}>{inside}</w:{name}>"


def word_relations(**targets: str) -> dict[str, str]:
    """Return the relationships of a Word file's document. ``targets`` are types with targets, by id."""
    relations = ""
    for identity, relation in targets.items():
        kind, _, target = relation.partition(" ")
        relations += f'<Relationship Id="{identity}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
    return {"word/_rels/document.xml.rels": f"<Relationships>{relations}</Relationships>"}


def paragraph(words: str) -> str:
    return f"<w:p><w:r><w:t>{words}</w:t></w:r></w:p>"
