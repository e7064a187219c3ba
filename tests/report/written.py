"""Reports that a test wrote, as a browser sees them and as their JSON copies say."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from audit_pipeline.pipeline.registry import build_warehouse
from audit_pipeline.report.files import ReportSummary, build_reports, json_copy_path
from audit_pipeline.store.paths import DataPaths
from tests.warehouse.conftest import Folder

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Said(dict[str, Any]):
    """An object of a JSON copy, its keys as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


class Page(HTMLParser):
    """What a browser would see: tags with attributes, the text outside style, links and their targets."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def having(self, name: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]


class Written:
    """Reports that were written, by model, and the one across models under 'across'."""

    def __init__(self, summary: ReportSummary) -> None:
        self.summary = summary
        self.paths = {**summary.pages, "across": summary.path}
        self.pages = {name: Page(path.read_text(encoding="utf-8")) for name, path in self.paths.items()}
        self.reports = {
            name: json.loads(json_copy_path(path).read_text(encoding="utf-8"), object_hook=Said)
            for name, path in self.paths.items()
        }

    @property
    def warehouse(self) -> Path:
        """That the reports were made of, where they are in its data folder."""
        return DataPaths(self.summary.path.parent.parent).warehouse

    def section(self, name: str, section: str) -> str:
        """The HTML of a folded section of a page, up to the next one."""
        html = self.pages[name].html
        return html[html.index(f'<span class="anchor" id="{section}">') :].partition('<details class="section">')[0]


def written(folder: Folder, *, include_text: bool = True) -> Written:
    build_warehouse(folder.paths)
    return reports_of(folder, include_text=include_text)


def reports_of(folder: Folder, *, include_text: bool = True) -> Written:
    """Of the warehouse as it stands."""
    return Written(build_reports(folder.paths.warehouse, folder.paths.reports, include_text=include_text))
