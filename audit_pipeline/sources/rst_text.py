"""reStructuredText as a reader of the rendered page sees it, near enough for auditing.

What belongs here: one pure function from markup to prose, the same for every project, and the titles that its
cross-references need. What does not: where a release begins and ends (release_notes.py). It is no parser of the whole
language: what the audited pages use is handled, everything else stays as it was written.

It is ours, and not docutils, because docutils has no writer of plain text, every role and directive of Sphinx would
have to be registered with it, and other prose would give every benchmark of release notes another digest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# Directives whose content the reader does not see at this place.
_HIDDEN: Final = frozenset(
    (
        *("changelog_imports", "comment", "contents", "currentmodule", "figure", "highlight", "image", "include"),
        *("index", "meta", "module", "only", "raw", "tabularcolumns", "toctree", "towncrier-draft-entries"),
    )
)
_VERBATIM: Final = frozenset(
    ("code", "code-block", "console", "literalinclude", "parsed-literal", "snippet", "sourcecode")
)
# Directives whose argument is text (a title or the first words of the body) and not an option.
_TITLED: Final = frozenset(
    (
        *("admonition", "attention", "caution", "danger", "error", "hint", "important", "note", "rubric"),
        *("seealso", "tip", "topic", "warning"),
    )
)

_DIRECTIVE = re.compile(r"\.\. +([A-Za-z][\w-]*(?::[\w-]+)*)::(?: +(.*))?$")
_FOOTNOTE = re.compile(r"\.\. +\[[^\]]+\] +(.*)$")
_EXPLICIT = re.compile(r"(?:\.\.|__)(?: |$)")
_OPTION = re.compile(r":[\w-]+:(?: |$)")
_BULLET = re.compile(r"(?:[*+-]|#\.) +(?=\S)")
_ENUMERATED = re.compile(r"(?:\d+|[a-z])[.)] +\S")
_RULER = re.compile(r"([=\-~^\"'`+#*.:_])\1{2,}$")
_TABLE_RULER = re.compile(r"(?:=+|-+)(?: +(?:=+|-+))+$")

_INLINE = re.compile(
    r"``(?P<literal>.+?)``(?!`)"
    r"|:(?P<role>[a-zA-Z][\w.+:-]*):`(?P<content>(?:\\.|[^`\\])+)`"
    r"|`(?P<phrase>(?:\\.|[^`\\])+)`(?P<link>__?(?!\w))?"
    r"|(?<![\w*])\*\*(?=\S)(?P<strong>.+?)(?<=\S)\*\*(?![\w*])"
    r"|(?<![\w*\\])\*(?=[^\s*])(?P<emphasis>[^*]*?[^\s*\\])\*(?![\w*])"
    r"|(?P<footnote>\[(?:\d+|\#\w*|\*)\])_(?!\w)"
    r"|\\(?P<escaped>.)"
)
_EXPLICIT_TITLE = re.compile(r"(.*\S)\s*<[^<>]*>$", re.DOTALL)
_NAMED_TARGET = re.compile(r"^\s*\.\. _`?([^:`]+)`?:", re.MULTILINE)
_REFERENCE_PREFIX = re.compile(r"^_\w+\.")

_CALLABLE_ROLES: Final = frozenset(("func", "meth"))
_OBJECT_ROLES: Final = frozenset(("attr", "class", "data", "exc", "func", "meth", "mod", "obj", "paramref"))
_CAPTIONS: Final[Mapping[str, str]] = {
    "bpo": "bpo-{}",
    "changeset": "{}",
    "cve": "CVE-{}",
    "issue": "issue #{}",
    "pep": "PEP {}",
    "pr": "pull request #{}",
    "pull": "pull request #{}",
    "pullreq": "pull request #{}",
    "rfc": "RFC {}",
    "ticket": "#{}",
    "user": "@{}",
}


def rst_to_text(markup: str, titles: Mapping[str, str] | None = None) -> str:
    """The prose of ``markup``: paragraphs and headings parted by blank lines, code kept line by line.

    Roles, links, literals and emphasis become the words they show; rulers, comments, targets, bullets and directive
    markers go; the text of a note, a warning or a change stays. ``titles`` (see :func:`section_titles`) gives
    the words that a cross-reference without words of its own shows.
    """
    names = {name for name in _NAMED_TARGET.findall(markup) if name.isidentifier()}
    blocks = _render_blocks(markup.expandtabs(8).splitlines(), _Inline(titles or {}, frozenset(names)))
    return "\n\n".join(block for block in blocks if block.strip())


def section_titles(markup: str) -> dict[str, str]:
    """Label -> title of every section of ``markup`` that has a label above it; label "" is the page's own title."""
    titles: dict[str, str] = {}
    lines = markup.splitlines()
    waiting: list[str] = []
    for number, line in enumerate(lines):
        label = re.match(r"\.\. _`?([^:`]+)`?:\s*$", line)
        if label:
            waiting.append(label.group(1))
        elif _is_title(lines, number):
            shown = rst_to_text(line.strip())
            titles.setdefault("", shown)
            titles.update((name, shown) for name in waiting)
            waiting = []
        elif line.strip() and not _RULER.match(line.strip()):
            waiting = []
    return titles


