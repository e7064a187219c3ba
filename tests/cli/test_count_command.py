"""`corpus-audit count`: what is counted, and what cannot be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli_results import error_of, texts_file, told
from made_workspace import (
    Workspace,
)

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")


def test_count_says_what_it_counted(workspace: Workspace, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.jsonl").write_text('{"text": "the boats", "n": 1}\n{broken\n')
    (corpus / "b.txt").write_text("<s> the boats </s>\n")
    (corpus / "c.epub").write_bytes(b"a book")
    (corpus / "README.md").write_text("no part of it")
    result = workspace.run("count", "--corpus", corpus, "--tokenizer", "tiny", "--out", tmp_path / "f.parquet")
    tokenizer = workspace.model("tiny").tokenizer
    special = tokenizer.special_ids
    encoded = tokenizer.encode(["the boats", "<s> the boats </s>"], add_special_tokens=True)
    ids = [one for text in encoded for one in text.ids]
    expected = Counter(one for one in ids if one not in special)
    assert f": {sum(expected.values())} tokens in 2 texts, {len(expected)} distinct tokens" in told(result)
    assert "1 row(s) skipped:" in result.stderr
    assert "a.jsonl:2: broken JSON" in result.stderr
    assert f"1 file(s) in {corpus} were skipped, because their format cannot be read: c.epub" in result.stderr
    rows = pq.read_table(tmp_path / "f.parquet").to_pylist()
    assert {row["token_id"]: row["count"] for row in rows if row["count"]} == expected


def test_unusable_corpora_and_tokenizers_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    for corpus, tokenizer, message in (
        (tmp_path / "nowhere", "tiny", "no such file or folder"),
        (tmp_path / "nothing", "tiny", "contains no readable file"),
        (texts_file(tmp_path, "a text"), "tinny", "did you mean tiny?"),
    ):
        out = tmp_path / "f.parquet"
        assert message in error_of(workspace.run("count", "--corpus", corpus, "--tokenizer", tokenizer, "--out", out))
        assert not out.exists()
