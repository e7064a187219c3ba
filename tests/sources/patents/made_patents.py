"""Invented patents in the form of Google Patents' pages: the same fields, attributes and nesting, none of the texts."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

TITLE = "一种带有自清洁滤网的竹编灯笼"
ABSTRACT = "本发明公开了一种带有自清洁滤网的竹编灯笼，包括灯罩、滤网和毛刷，毛刷在转轴的带动下清扫滤网上的灰尘。"
DESCRIPTION = (
    "技术领域",
    "本发明涉及照明用具的技术领域，具体是一种带有自清洁滤网的竹编灯笼。",
    "背景技术",
    "竹编灯笼在庭院中使用时，灯罩的缝隙容易积灰，清理起来十分麻烦，而且容易损坏竹条。",
    "发明内容",
    "本发明的目的在于提供一种不用拆开灯罩就能清洁的灯笼，以解决上述背景技术中提出的问题。",
    "具体实施方式",
    "如图1所示，灯罩的下端安装有转轴，转轴上固定有两把毛刷，毛刷的长度与滤网的半径相同。",
    "使用时，使用者转动手柄，手柄带动转轴，毛刷便沿着滤网的表面移动，把灰尘扫入下方的集灰盒中。",
    "由于集灰盒是抽屉式的，因此倒灰时不必拆下灯罩，竹条也就不会受损，灯笼的寿命得以延长。",
)
CLAIMS = (
    "1.一种带有自清洁滤网的竹编灯笼，其特征在于，包括灯罩、设于灯罩下端的滤网以及贴着滤网转动的毛刷。",
    "2.根据权利要求1所述的竹编灯笼，其特征在于，所述毛刷固定在转轴上，转轴与手柄相连。",
)


def page(
    number: str = "CN112345678A",
    *,
    title: str = TITLE,
    published: str | None = "2021-02-09",
    filed: str | None = "2020-10-12",
    priority: str | None = "2020-10-12",
    meta_published: str | None = None,
    shown_published: str | None = None,
    events: Sequence[tuple[str, str, str]] | None = None,
    application: str = "CN202011084321.5A",
    family: str | None = "74512345",
    abstract: str = ABSTRACT,
    description: Sequence[str] = DESCRIPTION,
    claims: Sequence[str] = CLAIMS,
    charset: str | None = "UTF-8",
    translated: bool = False,
) -> str:
    """The source of a page; dates that are None are left out."""

    def passage(text: str) -> str:
        if not translated:
            return text
        return (
            f'<span class="notranslate"> <span class="google-src-text">{text}</span> '
            f"A machine translation of {len(text)} characters. </span>"
        )

    def day(label: str, field: str, value: str | None, shown: str | None = None) -> str:
        if value is None:
            return ""
        return f'<dt>{label}</dt>\n<dd><time itemprop="{field}" datetime="{value}">{shown or value}</time></dd>'

    if events is None:
        events = [
            ("filed", "Application filed by 某某竹艺有限公司", filed or ""),
            ("priority", f"Priority to {application}", priority or ""),
            ("publication", f"Publication of {number}", published or ""),
        ]
    timeline = "\n".join(
        f'<dd itemprop="events" itemscope repeat><time itemprop="date" datetime="{when}">{when}</time>: '
        f'<span itemprop="title">{what}</span> <span itemprop="type">{kind}</span></dd>'
        for kind, what, when in events
        if when
    )
    numbered = "\n".join(
        f'<li> <para-num num="[{place:04}]"> </para-num> <div num="{place:04}" class="description-line">'
        f"{passage(text)}</div> </li>"
        for place, text in enumerate(description, start=1)
    )
    claimed = "\n".join(
        f'<div class="{"claim" if place == 1 else "claim-dependent"}"> <div id="zh-cl{place:04}" num="{place:04}" '
        f'class="claim"> <div class="claim-text">{passage(text)}</div> </div> </div>'
        for place, text in enumerate(claims, start=1)
    )
    meta_published = meta_published or published
    language = "EN" if translated else "ZH"
    return f"""<!DOCTYPE html>
<html lang="zh">
<head>
<title>{number} - {title} - Google Patents</title>
{f'<meta charset="{charset}">' if charset else ""}
<link rel="canonical" href="https://patents.google.com/patent/{number}/zh">
<meta name="description" content="{abstract[:40]}">
<meta name="DC.type" content="patent">
<meta name="DC.title" content="{title}">
{f'<meta name="DC.date" content="{filed}" scheme="dateSubmitted">' if filed else ""}
<meta name="citation_patent_application_number" content="{application[:2]}:{application[2:]}">
<meta name="citation_patent_publication_number" content="{number[:2]}:{number[2:-1]}:{number[-1]}">
{f'<meta name="DC.date" content="{meta_published}">' if meta_published else ""}
<meta name="DC.contributor" content="张某" scheme="inventor">
</head>
<body unresolved>
<search-app><article class="result" itemscope itemtype="http://schema.org/ScholarlyArticle">
<h1 itemprop="pageTitle">{number} - {title} - Google Patents</h1>
<span itemprop="title">{title}</span>
<meta itemprop="type" content="patent">
<h2>Info</h2>
<dl>
<dt>Publication number</dt> <dd itemprop="publicationNumber">{number}</dd>
<meta itemprop="numberWithoutCodes" content="{number[2:-1]}"> <meta itemprop="kindCode" content="{number[-1]}">
<dt>Authority</dt> <dd itemprop="countryCode">{number[:2]}</dd>
<dt>Prior art date</dt> <dd><time itemprop="priorArtDate" datetime="1999-01-01">1999-01-01</time></dd>
<dt>Application number</dt> <dd itemprop="applicationNumber">{application}</dd>
<dt>Inventor</dt> <dd itemprop="inventor" repeat>张某</dd>
{day("Priority date", "priorityDate", priority)}
{day("Filing date", "filingDate", filed)}
{day("Publication date", "publicationDate", published, shown_published)}
{timeline}
</dl>
<section itemprop="abstract" itemscope><h2>Abstract</h2>
<div itemprop="content" html><abstract mxw-id="PA1" lang="{language}" load-source="patent-office">
<div num="p0001" class="abstract">{passage(abstract)}</div></abstract></div></section>
<section itemprop="description" itemscope><h2>Description</h2>
<div itemprop="content" html><ul mxw-id="PDES1" lang="{language}" load-source="patent-office" class="description">
{numbered}
</ul></div></section>
<section itemprop="claims" itemscope><h2>Claims (<span itemprop="count">{len(claims)}</span>)</h2>
<div itemprop="content" html><div mxw-id="PCLM1" lang="{language}" load-source="patent-office" class="claims">
{claimed}
</div></div></section>
<section itemprop="family" itemscope><h1>Family</h1>{f"<h2>ID={family}</h2>" if family else ""}
<h2>Family Applications (1)</h2></section>
<h2>Similar Documents</h2>
<table><tr itemprop="similarDocuments" itemscope repeat><td><span itemprop="publicationNumber">CN101010101A</span></td>
<td><time itemprop="publicationDate" datetime="2007-08-08">2007-08-08</time></td>
<td><span itemprop="title">一种与此无关的灯具</span></td>
<td itemprop="priorityDate">2006-01-01</td></tr></table>
</article></search-app></body></html>
"""


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    """Write an export."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
