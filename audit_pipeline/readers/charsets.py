"""The text of a page whose charset is declared wrongly, declared inside it, or not at all.

Labels mean what they mean to browsers (WHATWG Encoding Standard): iso-8859-1 is windows-1252, gb2312 is GB 18030,
shift_jis is windows-31j, euc-kr is windows-949.
"""

from __future__ import annotations

import codecs
import re

import webencodings
from bs4.dammit import EncodingDetector
from charset_normalizer import from_bytes

from audit_pipeline.errors import DataError
from audit_pipeline.readers.file_bytes import MEBIBYTE

# The mark of UTF-32 begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Pages in UTF-16 without a mark: the first character is "<".
_UTF16_STARTS = {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
_HEAD_BYTES = 4096
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_ESCAPE = b"\x1b"
_SHIFTED = "iso2022_jp"
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")


def find_codec(label: str, *, is_inside: bool = False) -> str | None:
    """Return Python's name for the encoding that browsers use for a label, or None if no label of text is known.

    Args:
        label: A label as pages and servers write it: utf8, latin1, x-sjis.
        is_inside: The label stands in the page's own bytes. These are no UTF-16 then, whatever the label says.
    """
    encoding = webencodings.lookup(label)
    if encoding is None:
        # Labels that only programs know, such as latin-1.
        codec = _find_text_codec(label)
        encoding = webencodings.lookup(codec) if codec else None
        if encoding is None:
            return codec
    if encoding.name == "replacement":
        return None
    if is_inside and encoding.name in ("utf-16le", "utf-16be"):
        return "utf-8"
    if encoding.name == "x-user-defined":
        return "cp1252"
    # The decoder for GBK is that for GB 18030, which contains it.
    return "gb18030" if encoding.name == "gbk" else str(encoding.codec_info.name)


def decode_page(content: bytes, charset: str | None = None) -> str:
    """Return ``content`` as text: by its byte-order mark, as UTF-8, or as declared, by ``charset`` or within.

    UTF-8 goes before what is declared, since nothing else passes for it. If nothing is declared,
    charset-normalizer's guess is taken.

    Raises:
        DataError: If no candidate fits.
    """
    candidates = _list_candidates(content, charset)
    text = _decode_strictly(content, candidates)
    if text is None and candidates == ["utf-8"]:
        text = _decode_by_guess(content)
    if text is None:
        raise DataError(f"wrong charset: its bytes are not {' nor '.join(dict.fromkeys(candidates))}")
    return text


def decode_page_file(content: bytes, charset: str | None = None) -> str:
    """Return the text of a page that the user gave, as :func:`decode_page` does, but never refuse it.

    Bytes that fit no candidate become U+FFFD, which the reader counts: in UTF-8 if more characters are valid UTF-8
    than not, else in the guessed or declared charset.
    """
    candidates = _list_candidates(content, charset)
    text = _decode_strictly(content, candidates)
    if text is not None:
        return text
    as_utf8 = content.decode(errors="replace")
    if len(_MULTIBYTE.findall(content)) > as_utf8.count("\ufffd"):
        return as_utf8
    guessed = _decode_by_guess(content) if set(candidates) == {"utf-8"} else None
    return content.decode(candidates[-1], errors="replace") if guessed is None else guessed


def _list_candidates(content: bytes, charset: str | None) -> list[str]:
    """Return Python's names of the charsets to try, in their order."""
    for starts in (_MARKS, _UTF16_STARTS):
        for start, name in starts.items():
            if content.startswith(start):
                return [name]
    inside = EncodingDetector.find_declared_encoding(_COMMENT.sub(b"", content[:_HEAD_BYTES]), is_html=True)
    declared = []
    if charset:
        declared.append(find_codec(charset))
    if inside:
        declared.append(find_codec(inside, is_inside=True))
    known = [name for name in declared if name is not None]
    # ISO-2022-JP is written in ASCII, which passes for UTF-8.
    if _SHIFTED in known and _ESCAPE in content:
        return [_SHIFTED]
    return ["utf-8", *known]


def _find_text_codec(label: str) -> str | None:
    """Return the name of Python's codec, or None if there is none, or it is not one of text ("hex" is a codec too)."""
    try:
        bytes(4).decode(label)
        return codecs.lookup(label).name
    except (LookupError, UnicodeError, ValueError):
        return None


def _decode_strictly(content: bytes, candidates: list[str]) -> str | None:
    for candidate in candidates:
        try:
            return content.decode(candidate)
        except UnicodeError:
            continue
    return None


def _decode_by_guess(content: bytes) -> str | None:
    guess = from_bytes(content[:MEBIBYTE]).best()
    return None if guess is None else content.decode(guess.encoding, errors="replace")
