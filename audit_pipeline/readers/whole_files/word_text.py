"""The visible text of a Word document's XML, and the size of the skipped text.

Word nests text in many elements. For an element without a rule the children are read, so that no text in an unknown
element is lost. Names are compared without namespaces, because strict and transitional files use different ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from mammoth.docx.dingbats import dingbats

from audit_pipeline.readers.whole_files.document import UNSEEN

PARAGRAPH_GAP = "\n\n"
DELETED = "text deleted with tracked changes is not read"
RUBY = "ruby annotations are not read"
EMBEDDED = "embedded files are not read"
_WORD_ART = "WordArt is not read"
_FIELD_CODES = "codes of fields are not read"
_SYMBOLS = "symbols of fonts with unknown letters are not read"

_CHARACTERS = {"br": "\n", "cr": "\n", "tab": "\t", "ptab": "\t", "noBreakHyphen": "\u2011"}
_OFF = frozenset(("0", "false", "off", "none"))
_PAPER = "FFFFFF"
_WHITE_SPACE = re.compile(r"\s+")
_TINY_HALF_POINTS = 2
_SYMBOL_FONT_CODES = range(0xF000, 0xF100)


def local_name(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def get_attribute(element: Element | None, name: str) -> str | None:
    """Return the attribute with a local name, or None if the attribute or the element is missing."""
    if element is None:
        return None
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return value
    return None


def find_child(element: Element | None, *path: str) -> Element | None:
    """Return the first descendant along a path of local names, or None."""
    for name in path:
        if element is None:
            return None
        element = next((child for child in element if local_name(child) == name), None)
    return element


def count_text(element: Element) -> int:
    """Count the characters of all text below an element, white space excluded."""
    n_characters = 0
    for part in element.iter():
        if local_name(part) in ("t", "delText") and part.text:
            n_characters += len("".join(part.text.split()))
    return n_characters


@dataclass(frozen=True)
class _TextFormat:
    """The properties of a run (a piece of text with one format) that decide if its text is visible.

    A field is None if the properties do not set it.

    Attributes:
        is_hidden: The font effect "hidden" is on.
        colour: Six hexadecimal digits, or "auto".
        half_points: Font size.
        has_background: True if shading or highlighting gives the text a background that is not white.
    """

    is_hidden: bool | None = None
    colour: str | None = None
    half_points: int | None = None
    has_background: bool | None = None

    def fill_from(self, base: _TextFormat) -> _TextFormat:
        """Return a copy of this format with its unset fields taken from ``base``."""
        is_hidden = self.is_hidden
        if is_hidden is None:
            is_hidden = base.is_hidden
        has_background = self.has_background
        if has_background is None:
            has_background = base.has_background
        colour = self.colour or base.colour
        half_points = self.half_points or base.half_points
        return _TextFormat(is_hidden, colour, half_points, has_background)


def _read_format(properties: Element | None) -> _TextFormat:
    is_hidden = _read_flag(properties, "vanish")
    is_specially_hidden = _read_flag(properties, "specVanish")
    if is_specially_hidden is not None:
        is_hidden = bool(is_hidden) or is_specially_hidden
    colour = _read_value(properties, "color") or ""
    size = _read_value(properties, "sz") or ""
    half_points = int(size) if size.isdecimal() else None
    return _TextFormat(is_hidden, colour.upper() or None, half_points, _has_background(properties))


def _read_flag(properties: Element | None, name: str) -> bool | None:
    element = find_child(properties, name)
    if element is None:
        return None
    return get_attribute(element, "val") not in _OFF


def _read_value(properties: Element | None, name: str) -> str | None:
    return get_attribute(find_child(properties, name), "val")


def _has_background(properties: Element | None) -> bool | None:
    highlight = _read_value(properties, "highlight")
    if highlight is not None:
        return highlight.lower() not in ("none", "white")
    shading = find_child(properties, "shd")
    if shading is None:
        return None
    fill = (get_attribute(shading, "fill") or "auto").upper()
    has_pattern = (get_attribute(shading, "val") or "clear") not in ("clear", "nil")
    return has_pattern or fill not in ("AUTO", _PAPER) or get_attribute(shading, "themeFill") is not None


def has_page_colour(document: Element) -> bool:
    """Return True if the pages have a colour other than white."""
    background = find_child(document, "background")
    if background is None:
        return False
    return (get_attribute(background, "color") or "auto").upper() not in ("AUTO", _PAPER)


class WordStyles:
    """The styles of a document, as far as they decide if text is visible."""

    def __init__(self, root: Element | None) -> None:
        self._styles: dict[str, Element] = {}
        self._default_ids: dict[str | None, str] = {}
        self._formats: dict[str, _TextFormat] = {}
        self.defaults = _read_format(find_child(root, "docDefaults", "rPrDefault", "rPr"))
        for style in () if root is None else root:
            style_id = get_attribute(style, "styleId")
            if local_name(style) != "style" or style_id is None:
                continue
            self._styles.setdefault(style_id, style)
            if get_attribute(style, "default") not in (None, *_OFF):
                self._default_ids.setdefault(get_attribute(style, "type"), style_id)

    def find_format(self, kind: str, style_id: str | None) -> _TextFormat:
        """Return the format of a style, combined with the styles that it is based on.

        Args:
            kind: paragraph or character.
            style_id: The style, or None for the default style of this kind.
        """
        style_id = style_id or self._default_ids.get(kind)
        if style_id is None:
            return _TextFormat()
        if style_id not in self._formats:
            text_format = _TextFormat()
            seen = {style_id}
            current: str | None = style_id
            while (style := self._styles.get(current or "")) is not None:
                text_format = text_format.fill_from(_read_format(find_child(style, "rPr")))
                text_format = text_format.fill_from(
                    _TextFormat(has_background=_has_background(find_child(style, "pPr")))
                )
                current = _read_value(style, "basedOn")
                if current in seen:
                    break
                seen.add(current or "")
            self._formats[style_id] = text_format
        return self._formats[style_id]


@dataclass
class WordText:
    """A reader of the parts of one Word document that counts the skipped text.

    Attributes:
        styles: The styles of the document.
        read_chunk: Returns the text of an embedded file (w:altChunk) by the id of its relationship. It counts
            unreadable files in ``unread``.
        has_page_colour: True if the pages have a colour, so that white text is visible.
        unread: Number of skipped characters by reason, without white space. ``EMBEDDED`` counts bytes.
        notes: Kind and id of references to footnotes and endnotes, in the order of the text.
        hidden_notes: Kind and id of hidden references to notes.
    """

    styles: WordStyles
    read_chunk: Callable[[str], str]
    has_page_colour: bool = False
    unread: Counter[str] = field(default_factory=Counter)
    notes: list[tuple[str, str]] = field(default_factory=list)
    hidden_notes: list[tuple[str, str]] = field(default_factory=list)
    # For each open field: True if its result has begun, False in its code, which precedes the result.
    _fields: list[bool] = field(default_factory=list)
    _has_whole_fields: bool = True
    _text_boxes: list[list[str]] = field(default_factory=list)
    _paragraph: _TextFormat = field(default_factory=_TextFormat)
    # The number of tables and text boxes around the text. Their backgrounds are unknown, so that white text in them
    # counts as visible.
    _unknown_backgrounds: int = 0

    def read(self, root: Element) -> str:
        """Return the text below ``root``. An empty line separates paragraphs. Breaks and tabs are white space."""
        pieces: list[str] = []
        self._fields = []
        marks = Counter(get_attribute(mark, "fldCharType") for mark in root.iter() if local_name(mark) == "fldChar")
        # A field without an end would hide the rest of the text.
        self._has_whole_fields = marks["begin"] == marks["end"]
        self._read_element(root, pieces, None)
        return "".join(pieces)

    def _read_element(self, element: Element, pieces: list[str], run: _TextFormat | None) -> None:
        """Append the text of an element to ``pieces``. ``run`` is the format of the run around it."""
        _RULES.get(local_name(element), WordText._read_children)(self, element, pieces, run)

    def _read_children(self, element: Element, pieces: list[str], run: _TextFormat | None) -> None:
        for child in element:
            self._read_element(child, pieces, run)

    def _skip(self, element: Element, pieces: list[str], run: _TextFormat | None) -> None:
        """Skip an element that has no text, or whose text is also in another element."""

    def _read_letters(self, element: Element, pieces: list[str], run: _TextFormat | None) -> None:
        self._append_text(_WHITE_SPACE.sub(" ", element.text or ""), pieces, run)

    def _read_character(self, element: Element, pieces: list[str], run: _TextFormat | None) -> None:
        self._append_text(_CHARACTERS[local_name(element)], pieces, run)

    def _append_text(self, text: str, pieces: list[str], run: _TextFormat | None) -> None:
        if not all(self._fields):
            self.unread[_FIELD_CODES] += len("".join(text.split()))
            return
        if run is not None and self._is_unseen(run):
            self.unread[UNSEEN] += len("".join(text.split()))
            return
        pieces.append(text)

    def _is_unseen(self, run: _TextFormat) -> bool:
        if run.is_hidden or (run.half_points is not None and run.half_points <= _TINY_HALF_POINTS):
            return True
        is_on_paper = not (run.has_background or self.has_page_colour or self._unknown_backgrounds)
        return run.colour == _PAPER and is_on_paper

    def _read_paragraph(self, paragraph: Element, pieces: list[str], run: _TextFormat | None) -> None:
        outer_paragraph = self._paragraph
        properties = find_child(paragraph, "pPr")
        style = self.styles.find_format("paragraph", _read_value(properties, "pStyle"))
        self._paragraph = _TextFormat(has_background=_has_background(properties)).fill_from(style)
        self._text_boxes.append([])
        self._read_children(paragraph, pieces, None)
        beside = self._text_boxes.pop()
        self._paragraph = outer_paragraph
        if get_attribute(find_child(properties, "framePr"), "dropCap") in ("drop", "margin"):
            # Word stores the large first letter of a word (drop cap) as a separate paragraph.
            pieces += beside
            return
        mark = find_child(properties, "rPr")
        is_joined = any(find_child(mark, name) is not None for name in ("del", "moveFrom"))
        if beside or not (is_joined or _read_format(mark).is_hidden):
            pieces.append(PARAGRAPH_GAP)
        elif not is_joined:
            # Word joins a heading with a hidden paragraph mark to the next paragraph.
            pieces.append(" ")
        pieces += beside

    def _read_run(self, element: Element, pieces: list[str], run: _TextFormat | None) -> None:
        paragraph = self._paragraph
        defaults = self.styles.defaults
        direct = _TextFormat()
        style_id = None
        # A run in a formula has two elements of properties: one for the formula, one for the text.
        for properties in element:
            if local_name(properties) == "rPr":
                direct = direct.fill_from(_read_format(properties))
                style_id = style_id or _read_value(properties, "rStyle")
        style = self.styles.find_format("character", style_id)
        text_format = direct.fill_from(style).fill_from(paragraph).fill_from(defaults)
        if direct.is_hidden is None:
            # If the styles of paragraph and run both set a toggle property, it is off (ISO 29500-1, 17.7.3).
            is_toggled = bool(style.is_hidden) != bool(paragraph.is_hidden)
            text_format = _TextFormat(is_hidden=bool(defaults.is_hidden) or is_toggled).fill_from(text_format)
        for child in element:
            self._read_element(child, pieces, text_format)
            if get_attribute(child, "customMarkFollows") not in (None, *_OFF):
                # The rest of the run is the custom mark of the note.
                break

    def _read_table(self, table: Element, pieces: list[str], run: _TextFormat | None) -> None:
        self._unknown_backgrounds += 1
        self._read_children(table, pieces, None)
        self._unknown_backgrounds -= 1
        pieces.append(PARAGRAPH_GAP)

    def _read_row(self, row: Element, pieces: list[str], run: _TextFormat | None) -> None:
        properties = find_child(row, "trPr")
        if find_child(properties, "del") is not None:
            self._skip_deletion(row, pieces, run)
        elif _read_flag(properties, "hidden"):
            self.unread[UNSEEN] += count_text(row)
        else:
            self._read_children(row, pieces, run)

    def _read_cell(self, cell: Element, pieces: list[str], run: _TextFormat | None) -> None:
        if find_child(cell, "tcPr", "cellDel") is not None:
            self._skip_deletion(cell, pieces, run)
            return
        merged = find_child(cell, "tcPr", "vMerge")
        if merged is not None and get_attribute(merged, "val") != "restart":
            # Word shows only the text of the first vertically merged cell.
            self.unread[UNSEEN] += count_text(cell)
            return
        self._read_children(cell, pieces, run)
        pieces.append("\t")

    def _read_text_box(self, element: Element, pieces: list[str], run: _TextFormat | None) -> None:
        """Read a text box or drawing. Its text follows the paragraph with the anchor."""
        if run is not None and run.is_hidden:
            self.unread[UNSEEN] += count_text(element)
            return
        target = self._text_boxes[-1] if self._text_boxes else pieces
        outer_fields = self._fields
        self._fields = []
        self._unknown_backgrounds += 1
        self._read_children(element, target, None)
        self._unknown_backgrounds -= 1
        self._fields = outer_fields
        target.append(PARAGRAPH_GAP)

    def _track_field(self, mark: Element, pieces: list[str], run: _TextFormat | None) -> None:
        kind = get_attribute(mark, "fldCharType")
        if kind == "begin" and self._has_whole_fields:
            self._fields.append(False)
        elif kind == "separate" and self._fields:
            self._fields[-1] = True
        elif kind == "end" and self._fields:
            self._fields.pop()

    def _read_chunk(self, chunk: Element, pieces: list[str], run: _TextFormat | None) -> None:
        pieces += PARAGRAPH_GAP, self.read_chunk(get_attribute(chunk, "id") or ""), PARAGRAPH_GAP

    def _read_alternatives(self, element: Element, pieces: list[str], run: _TextFormat | None) -> None:
        """Read the first branch with text. The branches have the same content, for newer and for older programs."""
        branches = [child for child in element if local_name(child) in ("Choice", "Fallback")]
        branch = next((branch for branch in branches if count_text(branch)), None)
        if branch is not None:
            self._read_children(branch, pieces, run)

    def _read_formula_part(self, element: Element, pieces: list[str], run: _TextFormat | None) -> None:
        before, after = _FORMULA_PARTS[local_name(element)](element)
        pieces.append(before)
        self._read_children(element, pieces, run)
        pieces.append(after)

    def _read_matrix_row(self, row: Element, pieces: list[str], run: _TextFormat | None) -> None:
        for entry in row:
            self._read_element(entry, pieces, run)
            pieces.append(" ")

    def _record_note_reference(self, reference: Element, pieces: list[str], run: _TextFormat | None) -> None:
        is_hidden = run is not None and run.is_hidden
        # Word does not show a note whose reference is hidden.
        notes = self.hidden_notes if is_hidden else self.notes
        notes.append((local_name(reference).removesuffix("Reference"), get_attribute(reference, "id") or ""))

    def _skip_deletion(self, element: Element, pieces: list[str], run: _TextFormat | None) -> None:
        self.unread[DELETED] += count_text(element)

    def _skip_ruby(self, element: Element, pieces: list[str], run: _TextFormat | None) -> None:
        self.unread[RUBY] += count_text(element)

    def _skip_word_art(self, element: Element, pieces: list[str], run: _TextFormat | None) -> None:
        self.unread[_WORD_ART] += len("".join((get_attribute(element, "string") or "").split()))

    def _read_symbol(self, symbol: Element, pieces: list[str], run: _TextFormat | None) -> None:
        self._append_text(self._find_symbol(symbol), pieces, run)

    def _find_symbol(self, symbol: Element) -> str:
        font = get_attribute(symbol, "font") or ""
        try:
            code = int(get_attribute(symbol, "char") or "", 16)
        except ValueError:
            return ""
        is_symbol_code = code in _SYMBOL_FONT_CODES
        mapped = dingbats.get((font, code & 0xFF if is_symbol_code else code))
        if mapped is not None:
            return chr(mapped)
        if is_symbol_code or not 0x20 <= code < 0x110000 or 0xD800 <= code < 0xE000:
            self.unread[_SYMBOLS] += 1
            return " "
        return chr(code)


def _find_delimiters(element: Element) -> tuple[str, str]:
    properties = find_child(element, "dPr")
    begin = _read_value(properties, "begChr")
    end = _read_value(properties, "endChr")
    if begin is None:
        begin = "("
    if end is None:
        end = ")"
    return begin, end


def _find_operator(element: Element) -> tuple[str, str]:
    return _read_value(find_child(element, "naryPr"), "chr") or "∫", ""


_FORMULA_PARTS: Mapping[str, Callable[[Element], tuple[str, str]]] = {
    "d": _find_delimiters,
    "nary": _find_operator,
    "den": lambda element: ("/", ""),
    "oMathPara": lambda element: ("\n", "\n"),
}
"""The characters before and after the text of a part of a formula. They separate numbers and letters."""

_NO_TEXT = "pPr rPr tblPr tblGrid trPr tcPr sectPr sdtPr sdtEndPr rubyPr ctrlPr instrText delInstrText delText moveFrom"
# For names without a rule the children are read.
_RULES: Mapping[str, Callable[[WordText, Element, list[str], _TextFormat | None], None]] = {
    **dict.fromkeys(_NO_TEXT.split(), WordText._skip),
    **dict.fromkeys(_CHARACTERS, WordText._read_character),
    **dict.fromkeys(_FORMULA_PARTS, WordText._read_formula_part),
    **dict.fromkeys(("drawing", "pict", "object", "txbxContent"), WordText._read_text_box),
    **dict.fromkeys(("footnoteReference", "endnoteReference"), WordText._record_note_reference),
    "t": WordText._read_letters,
    "sym": WordText._read_symbol,
    "p": WordText._read_paragraph,
    "r": WordText._read_run,
    "tbl": WordText._read_table,
    "tr": WordText._read_row,
    "tc": WordText._read_cell,
    "fldChar": WordText._track_field,
    "mr": WordText._read_matrix_row,
    "altChunk": WordText._read_chunk,
    "AlternateContent": WordText._read_alternatives,
    "del": WordText._skip_deletion,
    "rt": WordText._skip_ruby,
    "textpath": WordText._skip_word_art,
}
