"""The division of a file's texts into chunks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.readers.text_rows import TextRow
from audit_pipeline.scoring.file import ChunkLimits, split_texts_into_chunks


@given(
    st.lists(st.integers(1, 60), max_size=40),
    st.integers(1, 8),
    st.integers(1, 100),
)
def test_every_text_is_in_one_chunk_in_order_within_the_limits(lengths: list[int], most: int, characters: int) -> None:
    rows = [TextRow(f"t:{n}", n, "x" * length, {}) for n, length in enumerate(lengths)]
    divided = list(split_texts_into_chunks(rows, ChunkLimits(most, characters)))
    assert [row for chunk in divided for row in chunk] == rows
    for number, chunk in enumerate(divided):
        size = sum(len(row.text) for row in chunk)
        assert 1 <= len(chunk) <= most
        assert size <= characters or len(chunk) == 1
        if number + 1 < len(divided):
            following = divided[number + 1][0]
            assert len(chunk) == most or size + len(following.text) > characters, "as large as may be"
