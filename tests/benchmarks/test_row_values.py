"""Labels in a benchmark's rows: what is said of those that stand for nothing."""

from __future__ import annotations

from audit_pipeline.benchmarks.rows import parse_label


def test_a_label_that_is_a_whole_text_is_not_quoted_whole() -> None:
    """With shifted columns it is the text, which may be in copyright; reasons stand in manifests."""
    reason = f"its label is '{'word ' * 6}…', not 0, 1 or null"
    assert parse_label("word " * 1000) == (None, reason)
    assert parse_label("word " * 1000, {"yes": 1})[1] == reason.replace("0, 1", "yes")
    assert len(str(parse_label(list(range(10_000)))[1])) < 80
    assert parse_label("maybe") == (None, "its label is 'maybe', not 0, 1 or null")