class _Inline:
    """Inline markup of one page: what its references show."""

    def __init__(self, titles: Mapping[str, str], names: frozenset[str]) -> None:
        self._titles = titles
        choices = "|".join(map(re.escape, sorted(names)))
        self._reference = re.compile(rf"\b({choices})__?(?!\w)", re.IGNORECASE) if names else None

    def shown(self, text: str) -> str:
        pieces: list[str] = []
        end = 0
        for match in _INLINE.finditer(text):
            pieces += [self._plain(text[end : match.start()]), self._piece(match)]
            end = match.end()
        return "".join([*pieces, self._plain(text[end:])])

    def _plain(self, text: str) -> str:
        return self._reference.sub(r"\1", text) if self._reference else text

    def _piece(self, match: re.Match[str]) -> str:
        found = match.groupdict()
        if found["literal"] is not None:
            return found["literal"]
        if found["role"] is not None:
            return self._role(found["role"].rpartition(":")[2], found["content"])
        if found["phrase"] is not None:
            titled = _EXPLICIT_TITLE.match(found["phrase"]) if found["link"] else None
            return self.shown(titled.group(1) if titled else found["phrase"])
        if found["escaped"] is not None:
            return "" if found["escaped"].isspace() else found["escaped"]
        return self.shown(found["strong"] or found["emphasis"] or "") or found["footnote"]

    def _role(self, role: str, content: str) -> str:
        titled = _EXPLICIT_TITLE.match(content)
        if titled:
            return self.shown(titled.group(1))
        content = re.sub(r"\\(.)", r"\1", " ".join(content.split()))
        if role in _CAPTIONS:
            return _CAPTIONS[role].format(content)
        if role in ("ref", "doc"):
            return self._titles.get(content, content)
        if role in _OBJECT_ROLES:
            return _object_name(content, callable_=role in _CALLABLE_ROLES)
        return content.removeprefix("!")


def _object_name(target: str, *, callable_: bool) -> str:
    """What an object's reference shows: ``~a.b.c`` -> c, ``.C`` -> C, ``_orm.f`` (a short module name) -> f."""
    if target.startswith("!"):
        return target[1:]
    name = _REFERENCE_PREFIX.sub("", target.removeprefix("~")).lstrip(".")
    if target.startswith("~"):
        name = name.rpartition(".")[2] or name
    return f"{name}()" if callable_ and not name.endswith(")") else name


def _render_blocks(lines: list[str], inline: _Inline) -> list[str]:
    """The blocks of ``lines``, in order: one string a paragraph, heading or piece of code."""
    blocks: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        text = line.strip()
        if not text or _is_ruler(lines, at):
            at += 1
        elif _EXPLICIT.match(text):
            body, at = _take_body(lines, at)
            blocks += _render_explicit_markup(text, body, inline)
        elif text.startswith(">>> "):
            code, at = _take_paragraph_lines(lines, at)
            blocks.append("\n".join(code))
        elif bullet := _BULLET.match(text):
            body, at = _take_body(lines, at, first=text[bullet.end() :])
            blocks += _render_blocks(body, inline)
        else:
            paragraph, at = _take_paragraph(lines, at)
            literal = paragraph.endswith("::")
            blocks.append(inline.shown(paragraph[:-1] if literal else paragraph) if paragraph != "::" else "")
            if literal:
                indent = _indent(line)
                code, at = _take_indented_lines(lines, at, indent)
                blocks.append(_format_code(code))
    return blocks


