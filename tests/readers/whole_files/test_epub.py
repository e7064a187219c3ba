"""Intact, broken and hostile EPUBs."""

from __future__ import annotations

import io

import pytest
from made_epubs import CONTAINER, item, package, packed, page
from made_epubs import epub as book

from audit_pipeline.readers.whole_files import epub as module
from audit_pipeline.readers.whole_files.epub import Epub, EpubError, read_epub
from audit_pipeline.readers.whole_files.html import extract_prose


def read(content: bytes) -> Epub:
    return read_epub(io.BytesIO(content))


def texts(epub: Epub) -> list[str]:
    return [extract_prose(chapter.markup).text for chapter in epub.chapters]


def test_chapters_have_the_order_of_the_spine() -> None:
    opf = package(
        item("a", "a.xhtml") + item("b", "text/b%20b.xhtml") + item("nav", "nav.xhtml", 'properties="nav"'),
        '<itemref idref="b"/><itemref idref="nav" linear="no"/><itemref idref="a"/>',
        '<guide><reference type="Toc" href="nav.xhtml"/><reference type="cover" href="a.xhtml#top"/></guide>',
    )
    nav = page('<nav epub:type="toc"><ol><li><a href="a">One</a><ol><li>Deeper</li></ol></li></ol></nav>')
    epub = read(
        book(
            {"a.xhtml": page("<p>Last.</p>"), "text/b b.xhtml": page("<p>First.</p>"), "nav.xhtml": nav},
            opf=opf,
        )
    )
    assert texts(epub) == ["First.", "", "Last."]
    assert [chapter.path for chapter in epub.chapters] == ["OPS/text/b b.xhtml", "OPS/nav.xhtml", "OPS/a.xhtml"]
    assert [chapter.roles for chapter in epub.chapters] == [set(), {"nav", "toc", "non-linear"}, set()]
    assert epub.title == "The Lamp"
    assert epub.problems == ()


@pytest.mark.parametrize(
    ("encryption", "protected"),
    [
        ("http://www.idpf.org/2008/embedding", False),
        ("http://ns.adobe.com/pdf/enc#RC", False),
        ("http://www.w3.org/2001/04/xmlenc#aes128-cbc", True),
        (None, True),
    ],
)
def test_copy_protection_is_refused_but_scrambled_fonts_are_accepted(encryption: str | None, protected: bool) -> None:
    method = f'<enc:EncryptionMethod Algorithm="{encryption}"/>' if encryption else ""
    mark = (
        '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container" xmlns:enc="http://www.w3.org/2001/04/xmlenc#">'
        f'<enc:EncryptedData>{method}<enc:CipherData><enc:CipherReference URI="OPS/x"/></enc:CipherData>'
        "</enc:EncryptedData></encryption>"
    )
    content = book({"a.xhtml": page("<p>Text.</p>")}, **{"META-INF/encryption.xml": mark})
    if protected:
        with pytest.raises(EpubError, match="copy-protected"):
            read(content)
    else:
        assert texts(read(content)) == ["Text."]


def test_a_compressed_bomb_is_skipped_and_a_book_of_bombs_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bomb = page("<p>" + "0" * 300_000 + "</p>")
    content = book({"a.xhtml": page("<p>Text.</p>"), "bomb.xhtml": bomb})
    assert len(content) < 5_000

    with monkeypatch.context() as patch:
        patch.setattr(module, "_MAX_MEMBER_BYTES", 100_000)
        epub = read(content)
    assert texts(epub) == ["Text."]
    assert epub.problems == (("OPS/bomb.xhtml", "the uncompressed size of the file exceeds 100,000 bytes"),)
    monkeypatch.setattr(module, "_MAX_UNPACKED_BYTES", 500_000)
    with pytest.raises(EpubError, match="the uncompressed size of the EPUB exceeds 500,000 bytes"):
        read(book({"a.xhtml": bomb, "b.xhtml": bomb}))


