"""Wikitext to plain prose: what a reader of the page would read as running text.

What belongs here: which parts of a page are prose, which are categories, and whether it is a redirect. What does not:
parsing wikitext (mwparserfromhell does), and where pages come from (dump.py, api.py).

Dropped: headings, tables, templates (but for a few that stand for words), references, files, categories, comments,
formulas, and the sections at a page's end (References, See also, External links and their like).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Node, Tag, Template, Text, Wikilink
from mwparserfromhell.parser import ParserError
from mwparserfromhell.wikicode import Wikicode

from audit_pipeline.connectors.wikipedia.settings import Part
from audit_pipeline.errors import DataError

# MediaWiki's own limit of a page ($wgMaxArticleSize).
MOST_CHARACTERS = 2 * 1024 * 1024
# The parser's time grows with the square of what is opened and never closed.
_MOST_UNCLOSED = 200

TAIL_SECTIONS = frozenset(
    name.casefold()
    for name in (
        # English
        *("References", "See also", "External links", "Notes", "Further reading", "Bibliography", "Sources"),
        *("Footnotes", "Citations", "Notes and references", "References and notes", "Explanatory notes", "Gallery"),
        *("General references", "Works cited", "Notes and citations"),
        # Chinese, in both scripts
        *("参考文献", "參考文獻", "参考资料", "參考資料", "参考来源", "參考來源", "参考", "參考", "外部链接"),
        *("外部連結", "外部鏈接", "外部连结", "参见", "參見", "参看", "參看", "注释", "註釋", "注釋", "注解"),
        *("註解", "延伸阅读", "延伸閱讀", "相关条目", "相關條目", "脚注", "腳註", "备注", "備註"),
        # German, French, Spanish
        *("Einzelnachweise", "Weblinks", "Siehe auch", "Literatur", "Anmerkungen", "Références", "Voir aussi"),
        *("Liens externes", "Notes et références", "Bibliographie", "Annexes", "Referencias", "Véase también"),
        *("Enlaces externos", "Bibliografía", "Notas"),
    )
)

_CATEGORY = ("category", "分类", "分類", "kategorie", "catégorie", "categoría", "categoria")
_FILE = (
    "file",
    "image",
    "media",
    "文件",
    "档案",
    "檔案",
    "图像",
    "圖像",
    "datei",
    "bild",
    "fichier",
    "archivo",
    "imagen",
)
_CATEGORY_LINK = re.compile(rf"\[\[\s*(?:{'|'.join(_CATEGORY)})\s*:\s*([^\]|\n]+)", re.IGNORECASE)
_REDIRECT = re.compile(
    r"\A\s*#\s*(?:redirect|重定向|weiterleitung|redirection|redirección)\b\s*:?\s*\[\[", re.IGNORECASE
)
# Links to other languages and sister projects show nothing; a colon in front makes any of these a link that shows.
_UNSEEN_LINK = re.compile(
    rf"(?:{'|'.join((*_CATEGORY, *_FILE))}|[a-z]{{2,3}}|zh-[a-z-]+|simple)\s*:(?!\s)", re.IGNORECASE
)
_LINE_BREAKS = frozenset(("br", "hr"))
_UNSEEN_TAGS = frozenset(
    (
        *("ref", "references", "table", "gallery", "math", "chem", "score", "timeline", "graph", "imagemap", "hiero"),
        *("syntaxhighlight", "source", "style", "script", "templatestyles", "mapframe", "maplink", "inputbox"),
    )
)
# Templates that stand for words of the sentence, and which of their parameters are the words.
_WORDS_OF: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("nowrap", "small", "big", "em", "strong", "abbr", "visible anchor", "ill", "interlanguage link"), ("1",)
    ),
    **dict.fromkeys(("lang", "tlit", "transliteration", "transl"), ("2",)),
    **dict.fromkeys(("convert", "cvt"), ("1", "2")),
}
_CONVERSION = re.compile(r"-\{([^{}]*)\}-")
_FLAGGED = re.compile(r"\s*([A-Za-z-]*)\s*\|(.*)", re.DOTALL)
_VARIANTS = ("zh-hans", "zh-cn", "zh", "zh-hant", "zh-tw")
_TABLE_LINE = re.compile(r"^[^\S\n]*(?:\{\||\|).*$", re.MULTILINE)
# Brackets and marks of both ASCII and Chinese width, around what has been dropped.
_OPEN, _CLOSE, _MARKS = r"[(\uff08]", r"[)\uff09]", r"[;,\uff1b\uff0c\u3001]"
_EMPTY_BRACKETS = re.compile(rf"{_OPEN} ?(?:{_MARKS} ?)*{_CLOSE}")
_AFTER_BRACKET = re.compile(rf"({_OPEN}) ?(?:{_MARKS} ?)+")
_BEFORE_BRACKET = re.compile(rf"(?: ?{_MARKS}){{1,5}} ?({_CLOSE})")
_MAGIC_WORD = re.compile(r"__[A-Z]{3,}__")
_TAG = re.compile(r"<(/?)([a-z]+)\b[^<>]*?(/?)>", re.IGNORECASE)


def plain_text(wikitext: str, part: Part = "article") -> str:
    """The prose of a page: paragraphs divided by blank lines; only those before the first heading for ``lead``.

    Raises DataError where the text is longer than a page can be or cannot be parsed in reasonable time.
    """
    _refuse_hostile(wikitext)
    try:
        code = mwparserfromhell.parse(_choose_script_variant(wikitext))
    except ParserError as error:
        raise DataError(f"its wikitext cannot be parsed ({error})") from error
    return _tidy_text(_text_of_nodes(_iterate_prose_nodes(code, part)))


def categories(wikitext: str) -> tuple[str, ...]:
    """The categories that a page names itself (templates may add others), spaces for underscores."""
    return tuple(match.group(1).replace("_", " ").strip() for match in _CATEGORY_LINK.finditer(wikitext))


def is_redirect(wikitext: str) -> bool:
    """Whether the page only sends its reader to another one."""
    return _REDIRECT.match(wikitext) is not None


def is_tail_heading(title: str) -> bool:
    """Whether a section of this title holds references or links rather than prose."""
    return title.strip().strip(":：").strip().casefold() in TAIL_SECTIONS


def _refuse_hostile(wikitext: str) -> None:
    if len(wikitext) > MOST_CHARACTERS:
        raise DataError(f"its wikitext is longer than the {MOST_CHARACTERS} characters that a page may have")
    unclosed: Counter[str] = Counter()
    for closing, name, empty in _TAG.findall(wikitext):
        if not empty:
            unclosed[name.lower()] += -1 if closing else 1
    unclosed["table"] += wikitext.count("{|") - wikitext.count("|}")
    for name, count in unclosed.items():
        if count > _MOST_UNCLOSED and name not in {*_LINE_BREAKS, "li", "p"}:
            raise DataError(f"its wikitext opens {count} '{name}' that it never closes")


def _iterate_prose_nodes(code: Wikicode, part: Part) -> Iterable[Node]:
    """The nodes outside headings and tail sections; a tail ends at the next heading of its level or above."""
    tail: int | None = None
    for node in code.nodes:
        if isinstance(node, Heading):
            if part == "lead":
                return
            if tail is None or node.level <= tail:
                title = _text_of_nodes(node.title.nodes)
                tail = node.level if is_tail_heading(title) else None
            yield Text("\n\n")
        elif tail is None:
            yield node


def _text_of_nodes(nodes: Iterable[Node]) -> str:
    return "".join(map(_node_text, nodes))


def _node_text(node: Node) -> str:
    """What a reader sees of a node; nothing of comments, headings and whatever else is not named below."""
    shown = ""
    if isinstance(node, Text):
        shown = str(node.value)
    elif isinstance(node, Wikilink):
        shown = _link_text(node)
    elif isinstance(node, ExternalLink):
        shown = _text_of_nodes(node.title.nodes) if node.title is not None else ""
    elif isinstance(node, HTMLEntity):
        shown = str(node.normalize() or "")
    elif isinstance(node, Tag):
        shown = _tag_text(node)
    elif isinstance(node, Template):
        shown = _template_text(node)
    return shown


def _link_text(link: Wikilink) -> str:
    title = str(link.title).strip()
    if _UNSEEN_LINK.match(title):
        return ""
    return _text_of_nodes(link.text.nodes) if link.text is not None else title.removeprefix(":")


def _tag_text(tag: Tag) -> str:
    name = str(tag.tag).strip().lower()
    if name in _LINE_BREAKS:
        return "\n"
    if name in _UNSEEN_TAGS or tag.contents is None:
        return ""
    return _text_of_nodes(tag.contents.nodes)


def _template_text(template: Template) -> str:
    words = [
        _text_of_nodes(template.get(name).value.nodes).strip()
        for name in _WORDS_OF.get(str(template.name).strip().lower(), ())
        if template.has(name)
    ]
    return " ".join(words)


def _choose_script_variant(wikitext: str) -> str:
    """Chinese pages give some words in several scripts, ``-{zh-hans:甲; zh-hant:乙}-``: one of them is taken."""

    def chosen(match: re.Match[str]) -> str:
        flagged = _FLAGGED.fullmatch(match.group(1))
        flags, content = flagged.groups() if flagged else ("", match.group(1))
        if set(flags.upper()) & set("THD-"):
            return ""  # a rule for the title or the page: nothing is shown here
        words = {
            variant.strip().lower(): word.strip()
            for variant, colon, word in (choice.partition(":") for choice in content.split(";"))
            if colon
        }
        return next((words[variant] for variant in _VARIANTS if variant in words), next(iter(words.values()), content))

    return _CONVERSION.sub(chosen, wikitext)


def _tidy_text(text: str) -> str:
    """One space between words, one blank line between paragraphs, no remains of what was dropped."""
    text = _MAGIC_WORD.sub("", _TABLE_LINE.sub("", text)).replace("\xa0", " ")
    text = re.sub(r"[^\S\n]+", " ", text)
    text = _EMPTY_BRACKETS.sub("", text)
    text = _BEFORE_BRACKET.sub(r"\1", _AFTER_BRACKET.sub(r"\1", text))
    text = re.sub(r" {2,}", " ", text)
    text = re.sub(r" (?=[,.;:)](?:\s|$))", "", text, flags=re.MULTILINE)
    text = re.sub(r" ?\n ?", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()
