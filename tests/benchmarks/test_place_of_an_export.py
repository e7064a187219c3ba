"""Where an export may be written, what is refused, and what is there after an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from handed_on import built_of, example, write

from audit_pipeline.benchmarks import publish as module
from audit_pipeline.benchmarks.publish import require_new_folder, require_redistributable
from audit_pipeline.errors import DataError

TWO = [example("old words"), example("new words", 0)]


def test_a_folder_with_files_or_a_file_is_refused(tmp_path: Path) -> None:
    require_new_folder(tmp_path / "new")
    (tmp_path / "empty").mkdir()
    require_new_folder(tmp_path / "empty")
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(DataError, match=r"exists and is not an empty folder. Choose a new or empty folder"):
            require_new_folder(place)


def test_after_an_error_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    built = built_of(TWO, tmp_path / "data")
    monkeypatch.setattr(module, "_build_card", broken)
    with pytest.raises(OSError, match="No space left"):
        write([built], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_texts_that_are_not_plainly_free_need_a_word(tmp_path: Path) -> None:
    built = built_of(
        TWO,
        tmp_path / "data",
        provenance=[{"hub": "maker/a", "licence": "MIT"}, {"hub": "maker/b", "licence": "unknown"}, {"hub": "maker/c"}],
    )
    with pytest.raises(DataError, match=r"\(licence: unknown; not stated\), so nothing was written\. .* --with-text"):
        write([built], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    write([built], tmp_path / "out", with_text=True)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "**Not plainly free:** unknown; not stated." in card


def test_a_control_is_not_handed_on(tmp_path: Path) -> None:
    built = built_of(TWO, tmp_path / "data", spec={"control": "check"})
    with pytest.raises(DataError, match="valid only for the models of the control check"):
        require_redistributable([built], override_unclear_licences=True)
