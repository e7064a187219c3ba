import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from made_rows import example, examples_table, score, scores_table

from audit_pipeline.detectors import registry
from audit_pipeline.statistics.conformal import compute_joint_q_values
from audit_pipeline.statistics.membership_decisions import compute_decision_tables
from audit_pipeline.tables import (
    CALIBRATION_CHECKS,
    CONTAMINATION_RATES,
    DECISIONS,
    EXAMPLES,
    GROUP_TESTS,
    SCORES,
    Pair,
)

K2, K5 = '{"k":0.2}', '{"k":0.5}'


def benchmark_of(sides, size=2):
    """Return examples of sides (name, label, split, groups, collection), with ``size`` texts per group."""
    rows = []
    for name, label, split, n_groups, collection in sides:
        for group in range(n_groups):
            own = {"label": label, "split": split, "group": f"{name}{group:03d}", "collection": collection}
            rows += [example(f"{len(rows) + text:016d}", **own) for text in range(size)]
    return examples_table(rows)


def scores_of(examples, detector="loss", parameters="{}", seed=1, shift=4.0, model="m"):
    generator = np.random.default_rng(seed)
    default = registry.is_default(detector, parameters)
    own = {"detector": detector, "parameters": parameters, "is_default": default, "model": model}
    return scores_table(
        score(row["example_id"], float(generator.normal() + shift * (row["label"] == 1)), **own)
        for row in examples.to_pylist()
    )


def run(scores, examples, **how):
    how = {"claim_level": "screening only", **how}
    return compute_decision_tables(scores, examples, Pair("b", "m"), "r2", **how)


SIDES = (
    ("k", 0, "calibration", 60, "c"),
    ("l", 1, "calibration", 30, "c"),
    ("n", 0, "evaluation", 10, "c"),
    ("o", 1, "evaluation", 10, "d"),
    ("u", None, "evaluation", 5, "d"),
)
EXAMPLES_TABLE = benchmark_of(SIDES)
SCORES_TABLE = pa.concat_tables([scores_of(EXAMPLES_TABLE), scores_of(EXAMPLES_TABLE, "min_k", K2, seed=2)])
# Where nothing is unknown, every evaluated text is asked about.
LABELLED = EXAMPLES_TABLE.filter(pc.is_valid(EXAMPLES_TABLE["label"]))
LABELLED_SCORES = SCORES_TABLE.filter(pc.is_in(SCORES_TABLE["example_id"], value_set=LABELLED["example_id"]))


def test_the_tables_have_the_declared_columns_and_rows():
    found = run(SCORES_TABLE, EXAMPLES_TABLE)
    for table, declared, rows in (
        (found["decisions"], DECISIONS, 2 * 5),
        # of unknown label alone, where there are some
        (found["group_tests"], GROUP_TESTS, 2 * 5),
        # largest_accuracy, marginal and certified at 5%: 5 groups, their collection, the benchmark
        (found["contamination_rates"], CONTAMINATION_RATES, 2 * 3 * 7),
        (found["calibration_checks"], CALIBRATION_CHECKS, 2 * 6),
    ):
        assert table.schema.equals(declared.schema)
        assert table.num_rows == rows
        assert set(table["run_id"].to_pylist()) == {"r2"}


def test_decisions_of_every_rule_and_alpha():
    rows = [row for row in run(SCORES_TABLE, EXAMPLES_TABLE)["decisions"].to_pylist() if row["detector"] == "loss"]
    assert [(row["rule"], row["alpha"], row["status"]) for row in rows] == [
        ("largest_accuracy", None, "ok"),
        ("marginal", 0.05, "ok"),
        ("marginal", 0.01, "refused"),
        ("certified", 0.05, "ok"),
        ("certified", 0.01, "refused"),
    ]
    for row in rows:
        counts = ("n_calibration_groups", "n_calibration_nonmembers", "n_calibration_members", "n_nonmembers")
        assert [row[name] for name in counts] == [60, 120, 60, 20]
        assert row["n_members"] == 20
    scores = dict(zip(SCORES_TABLE["example_id"].to_pylist()[:230], SCORES_TABLE["score"].to_pylist(), strict=False))
    evaluated = [row["example_id"] for row in EXAMPLES_TABLE.to_pylist() if row["group"].startswith("n")]
    for row in rows:
        if row["status"] == "ok":
            assert row["fpr"] == np.mean([scores[one] >= row["threshold"] for one in evaluated])
            assert row["fpr_low"] <= row["fpr"] <= row["fpr_high"]
            assert row["tpr_low"] <= row["tpr"] <= row["tpr_high"]
        else:
            assert row["threshold"] is row["fpr"] is row["tpr_high"] is None
            assert f"needs {99 if row['rule'] == 'marginal' else 299}" in row["reason"]
            assert row["method"].startswith("refused")