def _render_explicit_markup(text: str, body: list[str], inline: _Inline) -> list[str]:
    """The blocks of a directive, footnote, target or comment, given its first line and what is indented below it."""
    footnote = _FOOTNOTE.match(text)
    if footnote:
        return _render_blocks([footnote.group(1), *body], inline)
    directive = _DIRECTIVE.match(text)
    if not directive or directive.group(1) in _HIDDEN:
        return []
    name, argument = directive.group(1), directive.group(2) or ""
    if name in _VERBATIM:
        return [_format_code(_remove_options(body))]
    head = [argument] if argument and name in _TITLED else []
    if head and body and body[0].strip() and not _OPTION.match(body[0].strip()):
        return _render_blocks([*head, *body], inline)
    return [*(inline.shown(part) for part in head), *_render_blocks(_remove_options(body), inline)]


def _take_body(lines: list[str], position: int, first: str | None = None) -> tuple[list[str], int]:
    """What belongs to the marker on line ``position`` (all deeper lines), dedented, and the line after it.

    With ``first``, the text after the marker on its own line opens the body.
    """
    rest, after = _take_indented_lines(lines, position + 1, _indent(lines[position]))
    return _dedent(rest) if first is None else [first, *_dedent(rest)], after


def _take_indented_lines(lines: list[str], position: int, indent: int) -> tuple[list[str], int]:
    end = position
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > indent):
        end += 1
    return lines[position:end], end


def _remove_options(body: list[str]) -> list[str]:
    """``body`` without the field list (``:tags: bug``) that opens it."""
    at = 0
    while at < len(body) and not body[at].strip():
        at += 1
    if at == len(body) or not _OPTION.match(body[at].strip()):
        return body
    indent = _indent(body[at])
    while at < len(body) and body[at].strip() and (_OPTION.match(body[at].strip()) or _indent(body[at]) > indent):
        at += 1
    return _remove_options(_dedent(body[at:]))


def _take_paragraph(lines: list[str], position: int) -> tuple[str, int]:
    taken, after = _take_paragraph_lines(lines, position)
    return " ".join(" ".join(taken).split()), after


def _take_paragraph_lines(lines: list[str], position: int) -> tuple[list[str], int]:
    """The lines up to the next blank line, ruler or marker; a title is a paragraph of its own."""
    if _is_title(lines, position):
        return lines[position : position + 1], position + 1
    end = position + 1
    while end < len(lines) and lines[end].strip() and not _is_ruler(lines, end) and not _is_title(lines, end):
        text = lines[end].strip()
        if _DIRECTIVE.match(text) or (_BULLET.match(text) and _indent(lines[end]) != _indent(lines[position])):
            break
        if _ENUMERATED.match(text) and _ENUMERATED.match(lines[position].strip()):
            break
        end += 1
    return lines[position:end], end


def _is_title(lines: list[str], position: int) -> bool:
    """Whether line ``position`` is a heading: a ruler of at least its length is below it."""
    text = lines[position].rstrip()
    if not text.strip() or position + 1 >= len(lines) or _RULER.match(text.strip()):
        return False
    below = lines[position + 1].rstrip()
    return bool(_RULER.match(below)) and len(below) >= min(len(text.strip()), 4) and _is_block_start(lines, position)


def _is_block_start(lines: list[str], position: int) -> bool:
    return position == 0 or not lines[position - 1].strip() or bool(_RULER.match(lines[position - 1].strip()))


def _is_ruler(lines: list[str], position: int) -> bool:
    text = lines[position].strip()
    return bool(_TABLE_RULER.match(text) or _RULER.match(text))


def _format_code(code: list[str]) -> str:
    return "\n".join(_dedent(code)).strip("\n").rstrip()


def _dedent(lines: list[str]) -> list[str]:
    """``lines`` less the indent of the least indented of them."""
    indent = min((_indent(line) for line in lines if line.strip()), default=0)
    return [line[indent:] if line.strip() else "" for line in lines]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
