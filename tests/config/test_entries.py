"""Files of entries: a bad one names itself, with every mistake in it, and stops itself alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit_pipeline.benchmarks import config as benchmarks
from audit_pipeline.config.entries import Entries
from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.chat import config as chat_models
from audit_pipeline.extras.controls import config as controls
from audit_pipeline.extras.corpora import config as references
from audit_pipeline.models.config import ModelEntry, load_models
from audit_pipeline.store.paths import to_path_segment

MANY = """\
models:
  good: {hub: a/b}
  wrong:
    hub: a/b
    refrence_model: other
    dtype: float23
    window: 1
    package:
      distributon: x
  twice: {hub: a/b}
  also_good: {path: /x}
  twice: {hub: a/c}
  dated: {hub: a/b, release_date: 2024-13-45}
  bare:
"""


@pytest.fixture
def many(tmp_path: Path) -> Entries[ModelEntry]:
    (tmp_path / "models.yaml").write_text(MANY)
    return load_models(tmp_path)


def test_one_bad_entry_stops_itself_and_no_other(many: Entries[ModelEntry]) -> None:
    assert list(many) == ["good", "also_good"]
    assert many.names == ("good", "wrong", "twice", "also_good", "dated", "bare")
    assert [name for name in many.names if many.is_broken(name)] == ["wrong", "twice", "dated", "bare"]
    assert many.get_entry("good").hub == "a/b"


def test_every_problem_has_its_file_its_line_its_key_and_a_hint(many: Entries[ModelEntry]) -> None:
    told = [str(problem).removeprefix(str(many.path)) for problem in many.problems]
    assert told == [
        ":9: model wrong: unknown key 'package.distributon'; did you mean distribution?",
        ":5: model wrong: unknown key 'refrence_model'; did you mean reference_model?",
        ":8: model wrong: key 'package.file' is missing: name of the .gguf file inside the package",
        ":6: model wrong: dtype: must be 'float32', 'bfloat16' or 'float16', not 'float23'; did you mean float32?",
        ":7: model wrong: window: must be greater than or equal to 2, not 1",
        ":12: model twice: key 'twice' occurs twice; rename or remove one of them",
        ":13: model dated: release_date: must be a valid date or datetime, month value is outside expected "
        "range of 1-12, not '2024-13-45'",
        ":14: model bare: the entry has no keys; add its keys below its name",
    ]


def test_a_broken_entry_is_one_error_with_all_its_problems(many: Entries[ModelEntry]) -> None:
    with pytest.raises(ConfigError) as caught:
        many.get_entry("wrong")
    assert str(caught.value).startswith(f"{many.path}:9: model wrong: unknown key 'package.distributon'; did you mean")
    assert "; line 5: unknown key 'refrence_model'; did you mean reference_model?; line" in str(caught.value)
    assert "; line 7: window: must be" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"no model 'god' in config/models.yaml; did you mean good"):
        many.get_entry("god")


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        # What is misspelt is not missing as well.
        ("{package: {distributon: x, file: y}}", ["unknown key 'package.distributon'; did you mean distribution?"]),
        # A key that is there already is hardly what was meant by another.
        (
            "{hub: a/b, release_date: 2024-01-01, release_dat: 1}",
            ["unknown key 'release_dat'; did you mean release_date?"],
        ),
        ("{hub: a/b, 7: x}", ["Keys should be strings"]),
        ("{hub: a/b, name: n}", ["key 'name' is not allowed: the name of an entry is its key. Remove 'name'."]),
    ],
)
def test_the_nearest_key_is_suggested(tmp_path: Path, entry: str, told: list[str]) -> None:
    (tmp_path / "models.yaml").write_text(f"models:\n  m: {entry}\n")
    problems = load_models(tmp_path).problems
    assert len(problems) == len(told)
    assert all(words in str(problem) for words, problem in zip(told, problems, strict=True))


def test_values_in_messages_are_cut_short(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(f"models:\n  m: {{hub: a/b, dtype: {'x' * 5000}}}\n")
    assert all(len(str(problem)) < 500 for problem in load_models(tmp_path).problems)


EVIL = ("../../../evil", "..", ".", "/evil", "a/../b", "a//b", "a/", "..\\\\evil")


@pytest.mark.parametrize("evil", EVIL)
def test_an_entry_that_is_a_path_is_refused(evil: str, tmp_path: Path) -> None:
    files = [module.FILE for module in (chat_models, references, controls, benchmarks)]
    for file in (*files, controls.STUDIES_FILE):
        (tmp_path / file.name).write_text(f'{file.key}:\n  "{evil}": {{hub: a/b}}\n')
        entries = file.load(tmp_path)
        assert list(entries) == []
        [problem] = entries.problems
        assert f"cannot be the name of a {file.entry_kind}, because it is a path" in str(problem)


@pytest.mark.parametrize("name", ["acme/base-1.5", *EVIL])
def test_a_model_may_be_named_by_its_path(name: str, tmp_path: Path) -> None:
    """As `check --model FOLDER` names it; its folders are named by one segment, whatever the name is."""
    (tmp_path / "models.yaml").write_text(f'models:\n  "{name}": {{hub: a/b}}\n')
    [loaded] = load_models(tmp_path)
    assert Path(to_path_segment(loaded)).parts == (to_path_segment(loaded),)
    assert to_path_segment(loaded) not in (".", "..")
