"""Decoding of web pages, whose declared charset may be wrong or missing.

Charset labels have the same meaning as in browsers (WHATWG Encoding Standard). For example, iso-8859-1 means
windows-1252, gb2312 means GB 18030, shift_jis means windows-31j, and euc-kr means windows-949.
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
_ESCAPE_BYTE = b"\x1b"
_ISO_2022_JP = "iso2022_jp"
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")


def find_codec(label: str, *, is_inside: bool = False) -> str | None:
    """Return Python's name for the encoding that browsers use for a label, or None if the label is unknown.

    Args:
        label: A label in a page or in a server's response, such as utf8, latin1, x-sjis.
        is_inside: True if the label is part of the page and was read as ASCII. The page is then not in UTF-16, even if
            the label says so.
    """
    encoding = webencodings.lookup(label)
    if encoding is None:
        # Some labels that programs write, such as latin-1, are not in the WHATWG standard, but Python supports them.
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
        # The standard decodes GBK as GB 18030, which is a superset.
        return "gb18030"
    return str(encoding.codec_info.name)


def decode_page(content: bytes, charset: str | None = None) -> str:
    """Decode the bytes of a page.

    If there is a byte-order mark, its encoding is used. Otherwise UTF-8 is tried first, because text in other encodings
    is rarely valid UTF-8. Next are the charsets that the server and the page declare. If neither declares a known
    charset, charset-normalizer guesses one.

    Args:
        content: The bytes of the page.
        charset: The charset that the server declares, or None.

    Raises:
        DataError: If the bytes are invalid in every encoding that was tried.
    """
    candidates = _list_candidates(content, charset)
    text = _decode_strictly(content, candidates)
    if text is None and candidates == ["utf-8"]:
        text = _decode_by_guess(content)
    if text is None:
        raise DataError(
            f"the page cannot be decoded, because its bytes are not valid {' or '.join(dict.fromkeys(candidates))}"
        )
    return text


def decode_page_file(content: bytes, charset: str | None = None) -> str:
    """Decode the bytes of a user's page as :func:`decode_page` does, but never raise an error.

    If the bytes are invalid in every encoding that was tried, each invalid byte becomes U+FFFD. The page is then
    decoded as UTF-8 if it has more valid than invalid UTF-8 sequences, else in the declared or guessed charset.
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
    """Return Python's names of the charsets to try, in the order of the attempts."""
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
    # Text in ISO-2022-JP consists of ASCII bytes and would be accepted as UTF-8, so UTF-8 must not be tried.
    if _ISO_2022_JP in known and _ESCAPE_BYTE in content:
        return [_ISO_2022_JP]
    return ["utf-8", *known]


def _find_text_codec(label: str) -> str | None:
    """Return the name of Python's text codec for a label, or None. For example, "hex" is a codec, but not for text."""
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
