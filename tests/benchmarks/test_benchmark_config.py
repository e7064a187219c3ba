"""The file config/benchmarks.yaml: its entries, its errors, and the names of benchmarks."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest
from config_problems import problems_of

from audit_pipeline.benchmarks.build import compute_benchmark_digest
from audit_pipeline.benchmarks.builders.labelled import LabelledSettings, SidesSettings
from audit_pipeline.benchmarks.builders.online import OnlineSettings
from audit_pipeline.benchmarks.builders.templated import TemplatedSettings
from audit_pipeline.benchmarks.builders.temporal import TemporalSettings
from audit_pipeline.benchmarks.config import exclude_on_request, load_benchmarks, resolve_benchmarks
from audit_pipeline.errors import ConfigError
from audit_pipeline.splits import blind_controls
from audit_pipeline.store.paths import PROJECT_ROOT

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


def test_the_author_states_the_design_unless_it_follows_from_the_builder(tmp_path: Path) -> None:
    """The author states the design of labelled rows and of held-out documents."""
    common = "    description: d\n    words: [8]\n    seed: 1\n"
    shelf = f"    builder: shelf\n{common}    sources: [s]\n    windows_per_document: 3\n"
    write(
        tmp_path,
        f"benchmarks:\n  dated:\n{TEMPORAL}  rows:\n{LABELLED}  mine:\n{shelf}"
        f"  beside:\n{shelf}    held_out: {{groups: [a]}}\n    design: exchangeable\n"
        f"  check:\n    builder: controlled\n{common}    control: c\n",
    )
    stated = {spec.family: spec.design_stated_by for spec in load_benchmarks(tmp_path).values()}
    assert stated == {
        **{"dated": None, "mine": None, "check": None},
        **{"rows": "whoever wrote config/benchmarks.yaml", "beside": "whoever wrote config/benchmarks.yaml"},
    }


def test_the_shipped_file_holds_the_families_and_their_lengths() -> None:
    benchmarks = load_benchmarks(PROJECT_ROOT / "config", date(2026, 11, 21))
    assert list(exclude_on_request(benchmarks)) == [
        "demo_64",
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
    demo = benchmarks["demo_64"].settings
    assert isinstance(demo, TemporalSettings)
    assert (demo.per_side, demo.calibration_fraction) == (100, 0)
    # The README promises that the first report has a blind control.
    assert 2 * demo.per_side >= blind_controls.MIN_EXAMPLES
    wikimia = benchmarks["wikimia_256"].settings
    assert isinstance(wikimia, LabelledSettings)
    assert (wikimia.hub, wikimia.calibration_fraction) == ("swj0419/WikiMIA", 0)
    assert benchmarks["demo_64"].sources == ("release_notes",)
    assert benchmarks["wikimia_32"].sources == ()
    assert {spec.design for spec in exclude_on_request(benchmarks).values()} == {"temporal"}


def test_a_name_is_a_benchmark_or_a_family(tmp_path: Path) -> None:
    write(tmp_path, f"benchmarks:\n  notes:\n{TEMPORAL}  rows:\n{LABELLED}")
    benchmarks = load_benchmarks(tmp_path)
    assert [spec.name for spec in resolve_benchmarks("notes_64", benchmarks)] == ["notes_64"]
    assert [spec.name for spec in resolve_benchmarks("rows", benchmarks)] == ["rows_32", "rows_64"]
    assert resolve_benchmarks("rows_32", benchmarks)[0].words == 32
    several = resolve_benchmarks("rows, notes_64,rows_32,", benchmarks)
    assert [spec.name for spec in several] == ["rows_32", "rows_64", "notes_64"]


def test_a_family_without_a_seed_has_seed_0(tmp_path: Path) -> None:
    write(tmp_path, f"benchmarks:\n  notes:\n{TEMPORAL.replace('    seed: 1', '')}")
    assert load_benchmarks(tmp_path)["notes_32"].settings.seed == 0


def test_an_unknown_name_lists_similar_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, f"benchmarks:\n  release_notes:\n{TEMPORAL}")
    monkeypatch.setenv("CORPUS_AUDIT_CONFIG", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no benchmark 'relase_notes'.*did you mean release_notes or"):
        resolve_benchmarks("relase_notes")
    with pytest.raises(ConfigError, match=r"no benchmark 'zzz'.*there are: release_notes_32, release_notes_64$"):
        resolve_benchmarks("zzz")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("seed: 1", "sede: 1", "notes: unknown key 'sede'; did you mean seed"),
        ("words: [32, 64]", "words: [32, 32]", "notes: words: must be a list without duplicates"),
        ("nonmember_from: 2025-01-01", "nonmember_from: 2021-12-31", "notes: nonmember_from 2021-12-31 is before"),
        ("member_before: 2022-01-01", "member_before: soon", "notes: member_before: .*'soon'"),
        ("sources: [made]", "sources: [made, made]", "notes: sources: must be a list without duplicates"),
        (
            "builder: temporal",
            "builder: random",
            "notes: builder: must be controlled, found_in_corpus, .*temporal",
        ),
        ("    builder: temporal\n", "", "notes: key 'builder' is missing"),
        ("seed: 1", "seed: 1\n    design: randomised", "notes: design: .*'randomised'"),
        ("words: [32, 64]", "words: any", "notes: words: this builder cuts texts, so it does not accept any"),
        ("seed: 1", "seed: 1\n    seed: 2", "key 'seed' occurs twice"),
        ("  notes:", '  "a|b":', r"family a\|b: the name of a family may contain only"),
        ("  notes:", f"  {'n' * 58}:", "family n+: .* takes 61 bytes, but .* 60 bytes"),
        ("seed: 1", "seed: 1\n    combined: [loss, loss]", "notes: combined: must be a list without duplicates"),
        ("builder: temporal", "builder: temproal", "notes: builder: must be .*; did you mean temporal"),
        ("benchmarks:", "families:", "must have exactly one key, 'benchmarks'"),
        ("benchmarks:", "benchmarks: [", "cannot be read"),
    ],
)
def test_mistakes_in_a_temporal_family_are_reported(tmp_path: Path, old: str, new: str, told: str) -> None:
    content = f"benchmarks:\n  notes:\n{TEMPORAL}"
    assert old in content
    path = write(tmp_path, content.replace(old, new, 1))
    said = problems_of(load_benchmarks, tmp_path)
    assert re.search(told, said)
    assert all(line.startswith(str(path)) for line in said.splitlines())


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("hub: someone/rows", "hub: someone/rows\n    path: here", "rows: set exactly one of hub, path and package"),
        ("    hub: someone/rows\n", "", "rows: set exactly one of hub, path and package"),
        ("hub: someone/rows", "path: here\n    revision: main", "rows: revision requires hub"),
        ("split: Rows_length{words}", "split: Rows", "rows: split: must contain {words}"),
        (
            "    design: temporal\n",
            "",
            r"rows: key 'design' is missing: .*temporal \(by their.*selected \(by",
        ),
        ("design: temporal", "design: randomized", "rows: design: .*, not 'randomized'; did you mean randomised"),
        ("words: [32, 64]", "words: any", "rows: .*: {words} is replaced by the length, but words is any"),
        ("words: [32, 64]", "words: null", "rows: words: must be a list of lengths, or any"),
        ("    split: Rows_length{words}\n", "", "rows: split or files is missing"),
        ("seed: 1", "seed: 1\n    files: [x.jsonl]", "rows: set one of split and files"),
        ("seed: 1", "seed: 1\n    label_values: {2: 2}", "rows: label_values: must be 0 or 1, not 2"),
        ("seed: 1", "seed: 1\n    label_values: {yes: 1}", "rows: label_values: .*string, not True"),
        ("seed: 1", "seed: 1\n    member_before: 2022-01-01", "rows: unknown key 'member_before'"),
    ],
)
def test_mistakes_in_a_labelled_family_are_reported(tmp_path: Path, old: str, new: str, told: str) -> None:
    content = f"benchmarks:\n  rows:\n{LABELLED}"
    assert old in content
    write(tmp_path, content.replace(old, new, 1))
    assert re.search(told, problems_of(load_benchmarks, tmp_path))


def test_every_mistake_is_reported_and_a_misspelt_key_is_not_called_missing(tmp_path: Path) -> None:
    content = f"benchmarks:\n  notes:\n{TEMPORAL}".replace("member_before", "member_befor").replace("[32", "[0, 32")
    path = write(tmp_path, content.replace("nonmember_from: 2025-01-01", "nonmember_from: soon"))
    assert [
        line.removeprefix(str(path)).partition("; not")[0]
        for line in problems_of(load_benchmarks, tmp_path).splitlines()
    ] == [
        ":7: family notes: nonmember_from: must be a date (2025-01-31), or words: today, 90 days before today, 1 week "
        "before today, 6 months before today",
        ":6: family notes: unknown key 'member_befor'; did you mean member_before?",
        ":8: family notes: words.0: must be greater than or equal to 1, not 0",
    ]


@pytest.mark.parametrize(
    ("design", "told"),
    [
        ("", r"key 'design' is missing\. .* temporal \(they are newer\), exchangeable \(by chance alone"),
        ("    design: unlabelled\n", r"key 'design' is missing\. .* temporal \(they are newer"),
        ("    design: randomised\n", r"design: must be 'unlabelled', 'temporal', 'exchangeable', 'selected' or 'unst"),
    ],
)
def test_a_shelf_with_held_out_documents_needs_a_design(tmp_path: Path, design: str, told: str) -> None:
    shelf = EVERY.partition("  mine:\n")[2] + "    held_out: {groups: [x]}\n"
    write(tmp_path, f"benchmarks:\n  mine:\n{shelf}{design}")
    assert re.search(told, problems_of(load_benchmarks, tmp_path))


def test_a_shelf_without_held_out_documents_has_no_design(tmp_path: Path) -> None:
    write(tmp_path, EVERY + "    design: temporal\n")
    assert "temporal' describes held_out documents, but held_out is not set" in problems_of(load_benchmarks, tmp_path)


def test_missing_empty_and_ambiguous_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"benchmarks.yaml is missing"):
        load_benchmarks(tmp_path)
    write(tmp_path, "benchmarks: {}\n")
    with pytest.raises(ConfigError, match="no family"):
        load_benchmarks(tmp_path)
    for families, told in (
        ("  notes:\n", "family notes: the entry has no keys"),
        (
            f"  notes:\n{TEMPORAL}  notes_32:\n{TEMPORAL}",
            "family notes_32: this name is also the name of a benchmark of",
        ),
        (f"  notes:\n{TEMPORAL}  notes:\n{TEMPORAL}", ":11: family notes: key 'notes' occurs twice"),
    ):
        write(tmp_path, f"benchmarks:\n{families}")
        assert told in problems_of(load_benchmarks, tmp_path)


def test_merged_yaml_and_relative_paths(tmp_path: Path) -> None:
    content = f"benchmarks:\n  notes: &notes\n{TEMPORAL}  later:\n    <<: *notes\n    seed: 2\n  rows:\n{LABELLED}"
    write(tmp_path, content.replace("hub: someone/rows", "path: there/rows"))
    benchmarks = load_benchmarks(tmp_path)
    assert benchmarks["later_32"].settings.seed == 2
    assert benchmarks["notes_32"].settings.seed == 1
    rows = benchmarks["rows_32"].settings
    assert isinstance(rows, LabelledSettings)
    assert rows.path == tmp_path / "there/rows"


EVERY = """\
benchmarks:
  lengths:
    builder: labelled
    description: paraphrased rows
    hub: someone/rows
    split: Rows_length{words}_paraphrased
    words: [32, 64]
    exact_words: false
    design: temporal
    seed: 1
  books:
    builder: labelled
    description: snippets
    path: books
    split: train
    words: any
    text_column: snippet
    group_column: book
    date_column: year
    date_kind: first edition
    where: {language: en, kept: true}
    label_values: {seen: 1, unseen: 0}
    design: temporal
    seed: 1
  pile:
    builder: sides
    description: two files
    hub: someone/pile
    subset: arxiv
    members: {files: ["train/{subset}.jsonl"]}
    nonmembers: {files: ["test/{subset}.jsonl"]}
    words: any
    design: selected
    seed: 1
  items:
    builder: templated
    description: items
    package: {distribution: made-items, file: made/items.jsonl.gz, version: "1.0"}
    words: any
    template: "{{ prompt }}{{ solution }}"
    seed: 1
  stream:
    builder: online
    description: chunks
    hub: someone/rows
    split: Rows_length{words}
    words: [32]
    lengths: [32, 64, 128]
    design: temporal
    seed: 1
  mine:
    builder: shelf
    description: my shelf
    sources: [local_files]
    words: [64]
    windows_per_document: 100
    seed: 1
