"""The file config/sources.yaml: defaults and errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from config_problems import problems_of

from audit_pipeline.sources.config import SourceSettings, all_sources, load_source_settings
from audit_pipeline.sources.local_files import LocalFilesSettings
from audit_pipeline.sources.packaged_texts import PassagesSettings
from audit_pipeline.store.paths import PROJECT_ROOT


def test_the_shipped_file_lists_the_defaults() -> None:
    shipped = load_source_settings(PROJECT_ROOT / "config")
    assert shipped.problems == ()
    # A source without settings has no section.
    assert {*shipped.sections, "sotu"} == set(all_sources())
    assert {name for name, given in shipped.sections.items() if given != all_sources()[name].settings()} == {"passages"}
    # Only the file lists the passages.
    ready = shipped.for_source("passages").missing_setting, PassagesSettings().missing_setting
    assert ready == (None, "set passages.files in config/sources.yaml to the files and passages to read")


def test_relative_paths_count_from_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def load(folder: Path, text: str) -> SourceSettings:
        (folder / "sources.yaml").write_text(text, encoding="utf-8")
        return load_source_settings(folder)

    monkeypatch.setenv("CORPUS_AUDIT_CONFIG", str(tmp_path))
    (tmp_path / "sources.yaml").write_text("local_files: {path: ../texts, date_column: day}\n")
    settings = load_source_settings()
    given = settings.for_source("local_files")
    assert given == LocalFilesSettings(path=tmp_path / ".." / "texts", date_column="day")
    load(tmp_path, f"local_files: {{path: {tmp_path}/x.csv}}")
    assert load_source_settings().for_source("local_files") == LocalFilesSettings(path=tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "releases: {}",
            r"sources\.yaml:1: section releases: there is no source with this name; did you mean release_notes",
        ),
        ("local_files: {paht: x}", r"sources\.yaml:1: section local_files: unknown key 'paht'; did you mean path\?"),
        ("release_notes: {projects: [flask]}", r"release_notes: projects\.0: .*'django', 'pytest' or 'sqlalchemy'"),
        ("release_notes: {projects: [django, django]}", r"release_notes: projects: must be a list without duplicates"),
        ("release_notes: {projects: django}", r"release_notes: projects: .*a list"),
        ("local_files: {path: ''}", r"local_files: path: must be the path of a folder or file, or null"),
        ("local_files: {collection: 'a:b'}", r"local_files: collection: "),
        ("local_files: {language: English}", r"local_files: language: "),
        ("- a list", r"must have one key per section"),
        ("a: [", r"sources\.yaml:1: cannot be read: "),
    ],
)
def test_errors_name_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "sources.yaml").write_text(text, encoding="utf-8")
    said = problems_of(load_source_settings, tmp_path)
    assert re.search(message, said)
    assert "\n" not in said
