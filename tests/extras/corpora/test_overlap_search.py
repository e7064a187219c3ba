"""The search finds every passage of the audited texts in a corpus, and no other passage."""

from __future__ import annotations

import gzip
import json
import random
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_corpora import find_passages, search_texts, write_corpus

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.extras.corpora import search, word_hashes
from audit_pipeline.extras.corpora.config import OverlapRule
from audit_pipeline.extras.corpora.corpus_shards import CorpusShard, ShardedCorpus, open_sharded_corpus
from audit_pipeline.extras.corpora.matching import CorpusDocument
from audit_pipeline.extras.corpora.search import SearchResult, search_corpus, search_shard
from audit_pipeline.extras.corpora.text_index import MAX_PLACES, TextIndex
from audit_pipeline.readers.text_rows import Skipped

N = 6
RULE = OverlapRule("test", N, "any", 0.0, "here")
VOCABULARY = ["alpha", "Bravo", "été", "x1", "naïve", "中", "国", "文", "ﬁne", "OF", "the", "a"]


def disguise(words: Sequence[str], draw: random.Random) -> str:
    """Write words with other case, white space, punctuation and Unicode forms."""
    written = []
    for word in words:
        form = draw.choice([str.upper, str.lower, str.title])(word) if "ﬁ" not in word else word
        written.append(unicodedata.normalize(draw.choice(["NFC", "NFD", "NFKC"]), form))
        written.append(draw.choice([" ", "\n", ", ", " — ", "\t", "... ", "\u00a0", "\r\n"]))
    return "".join(written)


def draw_corpus(draw: random.Random, documents: int, texts: int) -> tuple[list[list[str]], list[list[str]]]:
    """Draw texts, and documents with pieces of them: at either end, overlapping, repeated or cut."""
    drawn_texts = [draw.choices(VOCABULARY, k=draw.randrange(0, 40)) for _ in range(texts)]
    drawn_documents = []
    for _ in range(documents):
        parts: list[str] = []
        for _ in range(draw.randrange(0, 4)):
            planted = draw.choice(drawn_texts)
            first = draw.randrange(0, max(1, len(planted)))
            parts += planted[first : first + draw.randrange(1, 25)] * draw.choice([1, 1, 2])
            parts += draw.choices([*VOCABULARY, "zulu"], k=draw.randrange(0, 3))
        drawn_documents.append(parts)
    return drawn_documents, drawn_texts


def list_passages(result: SearchResult) -> set[tuple[int, int, int, int]]:
    """Return the text, the words [first, end) and the number of documents of each passage."""
    passages = set()
    for kept in result.passages:
        text = int(result.index.find_texts(kept.first))
        offset = int(result.index.first_word[text])
        passages.add((text, kept.first - offset, kept.end - offset, kept.documents))
    return passages


def expect_passages(texts: Sequence[Sequence[str]], documents: Sequence[Sequence[str]]) -> set[tuple[int, ...]]:
    found = enumerate(find_passages(texts, documents, N, MAX_PLACES))
    return {(text, *span, len(places)) for text, passages in found for span, places in passages.items()}


