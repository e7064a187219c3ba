"""The words of the documentation's glossary, explained where they stand on a page.

What belongs here: reading docs/glossary.md, of which an installed package has a copy, and turning its terms into links
whose title says what they mean. What does not: what the terms mean (docs/glossary.md), which sentences a page has
(sections/, templates/).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from markupsafe import Markup, escape

from audit_pipeline.catalogue.paths import DEFAULTS

GLOSSARY = DEFAULTS / "docs" / "glossary.md"

IN_SENTENCES = (
    *("member", "non-member", "held-out texts", "benchmark", "canary", "detector", "AUROC", "TPR at 5% FPR"),
    *("blind control", "95% interval", "screening", "statistical evidence", "sound test", "reproduced"),
    *("p-value", "q-value"),
)
"""The terms that are explained wherever a sentence has them; others only where a template names them."""

_ROW = re.compile(r"\| (\*\*.+?) \| (.+) \|")
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_MARKS = (
    (re.compile(r"\[([^\]]+)\]\([^)]+\)"), r"\1"),
    (re.compile(r"\\\|"), "|"),
    (re.compile(r"\*\*?([^*]+)\*\*?"), r"\1"),
    (re.compile(r"`([^`]+)`"), r"\1"),
)


@dataclass(frozen=True)
class Term:
    """A row of the glossary: its name as the row has it, and what it means, both without Markdown's marks."""

    name: str
    meaning: str

    @property
    def anchor(self) -> str:
        """The row's place on a page."""
        return "word-" + re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


@cache
def terms() -> Mapping[str, Term]:
    """The rows of the glossary by every word that they explain: those in front, and those in bold behind."""
    found: dict[str, Term] = {}
    for head, meaning in _ROW.findall(GLOSSARY.read_text(encoding="utf-8")):
        names = [name for part in _BOLD.findall(head) for name in part.split(", ")]
        term = Term(_plain(head), _plain(meaning))
        for name in names:
            found[name] = term
        for name in _BOLD.findall(meaning):
            found.setdefault(name, term)
    return found


class Glossary:
    """The terms of one page: every use is a link to the list at the page's end, which holds those that were used."""

    def __init__(self) -> None:
        self._used: dict[str, Term] = {}

    @property
    def used(self) -> list[Term]:
        """The terms that were explained so far, by name."""
        return sorted(self._used.values(), key=lambda term: term.name.lower())

    def term(self, name: str, shown: str | None = None) -> Markup:
        """A term as a link; raises KeyError where the glossary has none of this name."""
        term = terms()[name]
        self._used[term.name] = term
        return Markup('<a class="term" href="#{anchor}" title="{meaning}">{shown}</a>').format(
            anchor=term.anchor, meaning=term.meaning, shown=shown or name
        )

    def explained(self, sentence: str) -> Markup:
        """A sentence, with the first use of each of its terms as a link; everything else in it is text."""
        told, end, seen = Markup(), 0, set[str]()
        for match in _in_sentences().finditer(sentence):
            name = next(name for name in IN_SENTENCES if _spelt(name).fullmatch(match[0]))
            if name not in seen:
                seen.add(name)
                told += escape(sentence[end : match.start()]) + self.term(name, match[0])
                end = match.end()
        return told + escape(sentence[end:])


@cache
def _in_sentences() -> re.Pattern[str]:
    longest_first = sorted(IN_SENTENCES, key=len, reverse=True)
    return re.compile(r"(?<![\w-])(?:" + "|".join(_spelt(name).pattern for name in longest_first) + r")(?![\w-])", re.I)


@cache
def _spelt(name: str) -> re.Pattern[str]:
    """A term in the singular and in the plural."""
    known = re.escape(name)
    if name.endswith("y"):
        return re.compile(known[:-1] + "(?:y|ies)", re.I)
    return re.compile(known.removesuffix("s") + "s?", re.I)


def _plain(markdown: str) -> str:
    for mark, shown in _MARKS:
        markdown = mark.sub(shown, markdown)
    return markdown
