"""Where an export may be written, what is refused, and what is there after an error."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from handed_on import built_of, example, write

from audit_pipeline.errors import DataError
from audit_pipeline.handing_on import export as module
from audit_pipeline.handing_on.export import require_licences

TWO = [example("old words"), example("new words", 0)]
OTHERS = [example("other old words"), example("other new words", 0)]


def content(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_an_earlier_export_is_replaced_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    first = [*TWO, example("third words", split="calibration"), example("fourth words", 0, split="calibration")]
    write([built_of(first, tmp_path / "data")], out)
    before = content(out)
    write([built_of(OTHERS, tmp_path / "later")], out)
    after = content(out)
    assert sorted(after) == ["README.md", "croissant.json", "data/made/evaluation.parquet"]
    assert not set(after.values()) & set(before.values())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("name", ["notes.txt", "data/made/more.parquet", ".git/config"])
def test_a_folder_that_holds_anything_else_is_refused(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    write([built_of(TWO, tmp_path / "data")], out)
    stranger = out / name
    stranger.parent.mkdir(parents=True, exist_ok=True)
    stranger.write_text("mine", encoding="utf-8")
    before = content(out)
    with pytest.raises(DataError, match=f"holds {name}, which no export wrote"):
        write([built_of(OTHERS, tmp_path / "later")], out)
    assert content(out) == before


@pytest.mark.parametrize("metadata", ["not JSON", "[]", json.dumps({"distribution": "x"}), json.dumps({})])
def test_a_folder_that_only_looks_like_an_export_is_refused(tmp_path: Path, metadata: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "croissant.json").write_text(metadata, encoding="utf-8")
    with pytest.raises(DataError, match=r"holds croissant\.json, which no export wrote"):
        write([built_of(TWO, tmp_path / "data")], out)


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine", encoding="utf-8")
    with pytest.raises(DataError, match="is a file; name a folder"):
        write([built_of(TWO, tmp_path / "data")], tmp_path / "out")


def test_after_an_error_everything_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    write([built_of(TWO, tmp_path / "data")], out)
    before = content(out)

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("format_benchmark_card", "write_table"):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, broken)
            with pytest.raises(OSError, match="No space left"):
                write([built_of(OTHERS, tmp_path / "later")], out)
        assert content(out) == before
    rename = Path.rename
    with monkeypatch.context() as patch:
        # The second of the two moves fails: what was there goes back.
        patch.setattr(
            Path, "rename", lambda self, to: broken() if (self.name, to) == ("out", out) else rename(self, to)
        )
        with pytest.raises(OSError, match="No space left"):
            write([built_of(OTHERS, tmp_path / "later")], out)
    assert content(out) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "later", "out"]


def test_texts_that_are_not_plainly_free_need_a_word(tmp_path: Path) -> None:
    built = built_of(
        TWO,
        tmp_path / "data",
        provenance=[{"hub": "maker/a", "licence": "MIT"}, {"hub": "maker/b", "licence": "unknown"}, {"hub": "maker/c"}],
    )
    with pytest.raises(DataError, match=r"\(licence: unknown; not stated\), so nothing was written; .* --with-text"):
        write([built], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    write([built], tmp_path / "out", with_text=True)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "**Not plainly free:** unknown; not stated." in card


def test_a_control_is_not_handed_on(tmp_path: Path) -> None:
    built = built_of(TWO, tmp_path / "data", spec={"control": "check"})
    with pytest.raises(DataError, match="what the models of the control check were trained on"):
        require_licences([built], with_text=True)
