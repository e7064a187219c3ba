"""Folders of pages: what is read, and what is named and skipped."""

from __future__ import annotations

from pathlib import Path

from audit_pipeline.sources.base import LeftOut, MissingPart
from audit_pipeline.sources.patents.fetch import read_saved_pages


def found(root: Path) -> tuple[list[tuple[str, bytes]], dict[str, str], dict[str, str]]:
    items = list(read_saved_pages(root))
    return (
        [item for item in items if isinstance(item, tuple)],
        {item.part: item.reason for item in items if isinstance(item, LeftOut)},
        {item.part: item.reason for item in items if isinstance(item, MissingPart)},
    )


def test_a_folder(tmp_path: Path) -> None:
    folder, outside = tmp_path / "pages", tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "x.html").write_text("must not be read")
    (folder / "a.html").write_bytes(b"page a")
    (folder / "deep" / "b.HTM").write_bytes(b"page b")
    (folder / "note.txt").write_text("x")
    (folder / ".hidden.html").write_text("x")
    (folder / "away.html").symlink_to(outside / "x.html")
    (folder / "away").symlink_to(outside)
    (folder / "dangling.html").symlink_to(folder / "nowhere.html")
    pages, left_out, missing = found(folder)
    assert dict(pages) == {"a.html": b"page a", "deep/b.HTM": b"page b"}
    assert left_out.keys() == {"note.txt", "away.html", "away"}
    assert missing.keys() == {"dangling.html"}
    assert left_out["away.html"] == "a link out of the folder"
    assert "cannot be read" in missing["dangling.html"]


def test_one_file_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(b"x")
    assert found(tmp_path / "a.html")[0] == [("a.html", b"x")]
    assert "no such file or folder" in found(tmp_path / "b.html")[2]["b.html"]