def test_groups_are_tested_by_every_detector_and_counted_in_the_ledger():
    rows = run(LABELLED_SCORES, LABELLED)["group_tests"].to_pylist()
    assert {(row["n_tests"], row["n_ledger"], row["n_calibration_groups"]) for row in rows} == {(20, 40, 60)}
    loss, min_k = (sorted((r for r in rows if r["detector"] == d), key=lambda r: r["group"]) for d in ("loss", "min_k"))
    assert {row["group"][0]: (row["label"], row["collection"]) for row in loss} == {
        "n": (0, "c"),
        "o": (1, "d"),
    }
    assert all(row["p_value"] == 1 / 61 for row in loss if row["label"] == 1)
    ledger = compute_joint_q_values([[row["p_value"] for row in one] for one in (loss, min_k)])
    for one, wanted in zip((loss, min_k), ledger, strict=True):
        assert [row["q_ledger"] for row in one] == pytest.approx(wanted.tolist())
    assert all(row["q_bh"] <= row["q_by"] <= row["q_ledger"] or row["q_ledger"] == 1 for row in loss)
    assert {row["n_compared"] for row in rows} == {2}


def test_tests_of_groups_say_which_way_the_scores_run_by_all_labelled_texts():
    """min_k has the wrong sign. Its groups are tested as before, with the direction of the labelled texts."""
    turned = SCORES_TABLE.set_column(
        SCORES_TABLE.schema.get_field_index("score"),
        SCORES.field("score"),
        pc.if_else(
            pc.equal(SCORES_TABLE["detector"], "min_k"), pc.negate(SCORES_TABLE["score"]), SCORES_TABLE["score"]
        ),
    )
    rows = run(turned, EXAMPLES_TABLE)["group_tests"].to_pylist()
    assert {(row["detector"], row["direction"]) for row in rows} == {("loss", "training"), ("min_k", "opposite")}
    without = EXAMPLES_TABLE.filter(pc.fill_null(pc.not_equal(EXAMPLES_TABLE["label"], 1), True))
    scores = SCORES_TABLE.filter(pc.is_in(SCORES_TABLE["example_id"], value_set=without["example_id"]))
    assert {row["direction"] for row in run(scores, without)["group_tests"].to_pylist()} == {None}, "no member is known"


def test_if_some_labels_are_unknown_only_these_texts_are_audited():
    found = run(SCORES_TABLE, EXAMPLES_TABLE)
    tests = found["group_tests"].to_pylist()
    assert {row["group"][0] for row in tests} == {"u"}
    assert {(row["label"], row["n_tests"], row["n_ledger"]) for row in tests} == {(None, 5, 10)}
    rates = found["contamination_rates"].to_pylist()
    assert {(row["unit"], row["n_texts"]) for row in rates} == {("group", 2), ("collection", 10), ("benchmark", 10)}


def test_rates_of_groups_collections_and_the_benchmark():
    rows = [r for r in run(LABELLED_SCORES, LABELLED)["contamination_rates"].to_pylist() if r["detector"] == "loss"]
    assert {(row["rule"], row["alpha"]) for row in rows} == {
        ("largest_accuracy", None),
        ("marginal", 0.05),
        ("certified", 0.05),
    }
    here = {(row["unit"], row["name"]): row for row in rows if row["rule"] == "largest_accuracy"}
    assert here["group", "o003"]["n_texts"] == 2
    assert "this one group differs" in here["group", "o003"]["assumption"]
    assert "this one group" not in here["collection", "d"]["assumption"]
    assert (here["collection", "c"]["n_texts"], here["collection", "d"]["n_groups"]) == (20, 10)
    whole = here["benchmark", "b"]
    assert (whole["n_texts"], whole["n_groups"], whole["status"]) == (40, 20, "ok")
    assert whole["corrected_low"] <= 0.5 <= whole["corrected_high"]
    assert whole["flagged"] == whole["n_flagged"] / 40
    assert sum(row["n_flagged"] for (unit, _), row in here.items() if unit == "group") == whole["n_flagged"]


