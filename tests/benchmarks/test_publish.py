"""The export of a benchmark: its files, its card, and the benchmark that is read from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import made_rows
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import load_dataset
from huggingface_hub import DatasetCard
from hypothesis import given
from hypothesis import strategies as st
from ledger_lines import write_explained
from made_workspace import Workspace, made_documents, make_workspace, temporal
from profiles import max_examples

from audit_pipeline.benchmarks import publish
from audit_pipeline.benchmarks.build import read_inputs
from audit_pipeline.benchmarks.builders.labelled import LabelledSettings
from audit_pipeline.benchmarks.built_benchmark import (
    BuiltBenchmark,
    build_export_names,
    compute_content_digest,
    read_built,
    read_or_assess_split,
)
from audit_pipeline.benchmarks.config import BUILDERS
from audit_pipeline.benchmarks.publish import export, require_new_folder, require_redistributable
from audit_pipeline.benchmarks.settings import BenchmarkSpec
from audit_pipeline.errors import DataError
from audit_pipeline.store.files import table_from_rows, write_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import EXAMPLES, SPLIT_QUALITY, example_id

DAY = date(2021, 2, 3)


def example(text: str, label: int | None = 1, **changes: Any) -> dict[str, Any]:
    """Return a row of a benchmark's examples without the columns that depend on the benchmark."""
    own = {"document_id": f"made:tree:{text[:5]}", "group": f"made:tree:{text[:5]}", "collection": "tree"}
    row = made_rows.example("", text=text, label=label, published=DAY, words=len(text.split()), run_id="built", **own)
    return {**row, **changes}


def built_of(
    rows: Iterable[Mapping[str, Any]], root: Path, words: int | None = None, family: str = "made", **manifest: Any
) -> BuiltBenchmark:
    """Store a benchmark that consists of these rows below ``root``."""
    paths = DataPaths(root)
    name = family if words is None else f"{family}_{words}"
    examples = []
    for row in rows:
        identity = example_id(name, row["document_id"], row["text"])
        examples.append({**row, "example_id": identity, "benchmark": name})
    write_explained(paths, EXAMPLES, name, table_from_rows(examples, EXAMPLES))
    spec = {"builder": "labelled", "unit": "whitespace", "seed": 5, "calibration_fraction": 0.2}
    said = {
        **{"benchmark": name, "family": family, "words": words, "digest": "0" * 64, "builder_version": 1},
        **{"description": "Made-up texts.", "design": "temporal", "design_stated_by": None, "source_versions": {}},
        **{"documents_left_out": {}, "texts_left_out": {}},
        "provenance": [{"hub": "maker/made", "commit": "0" * 40, "licence": "CC0-1.0", "kind of date": "release"}],
        "spec": {**spec, "near_duplicate_threshold": 0.5, **manifest.pop("spec", {})},
        **manifest,
    }
    write_json(paths.benchmark_manifest(name), said)
    return BuiltBenchmark(name, said, paths)


def write(
    benchmarks: Iterable[BuiltBenchmark], folder: Path, *, hub: str | None = None, with_text: bool = False
) -> dict[str, str]:
    """Export built benchmarks, as the command does. Their split quality has one row."""
    built = [*benchmarks]
    require_redistributable(built, override_unclear_licences=with_text)
    measured = {"measure": "blind_auroc", "part": "words", "side": "both", "value": 0.61, "n": 4}
    quality = made_rows.make_table(SPLIT_QUALITY, [{**measured, "split_verdict": "undetermined"}])
    return export(dict.fromkeys(built, quality), folder, DataPaths(folder.parent / "no data"), hub=hub)


