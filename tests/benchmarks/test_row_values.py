"""Labels in a benchmark's rows: what is said of those that stand for nothing."""

from __future__ import annotations

from audit_pipeline.benchmarks.rows import label_of


def test_a_label_that_is_a_whole_text_is_not_quoted_whole() -> None:
    """With shifted columns it is the text, which may be in copyright; reasons stand in manifests."""
    reason = f"its label is '{'word ' * 6}…', not 0, 1 or null"
    assert label_of("word " * 1000) == (None, reason)
    assert label_of("word " * 1000, {"yes": 1})[1] == reason.replace("0, 1", "yes")
    assert len(str(label_of(list(range(10_000)))[1])) < 80
    assert label_of("maybe") == (None, "its label is 'maybe', not 0, 1 or null")