@pytest.mark.parametrize("seed", range(6))
def test_every_passage_and_no_other_is_found(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    documents, texts = draw_corpus(draw, 60, 40)
    disguised = [disguise(words, draw) for words in documents]
    result, *_ = search_texts(tmp_path, disguised, [disguise(words, draw) for words in texts], RULE, shards=3)
    expected = expect_passages(texts, documents)
    assert list_passages(result) == expected
    assert len(expected) > 20


def test_order_of_shards_and_number_of_processes_change_nothing(tmp_path: Path) -> None:
    documents, texts = (list(map(" ".join, drawn)) for drawn in draw_corpus(random.Random(11), 40, 25))
    one, *_ = search_texts(tmp_path / "one", documents, texts, RULE)
    corpus = open_sharded_corpus(str(write_corpus(tmp_path / "many", documents, 7)))
    many = search_corpus(texts, corpus, RULE, processes=2)
    assert list_passages(one) == list_passages(many)
    assert (one.passages.documents_of_run == many.passages.documents_of_run).all()
    first = [[(place.document, place.start) for place in kept.places] for kept in one.passages]
    assert first == [[(place.document, place.start) for place in kept.places] for kept in many.passages]


def test_a_long_document_is_searched_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(5)
    documents, texts = draw_corpus(draw, 60, 30)
    whole = [word for words in documents for word in words]
    monkeypatch.setattr(word_hashes, "BLOCK", 97)
    result, *_ = search_texts(tmp_path, [disguise(whole, draw)], list(map(" ".join, texts)), RULE)
    assert list_passages(result) == expect_passages(texts, [whole])


def test_a_corpus_with_unreadable_files_is_incomplete(tmp_path: Path) -> None:
    text = "alpha beta gamma delta epsilon zeta"
    write_corpus(tmp_path / "corpus", [text], 1)
    (tmp_path / "corpus" / "README.md").write_text("About it.")
    (tmp_path / "corpus" / ".hidden.jsonl").write_text("no JSON")
    (tmp_path / "corpus" / "empty.jsonl").write_text("")
    assert search_corpus([text], open_sharded_corpus(str(tmp_path / "corpus")), RULE).is_complete
    (tmp_path / "corpus" / "more").mkdir()
    (tmp_path / "corpus" / "more" / "rest.jsonl.bz2").write_bytes(b"")
    corpus = open_sharded_corpus(str(tmp_path / "corpus"))
    assert corpus.ignored == ["more/rest.jsonl.bz2"]
    assert not search_corpus([text], corpus, RULE).is_complete


def test_the_positions_of_a_passage(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    text = "One two, three four five six seven."
    document = f"Ünlike e\u0301: {text.upper()} And more."
    (folder / "a.jsonl").write_text(json.dumps({"id": "x", "text": "nothing here"}) + "\n")
    rows = [{"id": f"d{at}", "text": document, "url": "http://x/y"} for at in range(7)]
    (folder / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = search_corpus([text], open_sharded_corpus(str(folder)), RULE)
    (kept,) = result.passages
    assert (kept.first, kept.end, kept.documents) == (0, 7, 7)
    assert [place.document for place in kept.places] == ["d0", "d1", "d2", "d3", "d4"]
    place = kept.places[0]
    assert document[place.start : place.end] == text.upper().removesuffix(".")
    assert (place.shard, place.row, place.url) == (1, 0, "http://x/y")
    assert (place.before, place.after) == ("Ünlike e\u0301:", ". And more.")


def test_a_stopped_search_continues_at_the_next_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents, texts = (list(map(" ".join, drawn)) for drawn in draw_corpus(random.Random(3), 30, 20))
    write_corpus(tmp_path / "corpus", documents, 5)
    corpus = open_sharded_corpus(str(tmp_path / "corpus"))
    whole = search_corpus(texts, corpus, RULE)
    monkeypatch.setattr(search, "CHECKPOINT_SECONDS", 0.0)
    read: list[int] = []

    def stop_at_the_fourth(index: TextIndex, number: int, *others: object) -> object:
        if len(read) == 3:
            raise KeyboardInterrupt
        read.append(number)
        return search_shard(index, number, *others)  # type: ignore[arg-type]

    checkpoint = tmp_path / "partial"
    monkeypatch.setattr(search, "search_shard", stop_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        search_corpus(texts, corpus, RULE, checkpoint=checkpoint)
    read_before, read[:] = list(read), []
    resumed = search_corpus(texts, corpus, RULE, checkpoint=checkpoint)
    assert (read_before, read) == ([0, 1, 2], [3, 4])
    assert list_passages(resumed) == list_passages(whole)
    assert resumed.document_count == whole.document_count
    # Another corpus with the same name is searched from the beginning.
    with (tmp_path / "corpus" / "0.jsonl").open("a") as file:
        file.write(json.dumps({"text": "one more"}) + "\n")
    read[:] = []
    changed = search_corpus(
        texts, open_sharded_corpus(str(tmp_path / "corpus"), only="0*"), RULE, checkpoint=checkpoint
    )
    assert read == [0]
    assert changed.document_count == sum(text.strip() != "" for text in documents[:6]) + 1


def test_an_unreadable_shard_is_named_and_the_others_are_searched(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    text = "alpha beta gamma delta epsilon zeta eta"
    line = json.dumps({"text": text}).encode() + b"\n"
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(line * 500, mtime=0)[:-9])
    (folder / "b.jsonl").write_bytes(b"{broken\n" + line + b'{"text": "\xff"}\n')
    (folder / "c.jsonl.zst").write_bytes(pa.compress(line, "zstd", asbytes=True))
    (folder / "d.txt").write_bytes(b"")
    (folder / "e.txt").write_bytes(f"{text[:16]}\n{text[17:]}".encode())
    result = search_corpus([text, "", "too short"], open_sharded_corpus(str(folder)), RULE)
    problems = {report.name: report.problem for report in result.reports.values()}
    assert "is not a readable .gz file" in str(problems["a.jsonl.gz"])
    assert [problems[name] for name in ("b.jsonl", "c.jsonl.zst", "d.txt", "e.txt")] == [None] * 4
    assert result.reports[1].skipped == 2
    assert not result.is_complete
    [(_, _, _, documents)] = list_passages(result)
    assert documents == result.reports[0].documents + 3


def test_a_shard_that_changes_during_the_search_makes_it_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "alpha beta gamma delta epsilon zeta"
    write_corpus(tmp_path / "corpus", [text, "nothing"], 2)
    corpus = open_sharded_corpus(str(tmp_path / "corpus"))
    path = Path(str(corpus.shards[0].path))
    documents_of = CorpusShard.documents

    def documents_while_it_changes(shard: CorpusShard) -> Iterator[CorpusDocument | Skipped]:
        yield from documents_of(shard)
        if shard.path == path:
            path.write_bytes(path.read_bytes() * 2)

    monkeypatch.setattr(CorpusShard, "documents", documents_while_it_changes)
    result = search_corpus([text], corpus, RULE)
    assert (result.whole_shards, result.is_complete) == (1, False)
    assert "0.jsonl has changed since the search began" in str(result.reports[0].problem)
    assert list_passages(result) == {(0, 0, 6, 1)}, "the read documents count"


def test_searches_without_texts_or_documents_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "some.jsonl").write_text(json.dumps({"text": "some words"}) + "\n")
    with pytest.raises(DataError, match=r"none of the 2 texts has at least 6 words"):
        search_corpus(["", "a b c"], open_sharded_corpus(str(tmp_path / "some.jsonl")), RULE)
    with pytest.raises(DataError, match=r"no document of the corpus .* can be read"):
        search_corpus(["a b c d e f"], open_sharded_corpus(str(tmp_path / "empty.jsonl")), RULE)
    found = search_corpus(["a b c d e f"], open_sharded_corpus(str(tmp_path / "some.jsonl")), RULE)
    assert list_passages(found) == set()
    with pytest.raises(ConfigError, match="neither a file nor a folder nor a corpus"):
        open_sharded_corpus(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="no shard of"):
        open_sharded_corpus(str(tmp_path / "some.jsonl"), only="part-*")


def test_files_of_a_data_set_of_the_hub(tmp_path: Path) -> None:
    text = "alpha beta gamma delta epsilon zeta"
    rows = [{"url": f"http://x/{number}", "text": f"{text} {number}", "language": "en"} for number in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shards = [CorpusShard(name, "commit", None, address=str(tmp_path / name)) for name in ("a.parquet", "b.jsonl")]
    result = search_corpus([text], ShardedCorpus("hub", shards, [0, 1]), RULE)
    (kept,) = result.passages
    assert kept.documents == 6
    assert [(place.shard, place.row, place.url) for place in kept.places] == [
        *((0, number, f"http://x/{number}") for number in range(3)),
        *((1, number, f"http://x/{number}") for number in range(2)),
    ]
    assert result.is_complete
