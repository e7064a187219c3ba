"""Invented patents in the form of Google Patents' pages, with the same fields, attributes and nesting."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import jinja2

from audit_pipeline.sources.base import LeftOut, MissingPart

T = TypeVar("T")

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
TEXTS = {"title": TITLE, "abstract": ABSTRACT, "description": "\n".join(DESCRIPTION), "claims": "\n".join(CLAIMS)}
_PAGE = jinja2.Template(Path(__file__).with_name("page.html.j2").read_text(encoding="utf-8"))


def page(number: str = "CN112345678A", **changes: object) -> str:
    """Return the source of a page. The template page.html.j2 lists the fields. None removes a date."""
    fields = {"title": TITLE, "abstract": ABSTRACT, "description": DESCRIPTION, "claims": CLAIMS, "family": "74512345"}
    fields |= {"published": "2021-02-09", "filed": "2020-10-12", "priority": "2020-10-12"}
    fields |= {"application": "CN202011084321.5A", **changes}
    events = [
        ("filed", "Application filed by 某某竹艺有限公司", fields["filed"]),
        ("priority", f"Priority to {fields['application']}", fields["priority"]),
        ("publication", f"Publication of {number}", fields["published"]),
    ]
    return _PAGE.render({"number": number, "events": events, **fields})


def sort_items(
    items: Iterable[T | LeftOut | MissingPart],
) -> tuple[list[T], dict[str, str], dict[str, str]]:
    """Return the usable items, and the reasons of left-out and of missing parts."""
    usable: list[T] = []
    left_out: dict[str, str] = {}
    missing: dict[str, str] = {}
    for item in items:
        if isinstance(item, LeftOut):
            left_out[item.part] = item.reason
        elif isinstance(item, MissingPart):
            missing[item.part] = item.reason
        else:
            usable.append(item)
    return usable, left_out, missing
