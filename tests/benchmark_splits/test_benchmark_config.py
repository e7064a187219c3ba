"""config/benchmarks.yaml: what it may hold, what it expands to, and what a user's name finds."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from audit_pipeline.benchmarks.config import LabelledSettings, TemporalSettings, load_benchmarks, resolve
from audit_pipeline.errors import ConfigError
from audit_pipeline.paths import PROJECT_ROOT

TEMPORAL = """\
    builder: temporal
    description: made up
    sources: [made]
    member_before: 2022-01-01
    nonmember_from: 2025-01-01
    words: [32, 64]
    windows_per_document: 2
    seed: 1
"""
LABELLED = """\
    builder: labelled
    description: made up
    hub: someone/rows
    split: Rows_length{words}
    words: [32, 64]
    design: temporal
    seed: 1
"""


def write(folder: Path, families: str) -> Path:
    path = folder / "benchmarks.yaml"
    path.write_text(families, encoding="utf-8")
    return path


def test_the_shipped_file_holds_the_families_and_their_lengths() -> None:
    benchmarks = load_benchmarks(PROJECT_ROOT / "config", date(2026, 11, 21))
    assert list(benchmarks) == [
        *("demo_32", "demo_64"),
        *("release_notes_32", "release_notes_64", "release_notes_128"),
        "recent_64",
        *("sotu_32", "sotu_64", "sotu_128"),
        *("wikimia_32", "wikimia_64", "wikimia_128", "wikimia_256"),
    ]
    notes = benchmarks["release_notes_64"].settings
    assert isinstance(notes, TemporalSettings)
    assert (notes.member_before, notes.nonmember_from) == (date(2022, 1, 1), date(2025, 1, 1))
    assert (notes.sources, notes.balance) == (("release_notes",), "collection")
    recent = benchmarks["recent_64"].settings
    assert isinstance(recent, TemporalSettings)
    assert (recent.member_before, recent.nonmember_from) == (date(2022, 1, 1), date(2025, 11, 21))
    demo = benchmarks["demo_32"].settings
    assert isinstance(demo, TemporalSettings)
    assert (demo.per_side, demo.calibration_fraction) == (60, 0)
    wikimia = benchmarks["wikimia_256"].settings
    assert isinstance(wikimia, LabelledSettings)
    assert (wikimia.hub, wikimia.calibration_fraction) == ("swj0419/WikiMIA", 0)
    assert benchmarks["demo_32"].sources == ("release_notes",)
    assert benchmarks["wikimia_32"].sources == ()
    assert {spec.design for spec in benchmarks.values()} == {"temporal"}


def test_a_name_is_a_benchmark_or_a_family(tmp_path: Path) -> None:
    write(tmp_path, f"benchmarks:\n  notes:\n{TEMPORAL}  rows:\n{LABELLED}")
    benchmarks = load_benchmarks(tmp_path)
    assert [spec.name for spec in resolve("notes_64", benchmarks)] == ["notes_64"]
    assert [spec.name for spec in resolve("rows", benchmarks)] == ["rows_32", "rows_64"]
    assert resolve("rows_32", benchmarks)[0].words == 32


def test_a_name_that_is_neither_names_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, f"benchmarks:\n  release_notes:\n{TEMPORAL}")
    monkeypatch.setenv("CORPUS_AUDIT_CONFIG", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no benchmark 'relase_notes'.*did you mean release_notes or"):
        resolve("relase_notes")
    with pytest.raises(ConfigError, match=r"no benchmark 'zzz'.*there are: release_notes_32, release_notes_64$"):
        resolve("zzz")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("seed: 1", "sede: 1", "notes: key 'seed' is missing"),
        ("seed: 1", "seed: 1\n    sede: 1", "notes: unknown key 'sede'"),
        ("words: [32, 64]", "words: []", "notes: words: .*at least 1"),
        ("    words: [32, 64]\n", "", "notes: key 'words' is missing"),
        ("words: [32, 64]", "words: [32, 0]", "notes: words.1: .*greater than or equal to 1"),
        ("words: [32, 64]", "words: [32, 32]", "notes: words: a length is named twice"),
        ("nonmember_from: 2025-01-01", "nonmember_from: 2021-12-31", "notes: nonmember_from 2021-12-31 is before"),
        ("member_before: 2022-01-01", "member_before: soon", "notes: member_before: .*'soon'"),
        ("sources: [made]", "sources: []", "notes: sources: "),
        ("sources: [made]", "sources: [made, made]", "notes: sources: a source is named twice"),
        ("builder: temporal", "builder: random", "notes: builder: must be temporal or labelled"),
        ("    builder: temporal\n", "", "notes: key 'builder' is missing"),
        ("seed: 1", "seed: 1\n    design: randomised", "notes: design: .*'randomised'"),
        ("seed: 1", "seed: 1\n    calibration_fraction: 1", "notes: calibration_fraction: "),
        ("seed: 1", "seed: 1\n    unit: letters", "notes: unit: .*'letters'"),
        ("seed: 1", "seed: 1\n    seed: 2", "key 'seed' stands twice"),
        ("  notes:", "  5:\n    builder: labelled\n  '5':", "family '5' stands twice, once as a number"),
        ("  notes:", '  "a|b":', "family 'a|b': a family's name is made of"),
        ("  notes:", "  a/b:", "family 'a/b': a family's name is made of"),
        ("  notes:", '  "":', "family '': a family's name is made of"),
        ("benchmarks:", "families:", "must hold one key, 'benchmarks'"),
        ("benchmarks:", "benchmarks: [", "cannot be read"),
    ],
)
def test_a_mistake_in_a_temporal_family_is_named(tmp_path: Path, old: str, new: str, told: str) -> None:
    content = f"benchmarks:\n  notes:\n{TEMPORAL}"
    assert old in content
    path = write(tmp_path, content.replace(old, new, 1))
    with pytest.raises(ConfigError, match=told) as error:
        load_benchmarks(tmp_path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("hub: someone/rows", "hub: someone/rows\n    path: here", "rows: exactly one of hub and path"),
        ("    hub: someone/rows\n", "", "rows: exactly one of hub and path"),
        ("hub: someone/rows", "path: here\n    revision: main", "rows: revision goes with hub"),
        ("split: Rows_length{words}", "split: Rows", "rows: split: must hold {words}"),
        ("    design: temporal\n", "", "rows: key 'design' is missing"),
        ("seed: 1", "seed: 1\n    member_before: 2022-01-01", "rows: unknown key 'member_before'"),
    ],
)
def test_a_mistake_in_a_labelled_family_is_named(tmp_path: Path, old: str, new: str, told: str) -> None:
    content = f"benchmarks:\n  rows:\n{LABELLED}"
    assert old in content
    write(tmp_path, content.replace(old, new, 1))
    with pytest.raises(ConfigError, match=told):
        load_benchmarks(tmp_path)


def test_missing_empty_and_ambiguous_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"benchmarks.yaml is missing"):
        load_benchmarks(tmp_path)
    write(tmp_path, "benchmarks: {}\n")
    with pytest.raises(ConfigError, match="no family"):
        load_benchmarks(tmp_path)
    write(tmp_path, "benchmarks:\n  notes:\n")
    with pytest.raises(ConfigError, match="family notes: the entry holds no keys"):
        load_benchmarks(tmp_path)
    write(tmp_path, f"benchmarks:\n  notes:\n{TEMPORAL}  notes_32:\n{TEMPORAL}")
    with pytest.raises(ConfigError, match="family notes_32 has the name of a benchmark of family notes"):
        load_benchmarks(tmp_path)
    write(tmp_path, f"benchmarks:\n  notes:\n{TEMPORAL}  notes:\n{TEMPORAL}")
    with pytest.raises(ConfigError, match="key 'notes' stands twice"):
        load_benchmarks(tmp_path)


def test_merged_yaml_and_relative_paths(tmp_path: Path) -> None:
    content = f"benchmarks:\n  notes: &notes\n{TEMPORAL}  later:\n    <<: *notes\n    seed: 2\n  rows:\n{LABELLED}"
    write(tmp_path, content.replace("hub: someone/rows", "path: there/rows"))
    benchmarks = load_benchmarks(tmp_path)
    assert benchmarks["later_32"].settings.seed == 2
    assert benchmarks["notes_32"].settings.seed == 1
    rows = benchmarks["rows_32"].settings
    assert isinstance(rows, LabelledSettings)
    assert rows.path == tmp_path / "there/rows"
