"""Small PDFs and Word files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence

from fpdf import FPDF

_NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
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


def scan() -> bytes:
    """A PDF of a page on which something is drawn."""
    file = FPDF()
    file.add_page()
    file.rect(20, 20, 60, 60)
    return bytes(file.output())


def docx(body: str, *, main: str = "word/document.xml", **members: str) -> bytes:
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
        archive.writestr(main, f'<w:document xmlns:w="{_NAMESPACE}"><w:body>{body}</w:body></w:document>')
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


def paragraph(words: str) -> str:
    """A paragraph of a Word file."""
    return f"<w:p><w:r><w:t>{words}</w:t></w:r></w:p>"
