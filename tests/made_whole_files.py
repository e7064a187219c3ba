"""Small PDFs and Word files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence

from fpdf import FPDF

_NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PREFIXES = {
    "w": _NAMESPACE,
    "r": _OFFICE,
    "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
    "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
    "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
    "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
    "v": "urn:schemas-microsoft-com:vml",
}
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def pdf(pages: Sequence[Sequence[str]], *, owner: str | None = None, user: str | None = None, title: str = "") -> bytes:
    """A PDF of pages of lines; with a password if there is a ``user``."""
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


def lines_at(lines: Sequence[str], *, y: int = 700, size: float = 12, before: str = "") -> str:
    """Operators that draw lines of text in the font F1, from ``y`` points above the page's foot down."""
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
    """A PDF of one page with these operators.

    Its resources are the font F1 and the layer OC1. ``letters``: what the font says of codes, as UTF-16 in hexadecimal.
    ``glyph``: the name of the glyph of @; without ``letters`` the font says nothing else then.
    """
    meaning = f"/Encoding << /Differences [64 /{glyph}] >>" if glyph else ""
    meaning += " /ToUnicode 6 0 R" if letters or not glyph else ""
    letters = {code: f"{code:04X}" for code in range(32, 127)} | dict(letters or {})
    table = "\n".join(f"<{code:02X}> <{target}>" for code, target in letters.items())
    unicode = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def /CMapType 2 def "
        f"1 begincodespacerange <00> <FF> endcodespacerange {len(letters)} beginbfchar\n{table}\nendbfchar "
        "endcmap end end"
    )
    resources = "/Font << /F1 5 0 R >> /Properties << /OC1 7 0 R >>"
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R {catalog} >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << {resources} >> >>",
        f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        f"<< /Type /Font /Subtype /Type1 /BaseFont /{font} /FirstChar 0 /LastChar 126 "
        f"/Widths [{' '.join(['500'] * 127)}] {meaning} >>",
        f"<< /Length {len(unicode)} >>\nstream\n{unicode}\nendstream",
        "<< /Type /OCG /Name (Layer) >>",
    ]
    data, offsets = b"%PDF-1.7\n", []
    for number, inside in enumerate(objects, 1):
        offsets.append(len(data))
        data += f"{number} 0 obj\n{inside}\nendobj\n".encode("latin-1")
    start, count = len(data), len(objects) + 1
    data += f"xref\n0 {count}\n0000000000 65535 f \n".encode()
    data += b"".join(f"{offset:010} 00000 n \n".encode() for offset in offsets)
    return data + f"trailer << /Size {count} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF".encode()


def scan() -> bytes:
    """A PDF of a page on which something is drawn."""
    file = FPDF()
    file.add_page()
    file.rect(20, 20, 60, 60)
    return bytes(file.output())


def docx(body: str, *, main: str = "word/document.xml", **members: str | bytes) -> bytes:
    """A Word file with the inside of its body as XML."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            '<Default Extension="xml" ContentType="application/xml"/></Types>',
        )
        archive.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
            f'Type="{_OFFICE}/officeDocument" Target="{main}"/></Relationships>',
        )
        archive.writestr(main, word_part("document", f"<w:body>{body}</w:body>"))
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


def word_part(name: str, inside: str) -> str:
    """A part of a Word file: its root with the inside as XML."""
    namespaces = " ".join(f'xmlns:{prefix}="{address}"' for prefix, address in _PREFIXES.items())
    return f"<w:{name} {namespaces}>{inside}</w:{name}>"


def word_relations(**targets: str) -> dict[str, str]:
    """The relationships of a Word file's document: each id, with the last word of its type and its target."""
    relations = ""
    for identity, relation in targets.items():
        kind, _, target = relation.partition(" ")
        relations += f'<Relationship Id="{identity}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
    return {
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{relations}</Relationships>'
    }


def paragraph(words: str) -> str:
    """A paragraph of a Word file."""
    return f"<w:p><w:r><w:t>{words}</w:t></w:r></w:p>"
