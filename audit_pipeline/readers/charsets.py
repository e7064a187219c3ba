"""Decoding of web pages with a wrong, a declared or a missing charset.

Labels have the same meaning as in browsers (WHATWG Encoding Standard): iso-8859-1 is windows-1252, gb2312 is GB 18030,
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

# UTF-32 precedes UTF-16, because its byte-order mark begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# A page in UTF-16 without a byte-order mark begins with "<" in two bytes.
_UTF16_STARTS = {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
_HEAD_BYTES = 4096
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_ESCAPE = b"\x1b"
_SHIFTED = "iso2022_jp"
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")


def find_codec(label: str, *, is_inside: bool = False) -> str | None:
    """Return Python's name for the encoding that browsers use for a label, or None if the label is unknown.

    Args:
        label: A label in a page or in a server's response, such as utf8, latin1, x-sjis.
        is_inside: The label was read from the page as ASCII. So the page is not in UTF-16, even if the label is.
    """
    encoding = webencodings.lookup(label)
    if encoding is None:
        # Browsers do not know some labels of programs, such as latin-1.
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
    if encoding.name == "gbk":
        # GB 18030 contains GBK.
        return "gb18030"
    return str(encoding.codec_info.name)


def decode_page(content: bytes, charset: str | None = None) -> str:
    """Decode the bytes of a page.

    The candidates are the encoding of the byte-order mark, UTF-8, and the declared charset. UTF-8 is tried first,
    because text in other encodings is not valid UTF-8. Without a declaration charset-normalizer guesses the charset.

    Args:
        content: The bytes.
        charset: The charset that the server declares.

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
    """Decode the bytes of a user's page as :func:`decode_page` does, but never refuse it.

    If no candidate fits, invalid bytes become U+FFFD, which the reader counts. The charset is UTF-8 if more characters
    are valid in UTF-8 than invalid. Otherwise it is the guessed or declared charset.
    """
    candidates = _list_candidates(content, charset)
    text = _decode_strictly(content, candidates)
    if text is not None:
        return text
    as_utf8 = content.decode(errors="replace")
    if len(_MULTIBYTE.findall(content)) > as_utf8.count("\ufffd"):
        return as_utf8
    if set(candidates) == {"utf-8"}:
        text = _decode_by_guess(content)
    if text is None:
        text = content.decode(candidates[-1], errors="replace")
    return text


def _list_candidates(content: bytes, charset: str | None) -> list[str]:
    """Return the charsets to try in their order, by Python's names."""
    for starts in (_MARKS, _UTF16_STARTS):
        for start, name in starts.items():
            if content.startswith(start):
                return [name]
    label_inside = EncodingDetector.find_declared_encoding(_COMMENT.sub(b"", content[:_HEAD_BYTES]), is_html=True)
    declared = []
    if charset:
        declared.append(find_codec(charset))
    if label_inside:
        declared.append(find_codec(label_inside, is_inside=True))
    known = [name for name in declared if name is not None]
    # ISO-2022-JP consists of ASCII bytes, so it is also valid UTF-8.
    if _SHIFTED in known and _ESCAPE in content:
        return [_SHIFTED]
    return ["utf-8", *known]


def _find_text_codec(label: str) -> str | None:
    """Return the name of Python's codec for a label, or None if it is unknown or no text codec, such as "hex"."""
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
    if guess is None:
        return None
    return content.decode(guess.encoding, errors="replace")
