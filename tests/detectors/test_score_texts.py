import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.detectors import registry
from audit_pipeline.detectors.detector import SCORE_COLUMNS, score_texts
from audit_pipeline.detectors.detector_inputs import StatisticsIndex
from audit_pipeline.tables import SCORES

TEXTS = {"one": [-1.0, -2.0, -3.5], "nothing": [], "two": [-0.25]}
DETECTORS = ("loss", "zlib", "min_k", "min_k_plus_plus")
EXAMPLES = [("d", "two"), ("a", "one"), ("b", "nothing"), ("c", "not cached"), ("e", "one")]


@pytest.fixture
def table(statistics_table):
    index = StatisticsIndex(statistics_table(TEXTS))
    return score_texts(
        [(name, index.find(text)) for name, text in EXAMPLES], registry.select_detectors(DETECTORS, grid=True)
    )


def test_every_text_has_a_row_for_every_setting(table):
    assert table.num_rows == 5 * 42
    assert table["example_id"].to_pylist() == [example_id for example_id, _ in EXAMPLES for _ in range(42)]
    one_text = [(row["detector"], row["parameters"]) for row in table.slice(0, 42).to_pylist()]
    ks = [f'{{"k":{step / 10}{window}}}' for step in range(1, 11) for window in ("", ',"window":3')]
    assert one_text == [
        ("loss", "{}"),
        ("zlib", "{}"),
        *[("min_k", k) for k in ks],
        *[("min_k_plus_plus", k) for k in ks],
    ]


def test_scores_are_those_of_the_detector(table, statistics_table):
    index = StatisticsIndex(statistics_table(TEXTS))
    rows = [row for row in table.to_pylist() if row["example_id"] in "ade"]
    assert {row["status"] for row in rows if row["example_id"] != "d" or "window" not in row["parameters"]} == {"ok"}
    for row in rows:
        detector = registry.get_detector(row["detector"])
        settings = registry.expand_settings(detector, grid=True)
        text = dict(EXAMPLES)[row["example_id"]]
        expected = detector.score(index.find(text), settings)
        assert row["score"] in [outcome.score for outcome in expected]
    by_key = {(row["example_id"], row["detector"], row["parameters"]): row["score"] for row in rows}
    assert by_key["a", "min_k", '{"k":0.2}'] == -3.5
    assert by_key["a", "min_k", '{"k":0.7}'] == -2.75
    assert by_key["d", "loss", "{}"] == -0.25
    assert by_key["a", "zlib", "{}"] == by_key["e", "zlib", "{}"]


def test_texts_without_a_score_have_a_reason(table):
    rows = {row["example_id"]: row for row in table.to_pylist()}
    assert (rows["b"]["score"], rows["b"]["status"]) == (None, "not_applicable")
    assert rows["b"]["reason"] == "the text has no scored token"
    assert (rows["c"]["score"], rows["c"]["status"]) == (None, "failed")
    assert "no token statistics" in rows["c"]["reason"]
    assert rows["a"]["reason"] is None


def test_the_columns_are_those_of_the_contract(table):
    assert table.schema == SCORE_COLUMNS
    assert all(SCORES.field(name).equals(table.schema.field(name)) for name in table.column_names)
    assert set(SCORES.names) - set(table.column_names) == {"model", "benchmark", "is_default", "run_id"}


def test_no_texts_make_an_empty_table():
    table = score_texts([], registry.select_detectors())
    assert table.num_rows == 0
    assert table.schema == SCORE_COLUMNS


@given(
    values=st.lists(st.lists(st.floats(-30, 0, width=32), max_size=12), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_no_score_depends_on_the_order_of_texts_and_settings(text_statistics, values, order):
    texts = [(str(place), text_statistics(one, mean=[-1.0] * len(one))) for place, one in enumerate(values)]
    selection = [(one, settings) for one, settings in registry.select_detectors(grid=True) if not one.needs]
    shuffled = [(one, order.sample(settings, len(settings))) for one, settings in selection]
    plain, turned = score_texts(texts, selection), score_texts(texts[::-1], shuffled[::-1])
    rows = [("example_id", "ascending"), ("detector", "ascending"), ("parameters", "ascending")]
    assert plain.sort_by(rows).equals(turned.sort_by(rows))
