"""Where a release begins, when it came out, what is left of its Markdown; a whole harvest over the loopback."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback_index import make_archive
from pydantic import ValidationError

from audit_pipeline.fetch.pypi import Archive
from audit_pipeline.sources.base import LeftOut
from audit_pipeline.sources.chinese_changelogs import (
    PACKAGES,
    Release,
    groups_of,
    harvest_archives,
    harvest_from,
    in_order,
    releases_in,
)
from audit_pipeline.sources.chinese_changelogs_settings import ChineseChangelogsSettings
from audit_pipeline.sources.npm import Registry

REACT = PACKAGES["tdesign-react"]

CHANGELOG = """\
---
title: 更新日志
docClass: timeline
---

## 🌈 1.2.0 `2024-08-14`

### 🚀 Features

- `Sofa`: 新增 `@enter` 事件，发布于 2024-08-10 @somebody ([#11](https://example.invalid/pull/11))
- `Lamp`:
  - 支持 `open()` 方法 @a-b @c1 ([common#12](https://example.invalid/12)) ([#13](https://example.invalid/13))
  - 详见 [使用说明](https://example.invalid/help)，请安装 @made/up-cli closes [#14](https://example.invalid/14)

### 新增组件

- <lamp> 标签可用

```js
不是文字
```

## 🌈 1.1.0 `2024-8-1`
### 🐞 Bug Fixes
- 修复关闭的问题 [[97e1b7f]](https://example.invalid/c) [@name](https://example.invalid/name)（ [#9](https://example.invalid/9)）

### 升级到 1.0.0 的说明

- 请先备份

## 1.0.0 (2024-02-30)

- 没有这一天

## 0.9.1

- 没有日期

## 0.9.0 `2024-01-02`

- only English

## 🌈 0.x `2021-03-26 - 2023-02-08`

前往 [GitHub](https://example.invalid) 查看
"""


def archive(folder: Path, version: str, changelog: str | bytes | None) -> Archive:
    files = {"package.json": "{}"} | ({} if changelog is None else {"CHANGELOG.md": changelog})
    path = folder / f"tdesign-react-{version}.tgz"
    path.write_bytes(make_archive("package", files))
    return Archive("tdesign-react", version, path)


def release(version: str, day: str) -> Release:
    return Release(version, date.fromisoformat(day), "文字")


def test_releases_their_days_and_their_text() -> None:
    first, second, *others = releases_in(CHANGELOG)
    assert first == Release(
        "1.2.0",
        date(2024, 8, 14),
        "Sofa: 新增 @enter 事件，发布于 2024-08-10\n"
        "Lamp:\n"
        "支持 open() 方法\n"
        "详见 使用说明，请安装 @made/up-cli\n"
        "新增组件\n"
        "<lamp> 标签可用",
    )
    assert second == Release("1.1.0", date(2024, 8, 1), "修复关闭的问题\n升级到 1.0.0 的说明\n请先备份")
    assert [(other.version, other.problem) for other in others] == [
        ("1.0.0", "no such day: 2024-02-30"),
        ("0.9.1", "no day in its heading"),
        ("0.9.0", "no Chinese character in its notes"),
        ("0.x", "not a release but a pointer to the notes of many"),
    ]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("修复 [#1](https://example.invalid/1) 的问题", "修复 的问题"),
        ("修复颜色 #1 @name", "修复颜色"),
        ("修复颜色 `#1`", "修复颜色 #1"),
        ("邮件 a@b.invalid 不变", "邮件 a@b.invalid 不变"),
        ("来自 @甲 的建议", "来自 @甲 的建议"),
        ("修复 (merge request !367)", "修复"),
        ("修复 https://example.invalid/a?b=c）完", "修复 ）完"),
        ("新增 *强调* 与 **加粗**", "新增 强调 与 加粗"),
        ("![图](https://example.invalid/a.png) 说明", "说明"),
        ("见 [`Sofa` 文档](https://example.invalid)", "见 Sofa 文档"),
        ("修复 (issue 1810)", "修复"),
    ],
)
def test_references_go_and_the_rest_stays(entry: str, text: str) -> None:
    (only,) = releases_in(f"## 1.0.0 `2024-01-02`\n\n- {entry}\n- 完\n")
    assert only.text == f"{text}\n完"


@pytest.mark.parametrize(
    "heading",
    [
        "## 🌈 1.0.0 `2024-01-02` ",
        "# 1.0.0 (2024-1-2)",
        "### v1.0.0 2024/01/02",
        "## [1.0.0](https://example.invalid) (2024.1.2)",
    ],
)
def test_spellings_of_a_heading(heading: str) -> None:
    (only,) = releases_in(f"前言\n\n{heading}\n\n- 新增\n")
    assert only == Release("1.0.0", date(2024, 1, 2), "新增")


def test_several_days_in_a_heading_are_no_day() -> None:
    (only,) = releases_in("## 1.0.0 `2024-01-02 - 2024-02-03`\n\n- 新增\n")
    assert (only.published, only.problem) == (None, "several days in its heading")


def test_days_that_contradict_the_order_are_not_used() -> None:
    days = (("1.3.0", "2024-05-01"), ("1.2.0", "2024-01-01"), ("1.1.0", "2024-02-01"), ("1.0.0", "2023-12-01"))
    ordered = in_order([release(*pair) for pair in days])
    assert [item.problem is None for item in ordered] == [True, False, False, True]
    assert "1.1.0 (2024-02-01) stands below 1.2.0 (2024-01-01)" in str(ordered[1].problem)


def test_groups_join_days_and_the_pre_releases_of_a_version() -> None:
    releases = [
        release("1.0.1", "2024-05-02"),
        release("1.0.0", "2024-04-01"),
        release("0.9.9", "2024-03-01"),
        release("1.0.0-rc.2", "2024-03-01"),
        release("1.0.0-rc.1", "2024-02-01"),
        release("0.9.8", "2024-01-01"),
    ]
    assert groups_of(releases) == ["2024-05-02", *["2024-02-01"] * 4, "2024-01-01"]


pairs = st.lists(
    st.tuples(st.sampled_from(["1.0.0", "1.0.0-rc", "1.0.1", "1.0.1-a", "1.1.0"]), st.integers(1, 5)), max_size=12
)


@given(pairs)
def test_groups_against_merging_until_nothing_changes(drawn: list[tuple[str, int]]) -> None:
    releases = [release(version, f"2024-01-0{day}") for version, day in drawn]
    keys = [{version.partition("-")[0], str(day)} for version, day in drawn]
    changed = True
    while changed:
        changed = False
        for one in keys:
            for other in keys:
                if one & other and one != other:
                    one.update(other)
                    other.update(one)
                    changed = True
    groups = groups_of(releases)
    for i, one in enumerate(keys):
        for j, other in enumerate(keys):
            assert (groups[i] == groups[j]) == bool(one & other)


words = st.text(st.sampled_from("修复新增 ,:，。@#1a-()[]`*<>/!\n"), max_size=40)


@given(words)
def test_no_text_brings_down_the_reading_or_keeps_a_number(entry: str) -> None:
    for found in releases_in(f"## 1.0.0 `2024-01-02`\n\n- 新增 {entry}\n"):
        assert "\ue000" not in found.text
        if "`" not in entry:
            assert not re.search(r"(?<!\w)#1\b", found.text)


def test_a_harvest_reads_each_archive_and_takes_the_newest_words(tmp_path: Path) -> None:
    newest = archive(tmp_path, "1.2.0", CHANGELOG)
    older = "## 0.45.6 `2023-02-08`\n\n- 较旧\n\n## 1.1.0 `2022-01-01`\n\n- 旧文\n"
    found = harvest_archives(REACT, [newest, archive(tmp_path, "0.45.6", older)])
    assert [(document.name, document.published) for document in found.documents] == [
        ("1.2.0", date(2024, 8, 14)),
        ("1.1.0", date(2024, 8, 1)),
        ("0.45.6", date(2023, 2, 8)),
    ]
    document = found.documents[0]
    assert (document.collection, document.title) == ("tdesign-react", "TDesign React 1.2.0")
    assert (document.language, document.licence, document.date_kind) == ("zh", "MIT", "release")
    assert document.group == "chinese_changelogs:tdesign-react:2024-08-14"
    assert "2024-08-14" not in document.text
    assert found.missing == ()
    assert LeftOut("TDesign React 0.9.1", "no day in its heading") in found.left_out
    assert len(found.left_out) == 4


@pytest.mark.parametrize(
    ("changelog", "reason"),
    [
        (None, "holds no CHANGELOG.md"),
        (b"caf\xe9", "invalid UTF-8 at byte 3"),
        ("没有版本\n", "holds no dated release"),
        (b"#" * (6 * 1024 * 1024), "is refused"),
    ],
)
def test_an_archive_that_cannot_be_read_is_missing(tmp_path: Path, changelog: str | bytes | None, reason: str) -> None:
    good = archive(tmp_path, "0.45.6", "## 0.45.6 `2023-02-08`\n\n- 较旧\n")
    found = harvest_archives(REACT, [archive(tmp_path, "1.2.0", changelog), good])
    assert [document.name for document in found.documents] == ["0.45.6"]
    (missing,) = found.missing
    assert (missing.part, missing.collection) == ("tdesign-react 1.2.0", "tdesign-react")
    assert reason in missing.reason


def test_a_registry_that_does_not_answer_makes_every_package_missing(tmp_path: Path) -> None:
    # Port 1 of the loopback: nothing listens there.
    found = harvest_from(Registry("http://127.0.0.1:1/", attempts=1), ["tdesign-react", "tdesign-vue"], tmp_path)
    assert found.documents == ()
    assert [missing.collection for missing in found.missing] == ["tdesign-react", "tdesign-vue"]


def test_settings() -> None:
    assert set(ChineseChangelogsSettings().packages) == set(PACKAGES)
    assert ChineseChangelogsSettings().to_be_set is None
    for wrong in ([], ["tdesign-react", "tdesign-react"], ["left-pad"]):
        with pytest.raises(ValidationError):
            ChineseChangelogsSettings.model_validate({"packages": wrong})