@pytest.mark.parametrize(
    ("href", "reason"),
    [
        ("../../etc/passwd", "the file is missing in the EPUB"),
        ("..\\..\\x.xhtml", "the file is missing in the EPUB"),
        ("/etc/passwd", "the file is missing in the EPUB"),
        ("file:///etc/passwd", "the file is outside the EPUB"),
        ("https://example.org/x.xhtml", "the file is outside the EPUB"),
        ("http://[x.xhtml", "the address of the file is invalid"),
        ("", "the address of the file has no path"),
        ("absent.xhtml", "the file is missing in the EPUB"),
    ],
)
def test_references_outside_the_file_are_reported_and_not_followed(href: str, reason: str) -> None:
    opf = package(item("a", "a.xhtml") + item("x", href), '<itemref idref="a"/><itemref idref="x"/>')
    epub = read(book({"a.xhtml": page("<p>Text.</p>")}, opf=opf))
    assert texts(epub) == ["Text."]
    assert [problem for _, problem in epub.problems] == [reason]


def test_invalid_entries_of_the_spine_are_skipped_with_the_reason() -> None:
    opf = package(
        item("a", "a.xhtml")
        + item("again", "a.xhtml")
        + item("font", "f.otf", media="font/otf")
        + item("unlisted", "b.xhtml")
        + item("contents", "nav.xhtml", 'properties="nav"'),
        "".join(f'<itemref idref="{name}"/>' for name in ("a", "again", "nobody", "font")),
    )
    epub = read(book({"a.xhtml": page("<p>Text.</p>"), "f.otf": b"\x00"}, opf=opf))
    assert texts(epub) == ["Text."]
    assert dict(epub.problems) == {
        "OPS/a.xhtml": "the file occurs twice in the reading order",
        "nobody": "the reading order contains this file, but the list of files does not",
        "OPS/f.otf": "the type of the file is not text: font/otf",
        "OPS/b.xhtml": "the file is skipped, because it is not in the reading order",
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"just bytes", "is not a readable zip file"),
        (
            packed({"OPS/book.opf": "<package/>"}),
            r"the file is not an EPUB, because META-INF/container\.xml is missing",
        ),
        (packed({"META-INF/container.xml": "<container><rootfile"}), r"container\.xml is not valid XML"),
        (packed({"META-INF/container.xml": "<container/>"}), "names no package file"),
        (
            packed({"META-INF/container.xml": '<c><rootfile full-path="http://x.opf"/></c>'}),
            r"the file is outside the EPUB",
        ),
        (packed({"META-INF/container.xml": CONTAINER}), r"OPS/book\.opf: the file is missing in the EPUB"),
        (packed({"META-INF/container.xml": CONTAINER, "OPS/book.opf": "<package><manifest>"}), "is not valid XML"),
        (
            packed({"META-INF/container.xml": CONTAINER, "OPS/book.opf": "<package/>"}),
            "no chapter of the EPUB can be read",
        ),
        (
            packed(
                {
                    "META-INF/container.xml": CONTAINER,
                    "OPS/book.opf": '<!DOCTYPE p [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><package>&b;</package>',
                }
            ),
            "defines entities",
        ),
    ],
)
def test_files_that_are_no_epub_are_refused_with_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(EpubError, match=reason):
        read(content)


def test_locked_and_damaged_members_are_reported() -> None:
    content = bytearray(book({"a.xhtml": page("<p>Text.</p>"), "b.xhtml": page("<p>" + "Other words. " * 40 + "</p>")}))
    locked = bytearray(content)
    # The flag of a member is 8 bytes after the signature of its entry in the central directory.
    last_entry = locked.rfind(b"PK\x01\x02")
    locked[last_entry + 8] |= 1
    ((path, reason),) = read(bytes(locked)).problems
    assert path == "OPS/b.xhtml"
    assert "is encrypted, password required" in reason
    damaged = bytearray(content)
    data = damaged.rfind(b"PK\x03\x04") + 30 + len("OPS/b.xhtml")
    damaged[data + 20 : data + 60] = bytes(40)
    ((path, reason),) = read(bytes(damaged)).problems
    assert path == "OPS/b.xhtml"
    assert reason.startswith("the file is damaged or locked (")


