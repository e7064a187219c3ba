"""Versions of tables: a digest of their content, regardless of row order and run."""

from __future__ import annotations

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.store.integrity import table_version

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.one_of(st.none(), st.text(max_size=5)),
            "score": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            "run_id": st.text(max_size=3),
        }
    ),
    max_size=6,
)
SCHEMA = pa.schema([("name", pa.string()), ("score", pa.float64()), ("run_id", pa.string())])


def table(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@given(ROWS, st.randoms(use_true_random=False))
def test_the_version_ignores_row_order_and_run(rows: list[dict[str, object]], chance: random.Random) -> None:
    shuffled = [{**row, "run_id": "another"} for row in rows]
    chance.shuffle(shuffled)
    assert table_version(table(rows)) == table_version(table(shuffled))


@given(ROWS.filter(bool), st.data())
def test_the_version_changes_with_every_value(rows: list[dict[str, object]], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(rows) - 1))
    changed = [dict(row) for row in rows]
    changed[place]["name"] = f"{changed[place]['name']} changed"
    assert table_version(table(rows)) != table_version(table(changed))
    assert table_version(table(rows)) != table_version(table([*rows, rows[place]])), "a row more is another table"


def test_the_version_distinguishes_null_from_the_text_none() -> None:
    first, second = ({"name": name, "score": 1.0, "run_id": "r"} for name in (None, "None"))
    assert table_version(table([first])) != table_version(table([second]))
