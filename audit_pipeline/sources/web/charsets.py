"""The text of a page whose charset is declared wrongly, declared inside it, or not at all."""

from __future__ import annotations

import codecs

from bs4.dammit import EncodingDetector
from charset_normalizer import from_bytes

from audit_pipeline.errors import DataError
from audit_pipeline.readers.file_bytes import MEBIBYTE

# The charsets that browsers read in the place of narrower ones.
_WIDER = {"gb2312": "gb18030", "gbk": "gb18030", "iso-8859-1": "cp1252", "latin-1": "cp1252", "us-ascii": "cp1252"}
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def decode_page(content: bytes, charset: str | None = None) -> str:
    """Return ``content`` as text: by its byte-order mark, as UTF-8, or as declared, by ``charset`` or within.

    UTF-8 goes before what is declared, since nothing else passes for it. Where nothing is declared,
    charset-normalizer's guess is taken. Raises DataError where none fits.
    """
    marked = next((name for mark, name in _MARKS.items() if content.startswith(mark)), None)
    if marked is not None:
        candidates = [marked]
    else:
        inside = EncodingDetector.find_declared_encoding(content, is_html=True)
        declared = [_WIDER.get(name.lower(), name.lower()) for name in (charset, inside) if name]
        candidates = ["utf-8", *filter(_is_text_charset, declared)]
    for candidate in candidates:
        try:
            return content.decode(candidate)
        except UnicodeError:
            continue
    guess = from_bytes(content[:MEBIBYTE]).best() if candidates == ["utf-8"] else None
    if guess is not None:
        return content.decode(guess.encoding, errors="replace")
    raise DataError(f"wrong charset: its bytes are not {' nor '.join(dict.fromkeys(candidates))}")


def _is_text_charset(name: str) -> bool:
    """Return whether Python knows the charset, and it is one of text ("hex" is a codec too)."""
    try:
        bytes(4).decode(name)
    except (LookupError, UnicodeError, ValueError):
        return False
    return True
