"""Pages in the charset that they declare, in another one, and without any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.errors import DataError
from audit_pipeline.sources.web.charsets import decode_page

CHINESE = "这是一段中文文字，说明书摘要。" * 3


@pytest.mark.parametrize(
    ("content", "charset", "expected"),
    [
        ("é".encode(), "utf-8", "é"),
        ("é".encode(), "ISO-8859-1", "é"),  # declared without looking
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
def test_text_in_the_charset_that_is_declared_or_fits(content: bytes, charset: str | None, expected: str) -> None:
    assert decode_page(content, charset) == expected


def test_text_in_another_charset_than_declared_is_refused() -> None:
    for content in (CHINESE.encode("gb18030"), bytes(range(256)) * 4, b"\xef\xbb\xbf\xff"):
        with pytest.raises(DataError, match="wrong charset: its bytes are not utf-8"):
            decode_page(content, "utf-8")


@given(st.text(max_size=50), st.sampled_from([None, "utf-8"]))
def test_utf8_comes_back(text: str, charset: str | None) -> None:
    given_text = "x" + text  # so that no byte-order mark stands in front
    assert decode_page(given_text.encode(), charset) == given_text
