"""Decoding of pages with a right, wrong or missing charset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.errors import DataError
from audit_pipeline.readers.charsets import decode_page, decode_page_file, find_codec

CHINESE = "这是一段中文文字，说明书摘要。" * 3


@pytest.mark.parametrize(
    ("content", "charset", "expected"),
    [
        ("é".encode(), "utf-8", "é"),
        ("é".encode(), "ISO-8859-1", "é"),
        ("é".encode("latin-1"), "ISO-8859-1", "é"),
        (b"\x93quoted\x94", "latin-1", "“quoted”"),
        (b"\xef\xbb\xbfmarked", None, "marked"),
        ("marked é".encode("utf-16"), "utf-8", "marked é"),
        (CHINESE.encode("gb18030"), "gb2312", CHINESE),
        (CHINESE.encode("gb18030"), "no-such-charset", CHINESE),
        (CHINESE.encode("gb18030"), "hex", CHINESE),
        (CHINESE.encode("big5", "ignore"), "big5", CHINESE.encode("big5", "ignore").decode("big5")),
        (b"<meta charset='gbk'>" + CHINESE.encode("gb18030"), "utf-8", f"<meta charset='gbk'>{CHINESE}"),
        (b"", None, ""),
    ],
)
def test_pages_are_decoded_in_the_declared_or_fitting_charset(
    content: bytes, charset: str | None, expected: str
) -> None:
    assert decode_page(content, charset) == expected


def test_pages_in_another_charset_than_declared_are_refused() -> None:
    for content in (CHINESE.encode("gb18030"), bytes(range(256)) * 4, b"\xef\xbb\xbf\xff"):
        with pytest.raises(DataError, match="its bytes are not valid utf-8"):
            decode_page(content, "utf-8")


@max_examples(40)
@given(st.text(max_size=50), st.sampled_from([None, "utf-8"]))
def test_utf8_is_decoded_with_and_without_a_declaration(text: str, charset: str | None) -> None:
    given_text = "x" + text  # prevents a byte-order mark
    assert decode_page(given_text.encode(), charset) == given_text


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("iso-8859-1", "cp1252"),
        ("latin1", "cp1252"),
        ("latin-1", "cp1252"),
        (" ASCII ", "cp1252"),
        ("iso-8859-9", "cp1254"),
        ("tis-620", "cp874"),
        ("gb2312", "gb18030"),
        ("gbk", "gb18030"),
        ("shift_jis", "cp932"),
        ("x-sjis", "cp932"),
        ("euc-kr", "cp949"),
        ("uhc", "cp949"),
        ("x-user-defined", "cp1252"),
        ("utf8", "utf-8"),
        ("utf-16", "utf-8"),
        ("hz-gb-2312", None),
        ("hex", None),
        ("no-such-charset", None),
    ],
)
def test_labels_have_the_same_meaning_as_in_browsers(label: str, codec: str | None) -> None:
    assert find_codec(label, is_inside=True) == codec


QUOTED = "Caf\u00e9 \u201cquoted\u201d and it\u2019s all"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"<meta charset=iso-8859-1>" + QUOTED.encode("cp1252"), QUOTED),
        (b"<meta charset=utf-16>" + QUOTED.encode(), QUOTED),
        (b"<!-- <meta charset=koi8-r> --><meta charset=latin1>" + QUOTED.encode("cp1252"), QUOTED),
        (b"<?xml version='1.0' encoding='windows-31j'?>" + "\u2460\u9ad9".encode("cp932"), "\u2460\u9ad9"),
        (b"<meta charset=iso-2022-jp>" + "\u3042".encode("iso2022_jp"), "\u3042"),
        (("<p>" + QUOTED).encode("utf-16-le"), QUOTED),
        (f"<meta charset=utf-8>{QUOTED}".encode() + b"\xff", f"{QUOTED}\ufffd"),
    ],
)
def test_files_of_pages_are_decoded_as_in_browsers(content: bytes, text: str) -> None:
    assert decode_page_file(content).rpartition(">")[2] == text
