"""Word files: visible text is read, and skipped text is reported with its size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from made_whole_files import docx, paragraph, read_content, word_part, word_relations

from audit_pipeline.readers.whole_files.document import UNSEEN, WholeDocument
from audit_pipeline.readers.whole_files.word_text import DELETED, EMBEDDED, RUBY


def read(folder: Path, body: str, **members: str | bytes) -> WholeDocument:
    return read_content(folder, "a.docx", docx(body, **members))


def run(words: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{words}</w:t></w:r>'


def has(name: str, value: str) -> str:
    return f'<w:{name} w:val="{value}"/>'


def box(words: str) -> str:
    return f"<w:txbxContent>{paragraph(words)}</w:txbxContent>"


def field(kind: str) -> str:
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        (f'<w:fldSimple w:instr="X">{run("field")}</w:fldSimple>', "field"),
        (f"{field('begin')}<w:r><w:instrText>CODE</w:instrText></w:r>{field('separate')}{run('r')}{field('end')}", "r"),
        (f"{run('a')}{field('begin')}<w:r><w:instrText>XE</w:instrText></w:r>{field('end')}{run('b')}", "ab"),
        (f"<w:bdo>{run('right')}</w:bdo><w:dir>{run(' left')}</w:dir>", "right left"),
        (f"<w:smartTag>{run('Paris')}</w:smartTag><w:customXml>{run(' city')}</w:customXml>", "Paris city"),
        (f"<w:sdt><w:sdtPr/><w:sdtContent>{run('control')}</w:sdtContent></w:sdt>", "control"),
        (f"<w:ins>{run('in')}</w:ins><w:moveTo>{run(' moved')}</w:moveTo>", "in moved"),
        (f"<w:moveFrom>{run('moved')}</w:moveFrom>{run('stays')}", "stays"),
        (f"<w:hyperlink>{run('link')}</w:hyperlink><w:unknown>{run(' inside')}</w:unknown>", "link inside"),
        ("<m:oMath><m:r><m:rPr/><m:t>E=mc2</m:t></m:r></m:oMath>", "E=mc2"),
        ("<m:f><m:num><m:r><m:t>1</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f>", "1/2"),
        ("<m:r><m:t>f</m:t></m:r><m:d><m:e><m:r><m:t>x</m:t></m:r></m:e></m:d>", "f(x)"),
        ("<m:mr><m:e><m:r><m:t>1</m:t></m:r></m:e><m:e><m:r><m:t>2</m:t></m:r></m:e></m:mr>", "1 2"),
        (f"{field('begin')}{run('a field without an end')}", "a field without an end"),
        ('<w:r><w:sym w:font="Arial" w:char="20AC"/></w:r>', "€"),
        ('<w:r><w:sym w:font="Symbol" w:char="F061"/></w:r>', "α"),
        ("<w:r><w:t>a</w:t><w:br/><w:t>b</w:t><w:cr/><w:t>c</w:t></w:r>", "a\nb\nc"),
        ("<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:ptab/><w:t>c</w:t></w:r>", "a b c"),
        ('<w:r><w:t>a</w:t><w:br w:type="page"/><w:t>b</w:t></w:r>', "a\nb"),
        ("<w:r><w:t>a</w:t><w:noBreakHyphen/><w:t>b</w:t><w:softHyphen/><w:t>c</w:t></w:r>", "a\u2011bc"),
        (f"<w:r><w:drawing><wps:wsp>{box('new')}</wps:wsp></w:drawing></w:r>{run('around')}", "around\n\nnew"),
        (f"<w:r><w:pict><v:shape>{box('old')}</v:shape></w:pict></w:r>", "old"),
        ("<w:r><w:drawing><a:p><a:r><a:t>drawn</a:t></a:r></a:p></w:drawing></w:r>", "drawn"),
    ],
)
def test_visible_text_is_read(tmp_path: Path, inside: str, text: str) -> None:
    whole = read(tmp_path, f"<w:p>{inside}</w:p>")
    assert (whole.text, whole.problems) == (text, ())


@pytest.mark.parametrize("branches", [("one", "two"), ("", "two"), ("one", "")])
def test_one_of_several_alternatives_is_read(tmp_path: Path, branches: tuple[str, str]) -> None:
    choice, fallback = (box(words) if words else "" for words in branches)
    alternatives = f"<mc:Choice>{choice}</mc:Choice><mc:Fallback><w:pict>{fallback}</w:pict></mc:Fallback>"
    whole = read(tmp_path, f"<w:p><w:r><mc:AlternateContent>{alternatives}</mc:AlternateContent></w:r></w:p>")
    assert whole.text == (branches[0] or branches[1])


@pytest.mark.parametrize(
    ("inside", "text", "left_out"),
    [
        (f"<w:r><w:ruby><w:rt>{run('kana')}</w:rt><w:rubyBase>{run('base')}</w:rubyBase></w:ruby></w:r>", "base", RUBY),
        (f"<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>{run('base')}", "base", DELETED),
        (f"{run('gone', '<w:vanish/>')}{run('base')}", "base", UNSEEN),
        (f"{run('gone', '<w:specVanish/>')}{run('base')}", "base", UNSEEN),
        (f"{run('gone', has('rStyle', 'Hidden'))}{run('base')}", "base", UNSEEN),
        (f"{run('gone', has('rStyle', 'Child'))}{run('base')}", "base", UNSEEN),
        (f"<w:pPr><w:pStyle w:val='HiddenParagraph'/></w:pPr>{run('gone')}", "", UNSEEN),
        (f"{run('gone', has('color', 'FFFFFF'))}{run('base')}", "base", UNSEEN),
        (f"{run('gone', has('sz', '2'))}{run('base')}", "base", UNSEEN),
        (
            f"{field('begin')}{run('gone')}{field('separate')}{run('base')}{field('end')}",
            "base",
            "codes of fields are not read",
        ),
        ('<w:r><w:pict><v:textpath string="gone"/></w:pict></w:r>', "", "WordArt is not read"),
    ],
)
def test_skipped_text_is_counted(tmp_path: Path, inside: str, text: str, left_out: str) -> None:
    whole = read(tmp_path, f"<w:p>{inside}</w:p>", **{"word/styles.xml": STYLES})
    assert (whole.text, whole.problems) == (text, (("4 characters", left_out),))


STYLES = word_part(
    "styles",
    '<w:style w:type="character" w:styleId="Hidden"><w:rPr><w:vanish/></w:rPr></w:style>'
    '<w:style w:type="character" w:styleId="Child"><w:basedOn w:val="Hidden"/></w:style>'
    '<w:style w:type="character" w:styleId="Shown"><w:basedOn w:val="Hidden"/><w:rPr><w:vanish w:val="0"/></w:rPr>'
    '</w:style><w:style w:type="paragraph" w:styleId="HiddenParagraph"><w:rPr><w:vanish/></w:rPr></w:style>',
)
DARK = '<w:color w:val="FFFFFF"/><w:shd w:val="clear" w:fill="000000"/>'


@pytest.mark.parametrize(
    "body",
    [
        f"<w:p>{run('seen', has('vanish', '0'))}</w:p>",
        f"<w:p>{run('seen', '<w:webHidden/>')}</w:p>",
        f"<w:p>{run('seen', has('rStyle', 'Shown'))}</w:p>",
        # A toggle that both styles set is off.
        f"<w:p><w:pPr><w:pStyle w:val='HiddenParagraph'/></w:pPr>{run('seen', has('rStyle', 'Hidden'))}</w:p>",
        f"<w:p>{run('seen', DARK)}</w:p>",
        f"<w:tbl><w:tr><w:tc><w:p>{run('seen', has('color', 'FFFFFF'))}</w:p></w:tc></w:tr></w:tbl>",
    ],
)
def test_similar_properties_do_not_hide_text(tmp_path: Path, body: str) -> None:
    whole = read(tmp_path, body, **{"word/styles.xml": STYLES})
    assert (whole.text, whole.problems) == ("seen", ())


def test_a_default_of_the_document_hides_text(tmp_path: Path) -> None:
    styles = "<w:docDefaults><w:rPrDefault><w:rPr><w:vanish/></w:rPr></w:rPrDefault></w:docDefaults>"
    body = f"<w:p>{run('gone')}{run('seen', has('vanish', '0'))}</w:p>"
    whole = read(tmp_path, body, **{"word/styles.xml": word_part("styles", styles)})
    assert (whole.text, whole.problems) == ("seen", (("4 characters", UNSEEN),))


def test_paragraphs_with_a_deleted_or_hidden_mark_are_joined(tmp_path: Path) -> None:
    deleted = f"<w:p><w:pPr><w:rPr><w:del/></w:rPr></w:pPr>{run('to')}</w:p><w:p>{run('gether')}</w:p>"
    hidden = f"<w:p><w:pPr><w:rPr><w:vanish/></w:rPr></w:pPr>{run('Heading.')}</w:p><w:p>{run('Text.')}</w:p>"
    assert read(tmp_path, deleted).text == "together"
    assert read(tmp_path, hidden).text == "Heading. Text."


def test_a_drop_cap_is_part_of_its_word(tmp_path: Path) -> None:
    initial = f'<w:p><w:pPr><w:framePr w:dropCap="drop"/></w:pPr>{run("O")}</w:p>'
    beside = f"<w:p><w:pPr><w:framePr/></w:pPr>{run('Margin.')}</w:p>"
    assert read(tmp_path, f"{initial}{paragraph('nce upon')}{beside}").text == "Once upon\n\nMargin."


def test_only_the_first_of_merged_cells_is_read(tmp_path: Path) -> None:
    cells = (('<w:vMerge w:val="restart"/>', "seen"), ("<w:vMerge/>", "below"), ("", "free"))
    rows = "".join(f"<w:tr><w:tc><w:tcPr>{merge}</w:tcPr>{paragraph(words)}</w:tc></w:tr>" for merge, words in cells)
    whole = read(tmp_path, f"<w:tbl>{rows}</w:tbl>")
    assert (whole.text, whole.problems) == ("seen\n\nfree", (("5 characters", UNSEEN),))


def test_hidden_and_deleted_rows_of_a_table_are_skipped(tmp_path: Path) -> None:
    rows = "".join(
        f"<w:tr><w:trPr>{properties}</w:trPr><w:tc>{paragraph(words)}</w:tc></w:tr>"
        for words, properties in (("seen", ""), ("hidden", "<w:hidden/>"), ("gone", "<w:del/>"))
    )
    whole = read(tmp_path, f"<w:tbl>{rows}</w:tbl>")
    assert whole.text == "seen"
    assert {reason: size for size, reason in whole.problems} == {
        UNSEEN: "6 characters",
        DELETED: "4 characters",
    }


def test_notes_follow_the_text_without_their_marks(tmp_path: Path) -> None:
    body = (
        '<w:p><w:r><w:t>See</w:t></w:r><w:r><w:endnoteReference w:id="3"/></w:r>'
        '<w:r><w:footnoteReference w:customMarkFollows="1" w:id="2"/><w:t>*</w:t></w:r></w:p>'
    )
    notes = {
        f"word/{kind}s.xml": word_part(
            f"{kind}s",
            f'<w:{kind} w:id="0" w:type="separator">{paragraph("line")}</w:{kind}>'
            f'<w:{kind} w:id="{number}">{paragraph(kind)}</w:{kind}>',
        )
        for kind, number in (("footnote", 2), ("endnote", 3))
    }
    whole = read(tmp_path, body, **notes)
    assert (whole.text, whole.problems) == ("See\n\nendnote\n\nfootnote", ())
    hidden = body.replace("<w:r><w:endnote", "<w:r><w:rPr><w:vanish/></w:rPr><w:endnote")
    whole = read(tmp_path, hidden, **notes)
    assert (whole.text, whole.problems) == ("See\n\nfootnote", (("7 characters", UNSEEN),))


PAGE = b"<meta charset='iso-8859-1'><p>chunk \x93q\x94 <b hidden>gone</b></p>"
MAIL = b"MIME-Version: 1.0\r\nContent-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\nPHA+Y2h1bms8L3A+\r\n"


@pytest.mark.parametrize(
    ("name", "content", "text", "problems"),
    [
        ("a.html", PAGE, "chunk “q”", (("4 characters", UNSEEN),)),
        ("a.mht", MAIL, "chunk", ()),
        ("a.txt", b"chunk", "chunk", ()),
        ("a.docx", docx(paragraph("chunk")), "chunk", ()),
        ("a.rtf", b"{\\rtf1 chunk}", "", (("13 bytes", EMBEDDED),)),
        ("damaged.docx", b"PK", "", (("2 bytes", EMBEDDED),)),
    ],
)
def test_embedded_chunks_are_read_or_reported(
    tmp_path: Path, name: str, content: bytes, text: str, problems: tuple[tuple[str, str], ...]
) -> None:
    body = f'{paragraph("before")}<w:altChunk r:id="c1"/>{paragraph("after")}'
    whole = read(tmp_path, body, **{f"word/{name}": content}, **word_relations(c1=f"aFChunk {name}"))
    assert whole.text.split("\n\n") == ["before", *filter(None, [text]), "after"]
    assert whole.problems == problems


def test_comments_and_page_heads_are_reported(tmp_path: Path) -> None:
    parts: Mapping[str, str] = {
        "word/comments.xml": word_part("comments", f"<w:comment>{paragraph('remark')}</w:comment>"),
        "word/header1.xml": word_part("hdr", paragraph("head")),
    }
    whole = read(
        tmp_path, paragraph("text"), **parts, **word_relations(c="comments comments.xml", h="header header1.xml")
    )
    assert whole.text == "text"
    assert whole.problems == (
        ("6 characters", "comments are not read"),
        ("4 characters", "headers and footers are not read"),
    )


def test_a_chunk_outside_the_file_is_reported(tmp_path: Path) -> None:
    relations = {
        name: text.replace("/>", ' TargetMode="External"/>')
        for name, text in word_relations(c="aFChunk a.html").items()
    }
    whole = read(tmp_path, f'{paragraph("text")}<w:altChunk r:id="c"/>', **relations)
    assert (whole.text, whole.problems) == ("text", (("1 file", "parts of the text outside the file are not read"),))