def test_without_calibration_members_the_flagged_share_stands_alone():
    examples = benchmark_of([side for side in SIDES if side[0] in "ku"])
    found = run(scores_of(examples), examples)
    rows = found["contamination_rates"].to_pylist()
    assert {row["rule"] for row in rows} == {"marginal", "certified"}
    assert {row["status"] for row in rows} == {"refused"}
    assert all("no calibration members" in row["reason"] and row["corrected"] is None for row in rows)
    assert found["decisions"].to_pylist()[0]["reason"].startswith("there are no calibration members")
    assert {row["tpr"] for row in found["decisions"].to_pylist()} == {None}


def test_without_calibration_nonmembers_only_refusals_are_left():
    for sides in ([side for side in SIDES if side[0] != "k"], [side for side in SIDES if side[0] in "nou"]):
        examples = benchmark_of(sides)
        found = run(scores_of(examples), examples)
        assert {row["status"] for row in found["decisions"].to_pylist()} == {"refused"}
        assert found["decisions"].num_rows == 5
        for table in (found["group_tests"], found["contamination_rates"], found["calibration_checks"]):
            assert table.num_rows == 0


def test_only_default_settings_and_ok_scores_of_the_pair_count():
    failed = scores_of(EXAMPLES_TABLE, "zlib").to_pylist()
    for row in failed:
        row.update(score=None, status="failed", reason="because")
    table = pa.concat_tables(
        [
            SCORES_TABLE,
            scores_of(EXAMPLES_TABLE, "min_k", K5),
            scores_of(EXAMPLES_TABLE, "min_k_plus_plus", K2, model="another"),
            pa.Table.from_pylist(failed, schema=SCORES.schema),
        ]
    )
    found = run(table, EXAMPLES_TABLE)
    settings = {(row["detector"], row["parameters"]) for row in found["decisions"].to_pylist()}
    assert settings == {("loss", "{}"), ("min_k", K2), ("zlib", "{}")}
    assert {row["detector"] for row in found["group_tests"].to_pylist()} == {"loss", "min_k"}
    assert {row["n_nonmembers"] for row in found["decisions"].to_pylist() if row["detector"] == "zlib"} == {0}
    of_benchmark = registry.mark_defaults(table.drop_columns("is_default"), {"min_k": {"k": 0.5}})
    overridden = run(of_benchmark, EXAMPLES_TABLE)
    assert (K5, True) in {(row["parameters"], row["is_default"]) for row in overridden["group_tests"].to_pylist()}


def test_a_group_of_both_labels_has_none_and_one_of_one_text_no_rate():
    examples = LABELLED.to_pylist()
    mixed = [row for row in examples if row["group"] == "n000"]
    mixed[0]["label"] = 1
    lonely = next(row for row in examples if row["group"] == "n001")
    table = pa.Table.from_pylist([row for row in examples if row is not lonely], schema=EXAMPLES.schema)
    found = run(scores_of(table), table)
    tests = {row["group"]: row for row in found["group_tests"].to_pylist()}
    assert (tests["n000"]["label"], tests["n002"]["label"]) == (None, 0)
    assert (tests["n001"]["n_texts"], tests["n001"]["n_compared"]) == (1, 1)
    names = {row["name"] for row in found["contamination_rates"].to_pylist() if row["unit"] == "group"}
    assert "n001" not in names
    assert "n000" in names


def test_the_order_of_rows_is_irrelevant():
    generator = np.random.default_rng(0)
    first = run(SCORES_TABLE, EXAMPLES_TABLE)
    second = run(
        SCORES_TABLE.take(generator.permutation(SCORES_TABLE.num_rows)),
        EXAMPLES_TABLE.take(generator.permutation(EXAMPLES_TABLE.num_rows)),
    )
    for name in first:
        assert first[name].equals(second[name])


def test_evaluation_never_chooses_a_threshold():
    changed = SCORES_TABLE.to_pylist()
    evaluated = {row["example_id"] for row in EXAMPLES_TABLE.to_pylist() if row["split"] == "evaluation"}
    for row in changed:
        if row["example_id"] in evaluated:
            row["score"] += 100
    before = run(SCORES_TABLE, EXAMPLES_TABLE)["decisions"]
    after = run(pa.Table.from_pylist(changed, schema=SCORES.schema), EXAMPLES_TABLE)["decisions"]
    assert before["threshold"].equals(after["threshold"])
    assert not before["fpr"].equals(after["fpr"])