def test_chapters_are_decoded_in_their_declared_encoding() -> None:
    latin = '<?xml version="1.0" encoding="iso-8859-1"?><html><body><p>café</p></body></html>'.encode("latin-1")
    wide = "<html><body><p>café</p></body></html>".encode("utf-16")
    epub = read(
        book(
            {
                "latin.xhtml": latin,
                "wide.xhtml": wide,
                "bom.xhtml": b"\xef\xbb\xbf<p>caf\xc3\xa9</p>",
                "bad.xhtml": b"<p>caf\xe9</p>",
                "odd.xhtml": b'<?xml version="1.0" encoding="klingon"?><p>x</p>',
            }
        )
    )
    assert texts(epub) == ["café"] * 3
    assert dict(epub.problems) == {
        "OPS/bad.xhtml": "the file contains invalid UTF-8 at byte 7",
        "OPS/odd.xhtml": "the file has the unknown encoding klingon",
    }


@pytest.mark.parametrize(
    ("dates", "edition"),
    [
        ("<dc:date>2014-03-01</dc:date>", "2014-03-01"),
        ("<dc:date>2014</dc:date>", "2014-01-01 to 2014-12-31"),
        ("<dc:Date>2014-03-01T23:30:00-05:00</dc:Date>", "2014-03-02"),
        ("<dc:date>1818</dc:date><dc:date>2014-03-01</dc:date>", "1818-01-01 to 2014-03-01"),
        (
            '<dc:date opf:event="original-publication">1818</dc:date><dc:date opf:event="conversion">2024</dc:date>'
            '<dc:date opf:event="modification">2025</dc:date><dc:date opf:event="publication">2014-03-01</dc:date>',
            "1818-01-01 to 2014-03-01",
        ),
        ('<meta property="dcterms:issued">2014</meta>', "2014-01-01 to 2014-12-31"),
        ('<meta property="dcterms:modified">2024-05-31T00:00:00Z</meta>', "None"),
        ('<dc:date opf:event="creation">2014</dc:date>', "None"),
        ("<dc:date>0101-01-01T00:00:00+00:00</dc:date>", "None"),
        ("<dc:date/><dc:date>soon</dc:date>", "None"),
    ],
)
def test_dates_of_publication_date_the_edition(dates: str, edition: str) -> None:
    opf = package(item("a", "a.xhtml"), '<itemref idref="a"/>').replace(
        "<metadata ", '<metadata xmlns:opf="http://www.idpf.org/2007/opf" '
    )
    content = book({"a.xhtml": page("<p>Text.</p>")}, opf=opf.replace("</metadata>", f"{dates}</metadata>"))
    assert str(read(content).edition) == edition


def test_prose_has_paragraphs_and_no_hidden_or_technical_text() -> None:
    body = """
      <!-- a remark --><h2>I</h2>
      <p>It was&#160;late;\n   the lamp<i>s</i> were lit<a epub:type="noteref" href="#n">1</a>.<br/>They
         wait\u00aded.\u2060</p>
      <div><p>Two.</p>Loose<p hidden="hidden">hid</p></div><p/>
      <ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp></ruby>
      <script>alert(1)</script><style>p {}</style><nav>menu</nav><svg><text>art</text></svg>
      <table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>
      <aside epub:type="footnote">1. A note.</aside><p>Un<b>closed
    """
    got = extract_prose(page(body, "bodymatter z3998:fiction"), {"noteref", "footnote"})
    assert got.text.split("\n\n") == [
        "I",
        "It was late; the lamps were lit.\nThey waited.",
        "Two.",
        "Loose",
        "漢",
        "a b",
        "c",
        "Unclosed",
    ]
    assert got.heading == "I"
    assert {"bodymatter", "z3998:fiction"} <= got.types
    assert "1. A note." in extract_prose(page(body)).text


def test_types_include_those_of_elements_around_the_whole_page() -> None:
    inner = (
        '<section epub:type="Chapter"><div class="Wide" role="doc-dedication"><p>To you</p><p>all</p></div></section>'
    )
    assert extract_prose(page(inner, "frontmatter")).types == {"frontmatter", "chapter", "dedication", ".wide"}
    assert extract_prose(page(f"{inner}<p>x</p>", "frontmatter")).types == {"frontmatter"}