"""


def test_a_family_of_any_length_is_one_benchmark(tmp_path: Path) -> None:
    write(tmp_path, EVERY)
    benchmarks = load_benchmarks(tmp_path)
    assert {name: (spec.words, spec.has_exact_length, spec.design) for name, spec in benchmarks.items()} == {
        "lengths_32": (32, False, "temporal"),
        "lengths_64": (64, False, "temporal"),
        "books": (None, False, "temporal"),
        "pile": (None, False, "selected"),
        "items": (None, False, "unlabelled"),
        "stream_32": (32, True, "temporal"),
        "mine_64": (64, True, "unlabelled"),
    }
    books, pile = benchmarks["books"], benchmarks["pile"].settings
    assert books.describe_entry()["words"] is None
    assert isinstance(books.settings, LabelledSettings)
    assert books.settings.path == tmp_path / "books"
    assert dict(books.settings.where) == {"language": "en", "kept": True}
    assert resolve_benchmarks("books", benchmarks) == [books]
    with pytest.raises(TypeError, match="the texts of books have any length"):
        _ = books.length
    assert isinstance(pile, SidesSettings)
    assert isinstance(benchmarks["items"].settings, TemplatedSettings)
    assert isinstance(benchmarks["stream_32"].settings, OnlineSettings)
    assert {name: spec.sources for name, spec in benchmarks.items() if spec.sources} == {"mine_64": ("local_files",)}
    assert len({hash(spec) for spec in benchmarks.values()}) == len(benchmarks)


def test_a_change_affects_only_the_digests_of_its_family(tmp_path: Path) -> None:
    def digests(content: str) -> dict[str, str]:
        write(tmp_path, content)
        return {name: compute_benchmark_digest(spec, {"x": "1"}) for name, spec in load_benchmarks(tmp_path).items()}

    before = digests(EVERY)
    assert len(set(before.values())) == len(before)
    for old, new, moved in (
        ("year", "day", {"books"}),
        ("exact_words: false", "exact_words: true", {"lengths_32", "lengths_64"}),
        ("{{ solution }}", " {{ solution }}", {"items"}),
        ("[32, 64, 128]", "[32, 64]", {"stream_32"}),
        ("subset: arxiv", "subset: github", {"pile"}),
        ("windows_per_document: 100", "windows_per_document: 10", {"mine_64"}),
        ("first edition", "printing", set()),
        ("words: [32, 64]", "words: [64, 32, 128]", set()),
        ("description: two files", "description: otherwise", set()),
    ):
        assert old in EVERY
        after = digests(EVERY.replace(old, new))
        assert {name for name in before if after[name] != before[name]} == moved
