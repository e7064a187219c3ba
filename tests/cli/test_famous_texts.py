"""Copies of passages in installed packages."""

from __future__ import annotations

from importlib.metadata import distribution

from audit_pipeline.extras.controls.commands import count_installed_copies


def test_copies_in_licence_files_are_counted_regardless_of_white_space() -> None:
    files = [file for file in distribution("click").files or () if file.name == "LICENSE.txt"]
    text = files[0].read_text(encoding="utf-8")
    passage = text[text.index("Redistribution and use") :][:120]
    assert "\n" in passage
    passages = [passage, " ".join(passage.split()), "No licence says this, ever."]
    found, levelled, nowhere = count_installed_copies(passages)
    assert found == levelled >= 2, "click is not the only package under this licence"
    assert nowhere == 0
