"""`corpus-audit report`: its pages, and reports without text."""

from __future__ import annotations

import json
import re

import pytest
from cli_results import told
from made_workspace import Workspace

from audit_pipeline.benchmarks.built_benchmark import read_built

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")


def test_an_empty_report_names_the_first_command(workspace: Workspace) -> None:
    told(workspace.run("report"))
    assert "corpus-audit audit" in workspace.paths.report.read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_report")
def test_open_shows_the_report_in_the_browser(audited_copy: Workspace) -> None:
    opened: list[str] = []
    audited_copy.monkeypatch.setattr("webbrowser.open", opened.append)
    told(audited_copy.run("report", "--open"))
    assert opened == [audited_copy.paths.report.as_uri()]
    told(audited_copy.run("report"))
    assert len(opened) == 1


def written_pages(workspace: Workspace) -> str:
    """Return all pages and JSON copies, with and without tags, because texts can be shown token by token."""
    pages = [page.read_text(encoding="utf-8") for page in sorted(workspace.paths.reports.iterdir())]
    return "".join([*pages, *(re.sub(r"<[^<>]*>", "", page) for page in pages)])


def test_a_report_without_text_quotes_nothing(audited_copy: Workspace) -> None:
    texts = [
        text
        for name in ("made_8", "made_12")
        for text in read_built(audited_copy.paths, name).examples["text"].to_pylist()
    ]
    quoted = "SELECT count(excerpt) AS n FROM examples"
    assert any(text in written_pages(audited_copy) for text in texts)
    assert json.loads(told(audited_copy.run("sql", quoted, "--format", "json"))) == {"n": len(texts)}

    told(audited_copy.run("report", "--no-text"))
    pages = written_pages(audited_copy)
    assert not any(" ".join(text.split()[:4]) in pages for text in texts)
    assert "screening only" in pages
    assert json.loads(told(audited_copy.run("sql", quoted, "--format", "json"))) == {"n": 0}
    warehouse = audited_copy.paths.warehouse.read_bytes()
    assert not any(" ".join(text.split()[:4]).encode() in warehouse for text in texts)
