"""Small MediaWiki exports of invented pages, in the form of the real ones (format 0.10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape


@dataclass(frozen=True)
class Rev:
    """A revision; ``parent`` 0 for a page's first."""

    revision_id: int
    parent: int
    timestamp: str
    text: str = ""

    def xml(self, *, stub: bool = False) -> str:
        parent = f"<parentid>{self.parent}</parentid>" if self.parent else ""
        body = f'<text bytes="{len(self.text.encode())}" id="{self.revision_id}" />'
        if not stub:
            size = len(self.text.encode())
            body = f'<text bytes="{size}" xml:space="preserve">{escape(self.text)}</text>'
        return (
            f"<revision><id>{self.revision_id}</id>{parent}<timestamp>{self.timestamp}</timestamp>"
            "<contributor><username>Ann</username><id>77</id></contributor><comment>one edit</comment>"
            f"<model>wikitext</model><format>text/x-wiki</format>{body}<sha1>abc</sha1></revision>"
        )


def page(page_id: int, title: str, *revisions: Rev, namespace: int = 0, stub: bool = False) -> str:
    """A page element."""
    written = "".join(revision.xml(stub=stub) for revision in revisions)
    return f"<page><title>{escape(title)}</title><ns>{namespace}</ns><id>{page_id}</id>{written}</page>\n"


def export(pages: Sequence[str], version: str = "0.10", prologue: str = "") -> bytes:
    """A whole export."""
    return (
        f'{prologue}<mediawiki xmlns="http://www.mediawiki.org/xml/export-{version}/" version="{version}">'
        "<siteinfo><sitename>Wikipedia</sitename><dbname>enwiki</dbname><namespaces>"
        '<namespace key="0" case="first-letter" /><namespace key="14" case="first-letter">Category</namespace>'
        f"</namespaces></siteinfo>\n{''.join(pages)}</mediawiki>\n"
    ).encode()


FLOOD = Rev(11, 0, "2023-02-01T10:00:00Z", "'''The 2023 Orla floods''' began. [[Category:2023 floods]]")
FLOOD_LATER = Rev(
    12, 11, "2024-05-05T23:30:00Z", "'''The 2023 Orla floods''' began and ended. [[Category:2023 floods]]"
)
FAIR = Rev(21, 0, "2015-06-30T23:59:59Z", "The '''Velm fair''' is a fair. [[Category:Events in Velm]]")
FAIR_BY_2016 = Rev(22, 21, "2016-12-31T23:59:59Z", "The '''Velm fair''' of 2016. [[Category:Events in Velm]]")
FAIR_LATER = Rev(23, 22, "2017-01-01T00:00:00Z", "The '''Velm fair''' of 2017. [[Category:Events in Velm]]")
PAGES = (
    page(1, "2023 Orla floods", FLOOD, FLOOD_LATER),
    page(2, "Velm fair", FAIR, FAIR_BY_2016, FAIR_LATER),
    page(3, "List of floods in 2023", Rev(31, 0, "2023-03-01T00:00:00Z", "A list. [[Category:2023 floods]]")),
    page(4, "Timeline of Velm, 2023", Rev(41, 0, "2023-03-01T00:00:00Z", "A timeline.")),
    page(5, "Orla", Rev(51, 0, "2010-01-01T00:00:00Z", "'''Orla''' is a river. [[Category:Rivers]]")),
    page(6, "2023 flood", Rev(61, 0, "2023-03-01T00:00:00Z", "#REDIRECT [[2023 Orla floods]]")),
    page(7, "Talk:2023 Orla floods", Rev(71, 0, "2023-03-01T00:00:00Z", "Is this right?"), namespace=1),
    page(8, "2023 Velm election", Rev(82, 81, "2023-09-09T00:00:00Z", "The election was held.")),
    page(9, "2023 Velm quake", Rev(91, 0, "2023-09-09T00:00:00Z", "{{Infobox quake}}\n== References ==\n{{Reflist}}")),
)
