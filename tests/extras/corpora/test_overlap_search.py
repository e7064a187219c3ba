"""Every passage of the audited texts that stands in a corpus, and no other, against a search word by word."""

from __future__ import annotations

import gzip
import json
import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
Span = tuple[int, int, int]
"""A passage: its first and its last character in a text, and how many documents hold it."""


def brute_force(texts: Sequence[str], documents: Sequence[str], n: int) -> dict[int, set[Span]]:
    """By the definition: words by a regular expression, every pair of places compared word by word."""
    of_texts = [words_of(text) for text in texts]
    places = defaultdict(int)
    for words in of_texts:
        for at in range(len(words) - n + 1):
            places[tuple(word for word, *_ in words[at : at + n])] += 1
    wanted = {run for run, count in places.items() if count <= MAX_PLACES}
    found: dict[int, dict[tuple[int, int], set[int]]] = defaultdict(lambda: defaultdict(set))
    for number, document in enumerate(documents):
        words = [word for word, *_ in words_of(document)]
        for text, own in enumerate(of_texts):
            for first, end in common(own, words, n, wanted):
                found[text][first, end].add(number)
    return {
        text: {
            (of_texts[text][first][1], of_texts[text][end - 1][2], len(holders))
            for (first, end), holders in spans.items()
            if not any((a, b) != (first, end) and a <= first and end <= b for a, b in spans)
        }
        for text, spans in found.items()
    }


def words_of(text: str) -> list[tuple[str, int, int]]:
    """Words of a text with their places, cluster by cluster."""
    clusters = [match.span() for match in re.finditer(r"(?s).[\u0300-\u036f]*", text)]
    pieces = [(unicodedata.normalize("NFKC", text[a:b]).lower(), a, b) for a, b in clusters]
    letters = [(letter, a, b) for piece, a, b in pieces for letter in piece]
    found: list[tuple[str, int, int]] = []
    open_word = False
    for letter, a, b in letters:
        if "\u4e00" <= letter <= "\u9fff":
            found.append((letter, a, b))
            open_word = False
        elif not (letter.isalnum() or unicodedata.category(letter)[0] == "M"):
            open_word = False
        elif open_word:
            word, begin, _ = found[-1]
            found[-1] = (word + letter, begin, b)
        else:
            found.append((letter, a, b))
            open_word = True
    return found


def common(
    own: list[tuple[str, int, int]], words: list[str], n: int, wanted: set[tuple[str, ...]]
) -> set[tuple[int, int]]:
    """The longest stretches [first, end) of a text that stand in a document, out of runs that are looked for."""
    runs = {
        (q, p)
        for q in range(len(own) - n + 1)
        for p in range(len(words) - n + 1)
        if own[q][0] == words[p]
        and [word for word, *_ in own[q : q + n]] == words[p : p + n]
        and tuple(words[p : p + n]) in wanted
    }
    found = set()
    for q, p in runs:
        if (q - 1, p - 1) not in runs:
            length = 0
            while (q + length, p + length) in runs:
                length += 1
            found.add((q, q + length - 1 + n))
    return found


VOCABULARY = ["alpha", "Bravo", "été", "x1", "naïve", "中", "国", "文", "ﬁne", "OF", "the", "a"]


def disguise(words: Sequence[str], draw: random.Random) -> str:
    """The same words with other case, breaks, punctuation and Unicode forms."""
    written = []
    for word in words:
        form = draw.choice([str.upper, str.lower, str.title])(word) if "ﬁ" not in word else word
        written.append(unicodedata.normalize(draw.choice(["NFC", "NFD", "NFKC"]), form))
        written.append(draw.choice([" ", "\n", ", ", " — ", "\t", "... ", "\u00a0", "\r\n"]))
    return "".join(written)


def corpus_with_plants(draw: random.Random, documents: int, texts: int) -> tuple[list[str], list[str]]:
    """Random texts, and documents in which pieces of them stand: at either end, overlapping, repeated, cut."""
    of_texts = [draw.choices(VOCABULARY, k=draw.randrange(0, 40)) for _ in range(texts)]
    of_documents = []
    for _ in range(documents):
        parts: list[str] = []
        for _ in range(draw.randrange(0, 4)):
            planted = draw.choice(of_texts)
            first = draw.randrange(0, max(1, len(planted)))
            parts += planted[first : first + draw.randrange(1, 25)] * draw.choice([1, 1, 2])
            parts += draw.choices([*VOCABULARY, "zulu"], k=draw.randrange(0, 3))
        of_documents.append(disguise(parts, draw))
    return of_documents, [disguise(words, draw) for words in of_texts]


