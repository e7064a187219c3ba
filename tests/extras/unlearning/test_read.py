"""The inputs of a comparison: the texts of both sides, and the extraction results of their documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ledger_lines import write_explained
from made_rows import example, examples_table, make_row

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark
from audit_pipeline.errors import DataError
from audit_pipeline.extras.unlearning.comparison_rows import ComparedValues, ThresholdBefore
from audit_pipeline.extras.unlearning.inputs import (
    find_calibration_texts,
    read_document_values,
    read_reproduced_documents,
    read_sides,
)
from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import DOCUMENT_MEMORISATION, EXAMPLES, Pair

Text = tuple[str, int | None, str]
"""The words, the label and the split of a text."""


def named(model: str) -> Any:
    identity = SimpleNamespace(model_fingerprint=f"of {model}")
    return SimpleNamespace(entry=SimpleNamespace(name=model), identity=identity, has_statistic=lambda _: True)


SMALL = {"reference_model/small": "its weights"}
MODELS: Any = {name: named(name) for name in ("before", "after")}


def built(folder: Path, name: str, texts: Sequence[Text]) -> BuiltBenchmark:
    paths = DataPaths(folder)
    rows = [
        example(f"{name} {text}", benchmark=name, document_id=text, text=text, group=text, label=label, split=split)
        for text, label, split in texts
    ]
    write_explained(paths, EXAMPLES, name, examples_table(rows))
    return BuiltBenchmark(name, {"digest": name}, paths)


def sides_of(forget: BuiltBenchmark, holdout: BuiltBenchmark) -> tuple[list[str], list[str]]:
    sides = read_sides(forget, holdout)
    texts = sides.examples["text"].to_numpy()
    return texts[sides.forget].tolist(), texts[~sides.forget].tolist()


def test_members_of_a_benchmark_are_compared_with_its_evaluated_non_members(tmp_path: Path) -> None:
    known = (("m", 1, "evaluation"), ("n", 0, "evaluation"), ("c", 0, "calibration"), ("u", None, "evaluation"))
    one = built(tmp_path, "one", known)
    assert sides_of(one, one) == (["m"], ["n"])


def test_audited_texts_of_a_shelf_are_compared_with_its_held_out_texts(tmp_path: Path) -> None:
    shelf = built(tmp_path, "shelf", (("a", None, "evaluation"), ("c", 0, "calibration"), ("d", 0, "calibration")))
    assert sides_of(shelf, shelf) == (["a"], ["c", "d"])
    for benchmark, expected in (("shelf", [False, True, True]), ("another", [False] * 3)):
        threshold = ThresholdBefore(0.2, -1.0, benchmark, "words")
        assert find_calibration_texts(read_sides(shelf, shelf), threshold).tolist() == expected


def test_all_texts_of_two_benchmarks_are_compared(tmp_path: Path) -> None:
    one = built(tmp_path, "one", (("m", 1, "evaluation"), ("n", 0, "calibration")))
    two = built(tmp_path, "two", (("x", None, "evaluation"), ("y", 0, "calibration")))
    assert sides_of(one, two) == (["m", "n"], ["x", "y"])


def test_an_empty_side_and_a_text_on_both_sides_are_refused(tmp_path: Path) -> None:
    members = built(tmp_path, "members", (("m", 1, "evaluation"),))
    with pytest.raises(DataError, match="members has no texts to compare with the texts to be forgotten"):
        read_sides(members, members)
    unlabelled = built(tmp_path, "unlabelled", (("u", None, "evaluation"),))
    with pytest.raises(DataError, match="unlabelled has no texts to be forgotten"):
        read_sides(unlabelled, unlabelled)
    again = built(tmp_path, "again", (("m", 0, "evaluation"),))
    with pytest.raises(
        DataError, match=r"1 text\(s\) are both to be forgotten \(in members\) and held out \(in again\)"
    ):
        read_sides(members, again)


def test_benchmarks_that_share_documents_or_groups_are_refused(tmp_path: Path) -> None:
    """Windows of the same books have different texts, but a model may have read all of them."""
    books = built(tmp_path, "books", (("one", 1, "evaluation"), ("two", 1, "evaluation"), ("own", 1, "evaluation")))
    windows = [("w1", "one", "one"), ("w2", "one", "one"), ("w3", "another volume", "two"), ("w4", "new", "new")]
    nested = built(tmp_path, "nested", [(text, 0, "evaluation") for text, *_ in windows])
    examples = nested.examples.to_pylist()
    for row, (_, document, group) in zip(examples, windows, strict=True):
        row.update(document_id=document, group=group)
    write_explained(nested.paths, EXAMPLES, "nested", table_from_rows(examples, EXAMPLES))
    nested = BuiltBenchmark("nested", {"digest": "nested"}, nested.paths)
    with pytest.raises(DataError) as refused:
        read_sides(books, nested)
    assert str(refused.value) == (
        "books and nested share 1 document(s) and 2 group(s), so a model may have read the held-out documents. "
        "Give a benchmark of other documents with --holdout."
    )


def extract(folder: Path, model: str, shares: Mapping[str, float | None], tokens: int = 50, **changes: Any) -> None:
    """Store the extraction of documents with these covered shares. Documents with None have no window.

    Names of held-out documents begin with h. ``changes`` replace arguments of the ledger entry.
    """
    rows = [
        make_row(
            DOCUMENT_MEMORISATION,
            **{"model": model, "benchmark": "b", "document_id": name, "group": name, "run_id": "run", "log_p": -3.0},
            **{"side": "held_out" if name.startswith("h") else "audited", "windows": 0 if share is None else 3},
            **{"prefix_tokens": 50, "suffix_tokens": tokens, "stride": "tiled", "covered_at_0_001": share},
            **{"claim": None if share is None else "reproduced" if share else "not reproduced"},
        )
        for name, share in shares.items()
    ]
    step, table = LineageStep.now("run", "extraction", "1"), table_from_rows(rows, DOCUMENT_MEMORISATION)
    entry = {"upstream": {}, "model_fingerprint": f"of {model}", "benchmark_digest": "d", **changes}
    store.write(DataPaths(folder), step, DOCUMENT_MEMORISATION, Pair("b", model), table, **entry)


def documents(folder: Path) -> ComparedValues:
    paths = DataPaths(folder)
    return read_document_values(MODELS, [BuiltBenchmark("b", {"digest": "d"}, paths)], paths)


def test_documents_with_windows_under_every_model_are_compared(tmp_path: Path) -> None:
    extract(tmp_path, "before", {"one": 0.5, "two": 0.0, "short": None, "held": 0.0})
    extract(tmp_path, "after", {"two": 0.1, "one": 0.2, "short": None, "held": 0.0, "new": 0.9})
    found = documents(tmp_path)
    assert (found.reason, found.groups, found.forget.tolist()) == (None, ["held", "one", "two"], [False, True, True])
    assert found.values["before"]["verbatim_coverage"].tolist() == [0.0, 0.5, 0.0]
    assert found.values["after"]["verbatim_coverage"].tolist() == [0.0, 0.2, 0.1]
    assert found.values["after"]["verbatim_reproduced"].tolist() == [0, 1, 1]


def test_reproduced_documents_need_no_extraction_of_the_model_before(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    alone = [BuiltBenchmark("b", {"digest": "d"}, paths)]
    assert read_reproduced_documents(MODELS, alone, paths).reason == (
        "after was not searched for passages of b. Search for them: corpus-audit extract --model after --benchmark b"
    )
    extract(tmp_path, "after", {"two": 0.1, "one": 0.2, "none": 0.0, "short": None, "held": 0.3})
    found = read_reproduced_documents(MODELS, alone, paths)
    assert (found.reason, list(found.names), found.reproduced.tolist()) == (
        *(None, ["two", "one", "none"]),
        [True, True, False],
    )
    other = BuiltBenchmark("other", {"digest": "o"}, paths)
    assert "held" in read_reproduced_documents(MODELS, [*alone, other], paths).names, (
        "all of a benchmark are to be forgotten"
    )
    with_retrained = {**MODELS, "retrained": named("retrained")}
    assert read_reproduced_documents(with_retrained, alone, paths).reproduced.tolist() == [True, True, False]
    extract(tmp_path, "retrained", {"two": 0.1, "one": 0.0, "none": 0.9})
    assert read_reproduced_documents(with_retrained, alone, paths).reproduced.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (
            {},
            None,
            "after was not searched for passages of b. Search for them: corpus-audit extract --model after "
            "--benchmark b",
        ),
        ({}, {"tokens": 20}, "the extractions of b used different windows for the models"),
        ({}, {"model_fingerprint": "of an earlier model"}, "extraction of after on b was run with other weights"),
        (
            {},
            {"benchmark_digest": "an earlier one"},
            "extraction of after on b was run on another build of the benchmark",
        ),
        (
            {"upstream": SMALL},
            {},
            "the extractions used different reference models, or only some of them used a reference model",
        ),
        ({"upstream": SMALL}, {"upstream": SMALL}, None),
        ({"share": None}, {"share": None}, "no document is as long as a window"),
    ],
)
def test_the_reason_why_documents_cannot_be_compared(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any] | None, reason: str | None
) -> None:
    for model, options in (("before", before), ("after", after)):
        if options is not None:
            extract(tmp_path, model, {"one": options.pop("share", 0.5)}, **options)
    assert documents(tmp_path).reason == reason
