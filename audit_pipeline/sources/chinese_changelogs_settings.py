"""The settings of the source chinese_changelogs.

What belongs here: what may stand in its section of config/sources.yaml. What does not: the source
(chinese_changelogs.py).
"""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from audit_pipeline.sources.section import Section

Package = Literal[
    "tdesign-vue-next",
    "tdesign-react",
    "tdesign-vue",
    "tdesign-mobile-vue",
    "tdesign-mobile-react",
    "tdesign-miniprogram",
]


class ChineseChangelogsSettings(Section):
    """The packages whose changelogs are taken."""

    packages: tuple[Package, ...] = (
        "tdesign-vue-next",
        "tdesign-react",
        "tdesign-vue",
        "tdesign-mobile-vue",
        "tdesign-mobile-react",
        "tdesign-miniprogram",
    )

    @field_validator("packages")
    @classmethod
    def _each_once(cls, packages: tuple[Package, ...]) -> tuple[Package, ...]:
        if not packages:
            raise ValueError("name at least one package")
        if len(set(packages)) != len(packages):
            raise ValueError("a package is named twice")
        return packages
