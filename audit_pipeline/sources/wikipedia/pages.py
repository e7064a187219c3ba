"""A page's document, its text without references, and why it has none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from audit_pipeline.sources.base import Document
from audit_pipeline.sources.wikipedia.source import LICENCE, WikipediaSettings

DATE_KIND = "first revision"
_TAIL_SECTIONS = frozenset(
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


@dataclass(frozen=True)
class LeftOutPage:
    """A page that makes no document, and why."""

    reason: str
    title: str


def remove_tail_sections(text: str) -> str:
    """Return the text up to its references and links; headings are on lines of their own, unmarked."""
    kept: list[str] = []
    for line in map(str.strip, text.split("\n")):
        if line.rstrip(":： ").casefold() in _TAIL_SECTIONS:
            break
        kept.append(line)
    return "\n".join(kept).strip()


def build_page_document(
    settings: WikipediaSettings, page_id: int, title: str, text: str, created: date, url: str
) -> Document:
    """Return the page's document; its name is the page's id, which a move to another title does not change."""
    return Document(
        collection=settings.collection,
        name=str(page_id),
        title=title,
        text=text,
        published=created,
        date_kind=DATE_KIND,
        language=settings.language,
        licence=LICENCE,
        url=url,
    )
