"""Conversion of reStructuredText to text that is similar to the visible text of the rendered page.

docutils parses the markup, but does not know the directives and roles of Sphinx. This module adds them: the text of
their content is visible, except for the directives in ``_HIDDEN``. The content of directives in ``_VERBATIM`` is code.
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
# Directives whose argument is visible text, such as a title or the first words of the body.
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


def convert_rst_to_text(markup: str, titles: Mapping[str, str] | None = None) -> str:
    """Return the visible text of markup. Blank lines separate paragraphs and headings. Code keeps its lines.

    Roles, links, literals and emphasis become their visible words. Rulers, comments, targets, bullets and directive
    markers are removed. The text of directives such as note, warning and versionchanged stays.

    Args:
        markup: The reStructuredText.
        titles: Section titles by label (see :func:`find_section_titles`). A cross-reference without its own words
            becomes the title of its target.
    """
    for name in set(_DIRECTIVE.findall(markup)):
        directives.register_directive(name.lower(), _Hidden if name in _HIDDEN else _Shown)
    for before, after in set(_ROLE.findall(markup)):
        roles.register_local_role((before or after).lower(), _build_role(titles or {}))
    parser = Parser()
    settings = get_default_settings(parser)
    settings.file_insertion_enabled = settings.raw_enabled = False
    # Level 5 is above all levels of docutils' reports, so problems of the markup are ignored.
    settings.report_level = settings.halt_level = 5
    tree = new_document("", settings)
    # The transforms of docutils are not applied, because they would replace references to other pages by errors.
    parser.parse(markup, tree)
    for reference in tree.findall(nodes.footnote_reference):
        reference.children = [nodes.Text(reference.rawsource.removesuffix("_"))]
    return "\n\n".join(block for block in _iterate_blocks(tree) if block.strip())


def find_section_titles(markup: str) -> dict[str, str]:
    """Return the titles of labelled sections by label, as markup. The key "" is the title of the page."""
    titles: dict[str, str] = {}
    for section in _SECTION.finditer(markup):
        title = section["title"].strip()
        titles.setdefault("", title)
        titles.update(dict.fromkeys(_LABEL.findall(section["labels"]), title))
    return titles


class _AnyOption(dict[str, Any]):
    """An option specification that accepts every name."""

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, name: str) -> Any:
        return directives.unchanged


class _Hidden(Directive):  # type: ignore[misc]
    """A directive without visible content."""

    optional_arguments = 1
    final_argument_whitespace = True
    option_spec = _AnyOption()
    has_content = True

    def run(self) -> list[Any]:
        return []


class _Shown(_Hidden):
    """A directive whose content is visible, and whose argument may be visible."""

    def run(self) -> list[Any]:
        if self.name in _VERBATIM:
            code = "\n".join(self.content)
            return [nodes.literal_block(code, code)]
        container = nodes.container()
        argument = self.arguments[0] if self.arguments else ""
        if self.name not in _TITLED:
            # The first line of the argument is not visible. Its other lines are visible text.
            argument = argument.removeprefix(self.block_text.partition("\n")[0].partition("::")[2].strip())
        # If options are indented more than the content, docutils returns them as the argument.
        if argument.strip() and not _OPTION.match(argument):
            inline, _ = self.state.inline_text(argument.strip(), self.lineno)
            container += nodes.paragraph("", "", *inline)
        self.state.nested_parse(self.content, self.content_offset, container)
        return [container]


def _build_role(titles: Mapping[str, str]) -> Callable[..., tuple[list[Any], list[Any]]]:
    def role(name: str, rawtext: str, text: str, *others: Any) -> tuple[list[Any], list[Any]]:
        return [nodes.inline(rawtext, _show_role(name.rpartition(":")[2].lower(), unescape(text), titles))], []

    return role


def _show_role(role: str, content: str, titles: Mapping[str, str]) -> str:
    """Return the visible words of a role.

    In roles for Python objects, ``~a.b.c`` becomes c, ``.C`` becomes C, and ``_orm.f`` (with a short module name)
    becomes f.
    """
    titled = _EXPLICIT_TITLE.match(content)
    if titled:
        return titled[1]
    if role in ("ref", "doc"):
        return convert_rst_to_text(titles[content]) if content in titles else content
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
