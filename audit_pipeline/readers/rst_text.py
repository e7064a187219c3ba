"""reStructuredText as a reader of the rendered page sees it, near enough for auditing.

docutils parses it. Directives and roles of Sphinx, which it does not know, show their text; those that show nothing at
their place, or code, are named here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from docutils import nodes
from docutils.frontend import get_default_settings
from docutils.parsers.rst import Directive, Parser, directives, roles
from docutils.utils import new_document, unescape

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
_CAPTIONS: Final[Mapping[str, str]] = {
    **{"bpo": "bpo-{}", "changeset": "{}", "cve": "CVE-{}", "issue": "issue #{}", "pep": "PEP {}"},
    **dict.fromkeys(("pr", "pull", "pullreq"), "pull request #{}"),
    **{"rfc": "RFC {}", "ticket": "#{}", "user": "@{}"},
}
_OBJECT_ROLES: Final = frozenset(("attr", "class", "data", "exc", "func", "meth", "mod", "obj", "paramref"))

_DIRECTIVE = re.compile(r"\.\. +(?:\|[^|]+\| +)?([A-Za-z][\w.:+-]*?)::(?:\s|$)")
_ROLE = re.compile(r":([A-Za-z][\w.:+-]*):`|`:([A-Za-z][\w.:+-]*):")
_OPTION = re.compile(r":[\w-]+:(?:\s|$)")
_EXPLICIT_TITLE = re.compile(r"(.*\S)\s*<[^<>]*>$", re.DOTALL)
_RULER = r"[ \t]*(?P<{}>[=\-~^\"'`+#*.:_])(?P={}){{2,}}[ \t]*\n"
_SECTION = re.compile(
    r"(?P<labels>(?:^\.\. _[^\n]+:[ \t]*\n\s*)*)"
    rf"^(?:{_RULER.format('over', 'over')})?(?P<title>[^\s.][^\n]*)\n{_RULER.format('under', 'under')}",
    re.MULTILINE,
)
_LABEL = re.compile(r"^\.\. _`?([^:`]+)`?:", re.MULTILINE)


def rst_to_text(markup: str, titles: Mapping[str, str] | None = None) -> str:
    """Return the prose of ``markup``: paragraphs and headings parted by blank lines, code kept line by line.

    Roles, links, literals and emphasis become the words they show; rulers, comments, targets, bullets and directive
    markers go; the text of a note, a warning or a change stays. ``titles`` (see :func:`find_section_titles`) gives
    the words that a cross-reference without words of its own shows.
    """
    for name in set(_DIRECTIVE.findall(markup)):
        directives.register_directive(name.lower(), _Hidden if name in _HIDDEN else _Shown)
    for before, after in set(_ROLE.findall(markup)):
        roles.register_local_role((before or after).lower(), _build_role(titles or {}))
    parser = Parser()
    settings = get_default_settings(parser)
    settings.file_insertion_enabled = settings.raw_enabled = False
    settings.report_level = settings.halt_level = 5  # nothing is reported
    tree = new_document("", settings)
    # Without docutils' transforms: a reference shows its words, whether or not its target is on this page.
    parser.parse(markup, tree)
    for reference in tree.findall(nodes.footnote_reference):
        reference.children = [nodes.Text(reference.rawsource.removesuffix("_"))]
    return "\n\n".join(block for block in _iterate_blocks(tree) if block.strip())


def find_section_titles(markup: str) -> dict[str, str]:
    """Return label -> title, as markup, of every section that has a label above it; "" is the page's own title."""
    titles: dict[str, str] = {}
    for section in _SECTION.finditer(markup):
        title = section["title"].strip()
        titles.setdefault("", title)
        titles.update(dict.fromkeys(_LABEL.findall(section["labels"]), title))
    return titles


class _AnyOption(dict[str, Any]):
    """Options of any name."""

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, name: str) -> Any:
        return directives.unchanged


class _Hidden(Directive):  # type: ignore[misc]
    """A directive whose content the reader does not see at its place."""

    optional_arguments = 1
    final_argument_whitespace = True
    option_spec = _AnyOption()
    has_content = True

    def run(self) -> list[Any]:
        return []


class _Shown(_Hidden):
    """A directive that shows its content, and of its argument what is text."""

    def run(self) -> list[Any]:
        if self.name in _VERBATIM:
            code = "\n".join(self.content)
            return [nodes.literal_block(code, code)]
        container = nodes.container()
        words = self.arguments[0] if self.arguments else ""
        if self.name not in _TITLED:
            # An option of the directive's own is on its first line, text below it.
            words = words.removeprefix(self.block_text.partition("\n")[0].partition("::")[2].strip())
        # Options that are deeper than the content are taken for an argument.
        if words.strip() and not _OPTION.match(words):
            inline, _ = self.state.inline_text(words.strip(), self.lineno)
            container += nodes.paragraph("", "", *inline)
        self.state.nested_parse(self.content, self.content_offset, container)
        return [container]


def _build_role(titles: Mapping[str, str]) -> Callable[..., tuple[list[Any], list[Any]]]:
    def role(name: str, rawtext: str, text: str, *others: Any) -> tuple[list[Any], list[Any]]:
        return [nodes.inline(rawtext, _show_role(name.rpartition(":")[2].lower(), unescape(text), titles))], []

    return role


def _show_role(role: str, content: str, titles: Mapping[str, str]) -> str:
    """The words that a role shows: of an object ``~a.b.c`` -> c, ``.C`` -> C, ``_orm.f`` (a short module name) -> f."""
    titled = _EXPLICIT_TITLE.match(content)
    if titled:
        return titled[1]
    if role in ("ref", "doc"):
        return rst_to_text(titles[content]) if content in titles else content
    if role in _CAPTIONS:
        return _CAPTIONS[role].format(content)
    if role not in _OBJECT_ROLES or content.startswith("!"):
        return content.removeprefix("!")
    name = re.sub(r"^_\w+\.", "", content.removeprefix("~")).lstrip(".")
    if content.startswith("~"):
        name = name.rpartition(".")[2] or name
    return f"{name}()" if role in ("func", "meth") and not name.endswith(")") else name


def _iterate_blocks(node: Any) -> Iterator[str]:
    for child in node.children:
        if isinstance(child, (nodes.Invisible, nodes.field_list, nodes.label, nodes.system_message)):
            continue
        if isinstance(child, (nodes.literal_block, nodes.doctest_block)):
            yield child.astext().strip("\n")
        elif isinstance(child, nodes.TextElement):
            yield " ".join(child.astext().split())
        else:
            yield from _iterate_blocks(child)
