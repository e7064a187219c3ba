"""The table of split quality: measures of both sides without a model."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from made_rows import example, examples_table

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.splits import split_quality as module
from audit_pipeline.splits.evaluation_split import compute_assessed_split, select_evaluation_texts
from audit_pipeline.tables import EXAMPLES, SPLIT_QUALITY, description_of, digest

WIKIMIA = Path(__file__).parents[3] / "shared" / "benchmarks" / "wikimia" / "WikiMIA_length64.jsonl"


MEASURES = {
    *("blind_auroc", "worst_blind_auroc", "texts", "groups", "texts_of_collection", "uneven_collections"),
    *(f"ngram_overlap_{name}" for name in ("mean", "max", "above_20", "above_80")),
    *("near_duplicate_pairs", "near_duplicate_texts", "near_duplicate_max", "texts_published", "texts_with_year"),
    *("years_mentioned", "latest_year_mentioned", "length_mean", "length_std", "length_min", "length_max"),
    *("language_share", "language_mismatch"),
}


MEASURE_OF_ALL = ("blind_auroc", "words")


def split_quality(examples, design, language, *, matched=False, **how):
    assessed = compute_assessed_split(examples, design, language, matched=matched)
    texts = select_evaluation_texts(examples, str.split)
    return module.measure_split_quality(texts, assessed, language, run_id="run", **how)


def table(texts, labels, **columns):
    """Return the examples of one benchmark, with one group per text."""
    rows = []
    for index, (text, label) in enumerate(zip(texts, labels, strict=True)):
        own = {name: values[index] for name, values in columns.items()}
        published = date(2020 + index % 2, 1, 1)
        defaults = {"text": text, "label": label, "published": published, "collection": "one", "group": f"g{index}"}
        rows.append(example(f"{index:05d}", words=len(text.split()), **{**defaults, **own}))
    return examples_table(rows)


def words(first, count):
    return " ".join(f"w{index}" for index in range(first, first + count))


def made(n=220, seed=0):
    generator = np.random.default_rng(seed)
    texts = [" ".join(f"word{index}" for index in generator.integers(0, 200, 20)) for _ in range(n)]
    return texts, [index % 2 for index in range(n)]


def values(quality):
    rows = quality.to_pylist()
    found = {(row["measure"], row["part"], row["side"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def small(**columns):
    """Return two members and two non-members. The first texts of both sides share 10 of 12 consecutive words."""
    texts = [words(0, 12), words(100, 14), words(2, 12), words(300, 3)]
    return table(texts, [1, 1, 0, 0], **columns)


def test_a_small_split_by_hand():
    found = values(
        split_quality(small(collection=["a", "b", "a", "a"]), "temporal", "en", near_duplicate_threshold=0.5)
    )

    def value(*key):
        return found[key]["value"]

    # 12 words have six 7-grams. A shift by two words shares four. The text of three words has no 7-gram.
    assert value("ngram_overlap_mean", "7", "nonmembers") == pytest.approx(4 / 6)
    assert found["ngram_overlap_mean", "7", "nonmembers"]["n"] == 1
    assert "1 texts of fewer than 7 words are skipped" in found["ngram_overlap_mean", "7", "nonmembers"]["method"]
    assert value("ngram_overlap_mean", "7", "members") == pytest.approx((4 / 6 + 0) / 2)
    assert value("ngram_overlap_max", "7", "members") == pytest.approx(4 / 6)
    assert value("ngram_overlap_above_20", "7", "members") == 0.5
    assert value("ngram_overlap_above_80", "7", "members") == 0.0
    assert value("ngram_overlap_mean", "13", "nonmembers") is None
    assert found["ngram_overlap_mean", "13", "nonmembers"]["method"] == "not defined: no text has 13 words"
    # Each text has 8 shingles. They share 6 of 10.
    assert value("near_duplicate_pairs", "all", "between") == 1
    assert value("near_duplicate_max", "all", "between") == pytest.approx(6 / 10)
    assert value("near_duplicate_texts", "all", "members") == 1
    assert value("near_duplicate_pairs", "different groups", "members") == 0
    assert value("uneven_collections", "all", "both") == 2
    assert value("texts_of_collection", "b", "members") == 1
    assert value("texts_published", "2020-01", "members") == 1
    assert value("length_mean", "words", "members") == 13
    assert value("length_std", "words", "members") == 1
    assert value("groups", "all", "nonmembers") == 2
    assert value("blind_auroc", "words", "both") is None
    assert "there are 4 labelled examples, but 200 are required" in found["blind_auroc", "words", "both"]["method"]


def test_pairs_within_a_side_are_counted_by_group():
    text = words(0, 12)
    found = values(
        split_quality(
            table([text, text, text, words(50, 12)], [1, 1, 1, 0], group=["a", "a", "b", "c"]), "temporal", "en"
        )
    )
    assert found["near_duplicate_pairs", "one group", "members"]["value"] == 1
    assert found["near_duplicate_pairs", "different groups", "members"]["value"] == 2
    assert found["near_duplicate_pairs", "all", "between"]["value"] == 0


def test_years_and_languages_of_each_side():
    english = "The council met in 2019 and again in 2021 to discuss the budget of the coming year."
    german = "Der Rat tagte am Dienstag, um über den Haushalt des kommenden Jahres zu beraten."
    found = values(split_quality(table([english, german, english], [1, 0, 1]), "temporal", "en"))
    assert found["texts_with_year", "all", "members"]["value"] == 1
    assert found["years_mentioned", "all", "members"]["value"] == 2
    assert found["latest_year_mentioned", "all", "members"]["value"] == 2021
    assert found["latest_year_mentioned", "all", "nonmembers"]["value"] is None
    assert found["language_mismatch", "all", "members"]["value"] == 0
    assert found["language_mismatch", "all", "nonmembers"]["value"] == 1
    assert found["language_share", "de", "nonmembers"]["value"] == 1


def test_the_control_of_words_decides_and_the_highest_control_is_reported():
    texts, labels = made()
    # Every text mentions a different year. No other text has this word, but the number reveals the side.
    texts = [f"{text} {1600 + index + 250 * (1 - labels[index])}" for index, text in enumerate(texts)]
    quality = split_quality(table(texts, labels), "temporal", "en")
    found = values(quality)
    assert found["worst_blind_auroc", "dates", "both"]["value"] > 0.8
    assert found["worst_blind_auroc", "dates", "both"]["verdict"] == "separable without a model"
    verdict = quality["split_verdict"][0].as_py()
    assert verdict == found["blind_auroc", "words", "both"]["verdict"] != "separable without a model"


def test_the_table_has_every_measure():
    quality = split_quality(table(*made()), "temporal", "en")
    assert set(quality["measure"].to_pylist()) == MEASURES
    assert not any("drawn" in method for method in quality["method"].to_pylist())
    assert quality.schema == SPLIT_QUALITY.schema
    assert all(description_of(field) for field in SPLIT_QUALITY.schema)


@pytest.mark.parametrize("labels", [[1, 1, 1], [0, 0, 0], [None, None, None], [1, None, None]])
def test_without_two_sides_the_table_has_reasons(labels):
    quality = split_quality(table([words(0, 14), words(20, 14), words(40, 14)], labels), "temporal", "en")
    found = values(quality)
    assert set(quality["split_verdict"].to_pylist()) == {"undetermined"}
    assert "worst_blind_auroc" not in quality["measure"].to_pylist()
    for key in (("blind_auroc", "words", "both"), ("ngram_overlap_mean", "7", "nonmembers")):
        assert found[key]["value"] is None
    assert "not computed" in found["blind_auroc", "dates", "both"]["method"]
    assert "contains no" in found["near_duplicate_pairs", "all", "between"]["method"]
    side = {1: "members", 0: "nonmembers", None: "unlabelled"}[labels[-1]]
    assert found["texts", "all", side]["value"] == labels.count(labels[-1])
    assert found["length_mean", "words", side]["value"] == 14


def test_the_calibration_split_is_left_out():
    split = ["evaluation", "calibration", "evaluation", "evaluation"]
    found = values(split_quality(small(split=split), "temporal", "en"))
    assert found["texts", "all", "members"]["value"] == 1
    everything = values(split_quality(small(split=["calibration"] * 4), "temporal", "en"))
    assert "contains no members and no nonmembers" in everything["uneven_collections", "all", "both"]["method"]


def test_wrong_tables_are_refused():
    with pytest.raises(DataError, match="belong to 2 benchmarks"):
        split_quality(small(benchmark=["a", "a", "b", "b"]), "temporal", "en")
    with pytest.raises(DataError, match="belong to 0 benchmarks"):
        split_quality(EXAMPLES.empty_table(), "temporal", "en")
    with pytest.raises(DataError, match="twice"):
        split_quality(small(example_id=["1", "1", "2", "3"]), "temporal", "en")
    with pytest.raises(DataError, match="neither 1"):
        split_quality(
            small().set_column(
                EXAMPLES.schema.get_field_index("label"), EXAMPLES.field("label"), pa.array([1, 2, 0, 0], pa.int8())
            ),
            "temporal",
            "en",
        )
    with pytest.raises(DataError, match="group"):
        split_quality(small().drop_columns("group"), "temporal", "en")
    with pytest.raises(ConfigError, match="design"):
        split_quality(small(), "guessed", "en")


def test_large_sides_are_sampled_and_counted_whole():
    texts, labels = made(300)
    labels = [int(index < 200) for index in range(300)]
    examples = table(texts, labels, group=[f"g{index // 2}" for index in range(300)])
    quality = split_quality(examples, "temporal", "en", most_per_side=120)
    found = values(quality)
    drawn = "measured on 120 of 200 members, drawn at random (seed 0)"
    for key, n in (
        (("blind_auroc", "length", "both"), 220),
        (("ngram_overlap_mean", "7", "members"), 120),
        (("near_duplicate_pairs", "all", "between"), 220),
        (("length_mean", "words", "members"), 120),
        (("language_mismatch", "all", "members"), 120),
        (("years_mentioned", "all", "nonmembers"), 100),
    ):
        assert found[key]["n"] == n
        assert found[key]["method"].endswith(drawn)
    for key, value in (
        (("texts", "all", "members"), 200),
        (("groups", "all", "members"), 100),
        (("texts_of_collection", "one", "members"), 200),
    ):
        assert found[key]["value"] == value
        assert "drawn" not in found[key]["method"]
    words = found["blind_auroc", "words", "both"]
    assert words["n"] == 300, "the control that binds reads all texts, as every evaluation does"
    assert "drawn" not in words["method"]
    dated = [row for (measure, _, side), row in found.items() if (measure, side) == ("texts_published", "members")]
    assert sum(row["value"] for row in dated) == 200
    order = pa.array(np.random.default_rng(2).permutation(300))
    again = split_quality(examples.take(order), "temporal", "en", most_per_side=120)
    assert again.equals(quality)


def test_a_sample_yields_the_same_values_as_its_texts_alone():
    texts, labels = made(300)
    examples = table(texts, labels)
    sampled = split_quality(examples, "temporal", "en", most_per_side=110)
    kept = [
        index
        for side in (0, 1)
        for index in sorted(
            (index for index in range(300) if labels[index] == side),
            key=lambda index: digest(0, "sample", f"{index:05d}"),
        )[:110]
    ]
    alone = split_quality(examples.take(pa.array(sorted(kept))), "temporal", "en")
    measured = [(row["measure"], row["part"], row["side"], row["value"]) for row in sampled.to_pylist()]

    def is_of_sample(measure, part):
        return not measure.startswith(("texts", "groups", "uneven", "worst")) and (measure, part) != MEASURE_OF_ALL

    assert [row for row in measured if is_of_sample(*row[:2])] == [
        (row["measure"], row["part"], row["side"], row["value"])
        for row in alone.to_pylist()
        if is_of_sample(row["measure"], row["part"])
    ]


def test_matched_sides_are_at_best_undetermined():
    # Both sides have the same vocabulary of 12 words.
    generator = np.random.default_rng(0)
    texts = [" ".join(f"w{index}" for index in generator.integers(0, 12, 12)) for _ in range(400)]
    labels = [index % 2 for index in range(400)]
    examples = table(texts, labels)
    assert compute_assessed_split(examples, "temporal", "en").verdict == "mild shift"
    matched = split_quality(examples, "temporal", "en", matched=True)
    assert set(matched["split_verdict"].to_pylist()) == {"undetermined"}
    assert "mild shift" not in matched["verdict"].to_pylist()


@pytest.mark.skipif(not WIKIMIA.exists(), reason="the WikiMIA files are not beside the repository")
def test_wikimia_is_separable_by_the_years_it_mentions():
    rows = [json.loads(line) for line in WIKIMIA.read_text(encoding="utf-8").splitlines()]
    quality = split_quality(table([row["input"] for row in rows], [row["label"] for row in rows]), "temporal", "en")
    found = values(quality)
    assert set(quality["split_verdict"].to_pylist()) == {"separable without a model"}
    assert found["blind_auroc", "dates", "both"]["value"] > 0.95
    assert found["blind_auroc", "length", "both"]["value"] < 0.6
    assert found["near_duplicate_pairs", "all", "between"]["value"] == 0