def write_corpus(folder: Path, documents: Sequence[str], shards: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    cuts = [len(documents) * number // shards for number in range(shards + 1)]
    for number, (begin, end) in enumerate(pairwise(cuts)):
        lines = [
            json.dumps({"id": f"d{at}", "text": documents[at], "url": f"http://x/{at}"}) for at in range(begin, end)
        ]
        (folder / f"shard-{number}.jsonl").write_text("\n".join(lines) + "\n")


def spans_of(result: SearchResult) -> dict[int, set[Span]]:
    index = result.index
    found: dict[int, set[Span]] = defaultdict(set)
    for kept in result.passages:
        text = int(index.find_texts(kept.first))
        found[text].add((int(index.starts[kept.first]), int(index.ends[kept.end - 1]), kept.documents))
    return dict(found)


@pytest.mark.parametrize("seed", range(6))
def test_every_passage_and_no_other_is_found(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    documents, texts = corpus_with_plants(draw, 60, 40)
    write_corpus(tmp_path / "corpus", documents, 3)
    result = search_corpus(texts, open_sharded_corpus(str(tmp_path / "corpus")), RULE)
    expected = brute_force(texts, [text for text in documents if text.strip()], N)
    assert spans_of(result) == expected
    assert sum(map(len, expected.values())) > 20


def test_order_of_shards_and_number_of_processes_change_nothing(tmp_path: Path) -> None:
    draw = random.Random(11)
    documents, texts = corpus_with_plants(draw, 40, 25)
    write_corpus(tmp_path / "one", documents, 1)
    write_corpus(tmp_path / "many", documents, 7)
    one = search_corpus(texts, open_sharded_corpus(str(tmp_path / "one")), RULE)
    many = search_corpus(texts, open_sharded_corpus(str(tmp_path / "many")), RULE, processes=2)
    assert spans_of(one) == spans_of(many)
    assert (one.passages.documents_of_run == many.passages.documents_of_run).all()
    first = [[(place.document, place.start) for place in kept.places] for kept in one.passages]
    assert first == [[(place.document, place.start) for place in kept.places] for kept in many.passages]


def test_a_long_document_is_searched_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(5)
    documents, texts = corpus_with_plants(draw, 60, 30)
    whole = ["\n".join(documents)]
    expected = brute_force(texts, whole, N)
    monkeypatch.setattr(word_hashes, "BLOCK", 97)
    write_corpus(tmp_path / "corpus", whole, 1)
    assert spans_of(search_corpus(texts, open_sharded_corpus(str(tmp_path / "corpus")), RULE)) == expected


def test_files_that_are_not_read_make_a_corpus_incomplete(tmp_path: Path) -> None:
    text = "alpha beta gamma delta epsilon zeta"
    write_corpus(tmp_path / "corpus", [text], 1)
    (tmp_path / "corpus" / "README.md").write_text("About it.")
    (tmp_path / "corpus" / ".hidden").write_text("")
    (tmp_path / "corpus" / "empty.jsonl").write_text("")
    assert search_corpus([text], open_sharded_corpus(str(tmp_path / "corpus")), RULE).is_complete
    (tmp_path / "corpus" / "more").mkdir()
    (tmp_path / "corpus" / "more" / "rest.jsonl.bz2").write_bytes(b"")
    corpus = open_sharded_corpus(str(tmp_path / "corpus"))
    assert corpus.ignored == ["more/rest.jsonl.bz2"]
    assert not search_corpus([text], corpus, RULE).is_complete


def test_where_a_passage_stands(tmp_path: Path) -> None:
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


def test_a_stopped_search_goes_on_at_the_next_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents, texts = corpus_with_plants(random.Random(3), 30, 20)
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
    assert spans_of(resumed) == spans_of(whole)
    assert resumed.document_count == whole.document_count
    # Another corpus under the same name begins anew.
    with (tmp_path / "corpus" / "shard-0.jsonl").open("a") as file:
        file.write(json.dumps({"text": "one more"}) + "\n")
    read[:] = []
    changed = search_corpus(
        texts, open_sharded_corpus(str(tmp_path / "corpus"), only="shard-0*"), RULE, checkpoint=checkpoint
    )
    assert read == [0]
    assert changed.document_count == sum(text.strip() != "" for text in documents[:6]) + 1


def test_a_shard_that_cannot_be_read_is_named_and_the_others_go_on(tmp_path: Path) -> None:
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
    ((_, _, documents),) = spans_of(result)[0]
    assert documents == result.reports[0].documents + 3


def test_a_shard_that_changes_while_it_is_read_was_not_read_whole(
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
    assert "shard-0.jsonl has changed since the search began" in str(result.reports[0].problem)
    assert spans_of(result) == {0: {(0, len(text), 1)}}, "what was read counts"


def test_nothing_to_look_for_and_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "some.jsonl").write_text(json.dumps({"text": "some words"}) + "\n")
    with pytest.raises(DataError, match=r"none of the 2 texts has at least 6 words"):
        search_corpus(["", "a b c"], open_sharded_corpus(str(tmp_path / "some.jsonl")), RULE)
    with pytest.raises(DataError, match=r"no document of the corpus .* can be read"):
        search_corpus(["a b c d e f"], open_sharded_corpus(str(tmp_path / "empty.jsonl")), RULE)
    found = search_corpus(["a b c d e f"], open_sharded_corpus(str(tmp_path / "some.jsonl")), RULE)
    assert spans_of(found) == {}
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
