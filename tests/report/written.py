"""Reports as a browser shows them, with their JSON copies."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from made_data_folder import Folder

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.report.files import ReportSummary, build_reports, json_copy_path
from audit_pipeline.store.paths import DataPaths

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Said(dict[str, Any]):
    """An object of a JSON copy with its keys as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


class Page(HTMLParser):
    """A page in a browser: its tags with attributes, and its text without the style."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
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
        """Return the values of an attribute."""
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]


class Written:
    """Written reports by model, and the report across models under the name 'across'."""

    def __init__(self, summary: ReportSummary) -> None:
        self.summary = summary
        self.paths = {**summary.pages, "across": summary.path}
        self.warehouse = DataPaths(summary.path.parent.parent).warehouse
        self.pages: dict[str, Page] = {}
        self.reports: dict[str, Said] = {}
        for name, path in self.paths.items():
            self.pages[name] = Page(path.read_text(encoding="utf-8"))
            self.reports[name] = json.loads(json_copy_path(path).read_text(encoding="utf-8"), object_hook=Said)

    def section(self, name: str, section: str) -> str:
        """Return the HTML of a folded section of a page."""
        html = self.pages[name].html
        return html[html.index(f'<span class="anchor" id="{section}">') :].partition('<details class="section">')[0]


def written(folder: Folder, config: Path | None = None) -> Written:
    """Build the warehouse and the reports of a folder."""
    build_warehouse(folder.paths, config=config)
    return reports_of(folder)


def reports_of(folder: Folder, *, include_text: bool = True) -> Written:
    """Build the reports of a folder from its present warehouse."""
    return Written(build_reports(folder.paths.warehouse, folder.paths.reports, include_text=include_text))