def entries_in(folder: Path) -> dict[str, Any]:
    """Return the entries of config/benchmarks.yaml in the card, with the path of the folder."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    entries: dict[str, Any] = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    return {name: {**entry, "path": folder} for name, entry in entries.items()}


def digests_read_back(folder: Path, family: str = "theirs") -> list[str]:
    """Return the content digests of the benchmarks that the card's entries build under another name."""
    found = []
    for number, entry in enumerate(entries_in(folder).values()):
        settings = LabelledSettings.model_validate(entry)
        for words in settings.words or (None,):
            spec = BenchmarkSpec(f"{family}{number}", words, settings)
            drawn = BUILDERS["labelled"].draw(read_inputs(spec, DataPaths(folder)).content, spec, "run")
            found.append(compute_content_digest(drawn.examples))
    return found


FOUR = [
    example("old words stand here", 1),
    example("new words stand here", 0, group="made:tree:new"),
    example("more old words", 1, split="calibration", group="other:1"),
    example("more new words", 0, split="calibration", group="other:2"),
]

_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", " ", "made:x", "made:", "7", "x" * 300, "😀", "a\tb", "\u00a0"]
)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(str.strip)


@st.composite
def benchmarks(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw examples with distinct texts, groups in one split, and both sides."""
    read = draw(st.lists(st.tuples(st.none() | _TEXTS, _TEXTS), min_size=2, max_size=6, unique=True))
    splits: dict[str, str] = {}
    rows = []
    for place, (context, text) in enumerate(read):
        group = draw(_NAMES)
        splits.setdefault(group, draw(st.sampled_from(["calibration", "evaluation"])))
        rows.append(
            example(
                text,
                place if place < 2 else draw(st.sampled_from([0, 1, None])),
                context=context,
                group=group,
                document_id=draw(_NAMES),
                split=splits[group],
                published=draw(st.none() | st.dates(date(1500, 1, 1), date(2025, 12, 31))),
                language=draw(st.sampled_from(["en", "zh", "und", ""])),
                collection=draw(_NAMES),
            )
        )
    return rows


@max_examples(15)
@given(benchmarks())
def test_any_exported_benchmark_is_read_with_the_same_digest(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    root = tmp_path_factory.mktemp("any")
    built = built_of(rows, root / "data")
    done = write([built], root / "out")
    assert digests_read_back(root / "out") == list(done.values())
    assert done == {"made": compute_content_digest(built.examples)}


def test_the_digest_follows_the_description_on_the_card(tmp_path: Path) -> None:
    """The test computes the digest from the files alone."""
    built = built_of(FOUR, tmp_path / "data")
    done = write([built], tmp_path / "out")
    names = ["text", "context", "label", "split", "published", "language", "collection", "document_id", "group"]
    as_json = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
    texts, of_place = [], {"document_id": {}, "group": {}}
    for file in sorted((tmp_path / "out" / "data").rglob("*.parquet")):
        for row in pq.read_table(file, partitioning=None).to_pylist():
            texts.append(row)
            own = hashlib.sha256(as_json([row["context"], row["text"]]).encode()).hexdigest()
            for name, digests in of_place.items():
                digests.setdefault(row[name], []).append(own)
    for row in texts:
        row |= {name: min(digests[row[name]]) for name, digests in of_place.items()}
    lists = [[None if row[name] is None else str(row[name]) for name in names] for row in texts]
    whole = f"[[{','.join(sorted(map(as_json, lists)))}]]"
    assert done["made"] == hashlib.sha256(whole.encode()).hexdigest()


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (0, {"text": "old words stand there"}),
        (0, {"label": 0}),
        (0, {"label": None}),
        (0, {"context": "before"}),
        (0, {"split": "calibration"}),
        (0, {"published": None}),
        (0, {"language": "de"}),
        (0, {"collection": "bush"}),
        (0, {"group": FOUR[1]["group"]}),
        (0, {"document_id": FOUR[1]["document_id"]}),
    ],
)
def test_the_digest_covers_everything_that_affects_results(tmp_path: Path, place: int, change: dict[str, Any]) -> None:
    def digest(rows: list[dict[str, Any]], name: str, family: str = "made") -> str:
        return compute_content_digest(built_of(rows, tmp_path / name, family=family).examples)

    changed = [{**row, **change} if number == place else row for number, row in enumerate(FOUR)]
    before = digest(FOUR, "before")
    assert digest(changed, "after") != before
    assert digest(FOUR[::-1], "turned") == before
    renamed = [{**row, "group": f"a:{row['group']}", "document_id": f"b:{row['document_id']}"} for row in FOUR]
    assert digest(renamed, "renamed", "other-name") == before


def test_export_names_stay_distinct_and_readable() -> None:
    long = "x" * 300
    names = build_export_names(["f:a", "f:f:a", "f:", f"f:{long}", "f: a"], "f")
    assert names[:2] == ["a", "f:a"]
    assert len(set(names)) == 5
    assert all(name.strip() == name and 0 < len(name) <= 200 for name in names)
    assert build_export_names([f"g:{name}" for name in names], "g") == names
    assert build_export_names(["f:a", "b"], "f") == ["f:a", "b"], "only where all have it"


def test_datasets_loads_every_configuration_and_split(tmp_path: Path) -> None:
    lengths = {
        words: [
            example(" ".join([f"{side}{number}"] * words), label, split=split, published=None if number else DAY)
            for side, label in (("old", 1), ("new", 0), ("any", None))
            for number, split in enumerate(("evaluation", "calibration"))
        ]
        for words in (2, 3)
    }
    done = write([built_of(rows, tmp_path / "data", words) for words, rows in lengths.items()], tmp_path / "out")
    assert list(done) == ["made_2", "made_3"]
    for words, rows in lengths.items():
        loaded = load_dataset(str(tmp_path / "out"), f"made_{words}", cache_dir=str(tmp_path / "cache"))
        assert sorted(loaded) == ["calibration", "evaluation"]
        for split, found in loaded.items():
            expected = [(row["text"], row["label"], row["published"]) for row in rows if row["split"] == split]
            assert list(zip(found["text"], found["label"], found["published"], strict=True)) == expected
    (entry,) = entries_in(tmp_path / "out").values()
    assert entry["words"] == [2, 3]
    assert entry["files"] == ["data/made_{words}/calibration.parquet", "data/made_{words}/evaluation.parquet"]
    assert digests_read_back(tmp_path / "out") == list(done.values())


def test_lengths_with_different_splits_have_separate_entries(tmp_path: Path) -> None:
    both = [
        example("a b"),
        example("c d", 0),
        example("e f", split="calibration"),
        example("g h", 0, split="calibration"),
    ]
    one = [example("a b c"), example("d e f", 0)]
    done = write([built_of(both, tmp_path / "data", 2), built_of(one, tmp_path / "data", 3)], tmp_path / "out")
    entries = entries_in(tmp_path / "out")
    assert {name: entry["words"] for name, entry in entries.items()} == {"made": [2], "made_splits_2": [3]}
    assert digests_read_back(tmp_path / "out") == list(done.values())


def test_texts_of_other_lengths_stay(tmp_path: Path) -> None:
    write([built_of([example("a b"), example("a b c", 0)], tmp_path / "data", 2)], tmp_path / "out")
    (entry,) = entries_in(tmp_path / "out").values()
    assert entry["exact_words"] is False


def test_a_shelf_is_exported_and_read(tmp_path: Path) -> None:
    """Unlabelled texts are evaluated, and held-out texts are for calibration."""
    rows = [example("shelf one", None), example("shelf two", None), example("held out", 0, split="calibration")]
    done = write([built_of(rows, tmp_path / "data", design="exchangeable")], tmp_path / "out")
    assert digests_read_back(tmp_path / "out") == list(done.values())


def test_a_repeated_text_is_refused(tmp_path: Path) -> None:
    rows = [*FOUR, example(FOUR[0]["text"], 1, document_id="elsewhere", group="elsewhere")]
    with pytest.raises(
        DataError, match=r"1 of its texts cannot be read from the export\. The first text is .* the same as"
    ):
        write([built_of(rows, tmp_path / "data")], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_matched_sides_stay_matched(tmp_path: Path) -> None:
    """Otherwise their split would look better than it is."""
    write([built_of(FOUR, tmp_path / "data", matched={"achieved": {}})], tmp_path / "out")
    (entry,) = entries_in(tmp_path / "out").values()
    assert entry["matched"] is True


def test_the_files_have_typed_columns(tmp_path: Path) -> None:
    write([built_of(FOUR, tmp_path / "data")], tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "data" / "made" / "evaluation.parquet", partitioning=None)
    assert table.schema.field("published").type == pa.date32()
    assert table.schema.field("label").type == pa.int8()
    assert table.column("title").to_pylist() == [None, None]


TWO = [example("old words"), example("new words", 0)]


def test_an_export_needs_a_new_or_empty_folder(tmp_path: Path) -> None:
    require_new_folder(tmp_path / "new")
    (tmp_path / "empty").mkdir()
    require_new_folder(tmp_path / "empty")
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(DataError, match=r"exists and is not an empty folder. Choose a new or empty folder"):
            require_new_folder(place)


def test_a_failed_export_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    built = built_of(TWO, tmp_path / "data")
    monkeypatch.setattr(publish, "_build_card", broken)
    with pytest.raises(OSError, match="No space left"):
        write([built], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_unclear_licences_require_an_override(tmp_path: Path) -> None:
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


def test_a_control_cannot_be_exported(tmp_path: Path) -> None:
    built = built_of(TWO, tmp_path / "data", spec={"control": "check"})
    with pytest.raises(DataError, match="valid only for the models of the control check"):
        require_redistributable([built], override_unclear_licences=True)


ROWS = [
    example("old words stand here", 1),
    example("new 😀 words stand here", 0, published=None, language="de"),
    example("any words", None, split="calibration"),
]


def header(folder: Path) -> dict[str, Any]:
    card = DatasetCard.load(folder / "README.md")
    found: dict[str, Any] = card.data.to_dict()
    return found


def test_the_hub_reads_the_header_of_the_card(tmp_path: Path) -> None:
    write([built_of(ROWS, tmp_path / "data")], tmp_path / "out", hub="maker/made")
    found = header(tmp_path / "out")
    assert found["license"] == "cc0-1.0"
    assert found["language"] == ["de", "en"]
    assert found["size_categories"] == ["n<1K"]
    splits = [{"split": split, "path": f"data/made/{split}.parquet"} for split in ("calibration", "evaluation")]
    assert found["configs"] == [{"config_name": "made", "data_files": splits, "default": True}]


def test_an_unclear_licence_is_called_other(tmp_path: Path) -> None:
    built = built_of(ROWS, tmp_path / "data", provenance=[{"hub": "maker/made", "licence": "as it is"}])
    write([built], tmp_path / "out", with_text=True)
    found = header(tmp_path / "out")
    assert (found["license"], found["license_name"]) == ("other", "as it is")


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    workspace = make_workspace(tmp_path / "ours", monkeypatch)
    workspace.write_benchmarks(made=temporal([12], calibration_fraction=0.3))
    workspace.fetch(*made_documents(6, 60))
    workspace.build("made")
    return workspace


def test_the_card_describes_the_drawing(built: Workspace, tmp_path: Path) -> None:
    """The benchmark is drawn from documents, and its split is not assessed yet."""
    benchmark = read_built(built.paths, "made_12")
    quality = read_or_assess_split(benchmark, built.paths, "run").quality
    export({benchmark: quality}, tmp_path / "out", built.paths, hub=None)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    for said in (
        "member_before 2022-01-01",
        "nonmember_from 2025-01-01",
        "\nLabel source: dates.\n",
        "CC0-1.0",
        "| made_12 | evaluation |",
        benchmark.manifest["content_digest"],
    ):
        assert said in card, said
