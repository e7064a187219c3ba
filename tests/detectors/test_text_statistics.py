import numpy as np
import pyarrow as pa
import pytest

from audit_pipeline.detectors.detector_inputs import StatisticsIndex
from audit_pipeline.errors import DataError

TEXTS = {"one": [-1.0, -2.0, -3.5], "nothing": [], "two": [-0.25], "three": [-4.0, -8.0]}


def test_a_text_is_found_with_its_own_values(statistics_table):
    index = StatisticsIndex(statistics_table(TEXTS))
    assert len(index) == 4
    for text, values in TEXTS.items():
        found = index.find(text)
        assert found.text == text
        assert len(found) == len(values)
        assert found.logprob.tolist() == values
        assert found.mean.tolist() == [value - 1 for value in values]
        assert found.std.tolist() == [value - 2 for value in values]
        assert found.max_logprob.tolist() == [value - 3 for value in values]
        assert found.token_id.tolist() == list(range(len(values)))
        assert found.argmax_id.tolist() == [1 + place for place in range(len(values))]
        assert found.rank.tolist() == [2 + place for place in range(len(values))]
        assert (found.logprob.dtype, found.rank.dtype) == (np.float32, np.int32)
    assert index.find("never seen") is None


def test_values_are_views_on_the_table(statistics_table):
    table = statistics_table(TEXTS)
    found = StatisticsIndex(table).find("one")
    flat = table["logprob"].chunk(0).values.to_numpy()
    assert np.shares_memory(found.logprob, flat)


@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_slices_and_chunks_keep_their_rows(statistics_table, start):
    table = statistics_table(TEXTS)
    in_chunks = pa.concat_tables([table.slice(start), table.slice(0, start)])
    for text, values in TEXTS.items():
        assert StatisticsIndex(in_chunks).find(text).logprob.tolist() == values
    assert len(StatisticsIndex(table.slice(start))) == 4 - start


def test_large_lists_are_accepted(statistics_table):
    table = statistics_table(TEXTS)
    large = table.set_column(
        table.schema.get_field_index("logprob"), "logprob", table["logprob"].cast(pa.large_list(pa.float32()))
    )
    assert StatisticsIndex(large).find("one").logprob.tolist() == TEXTS["one"]


def test_an_empty_table(statistics_table):
    index = StatisticsIndex(statistics_table({}))
    assert (len(index), index.find("one")) == (0, None)


def test_a_missing_column_is_named(statistics_table):
    with pytest.raises(DataError, match="std"):
        StatisticsIndex(statistics_table(TEXTS).drop_columns(["std"]))


@pytest.mark.parametrize(
    ("values", "words"), [([[-1.0]], "mean and token_id differ in length"), ([[-1.0, None]], "null|nullability")]
)
def test_damaged_lists_are_refused(statistics_table, values, words):
    table = statistics_table({"one": [-1.0, -2.0]})
    wrong = pa.array(values, pa.list_(pa.float32()))
    with pytest.raises((DataError, pa.ArrowInvalid), match=words):
        StatisticsIndex(table.set_column(table.schema.get_field_index("mean"), "mean", wrong))
