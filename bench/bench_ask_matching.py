"""Benchmark of comparing answers with a document: the time per answer, and its growth with the length of the document.

Run by hand: ``OMP_NUM_THREADS=1 python bench/bench_ask_matching.py [--words 100000] [--answers 1000]``.

An answer consists of 300 words of the document. One in twenty words is replaced. The prompt is the 50 words before the
passage. There are three kinds of documents:

- *random*: words that are as frequent as in prose.
- *sentence*: one sentence of ten words, repeated. These documents have no prompts, because a prompt would contain every
  word of the document.
- *word*: one word, repeated, also without prompts.

Each document is also measured at half its length. If the time is linear, building takes half as long, and an answer
takes the same time.

This script measures time. Correctness is tested in tests/.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from audit_pipeline.extras.chat.matching import DocumentMatcher

_ANSWER, _PROMPT, _REPLACED = 300, 50, 15
_SENTENCE = ["the", "miller", "rose", "at", "four", "and", "lit", "the", "old", "lamp"]


def make_document_words(kind: str, size: int) -> list[str]:
    """Return the ``size`` words of a document of a kind: random, sentence or word."""
    if kind == "random":
        ranks = np.random.default_rng(size).zipf(1.3, size) % 20_000
        return [f"w{rank}" for rank in ranks.tolist()]
    sentence = _SENTENCE if kind == "sentence" else _SENTENCE[:1]
    return (sentence * (size // len(sentence) + 1))[:size]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=100_000, help="Number of words of the longer documents.")
    parser.add_argument("--answers", type=int, default=1000, help="Number of answers per document.")
    given = parser.parse_args()
    # The first call builds tables of characters, which later calls use again.
    DocumentMatcher("a first document").measure_answer("é", None, None)
    print(f"{'document':9} {'words':>8} {'build':>8} {'per answer':>10} {'total':>8}")
    for kind in ("random", "sentence", "word"):
        for size in (given.words // 2, given.words):
            words = make_document_words(kind, size)
            text = " ".join(words)
            starts = np.cumsum([0, *(len(word) + 1 for word in words)])
            chosen = np.random.default_rng(1)
            began = time.perf_counter()
            document = DocumentMatcher(text)
            built = time.perf_counter() - began
            for at in chosen.integers(_PROMPT, size - _ANSWER, given.answers).tolist():
                answer = words[at : at + _ANSWER]
                for place in chosen.choice(_ANSWER, _REPLACED, replace=False).tolist():
                    answer[place] = "other"
                prompt = " ".join(words[at - _PROMPT : at]) if kind == "random" else None
                passage = (int(starts[at]), int(starts[at + _ANSWER]))
                assert document.measure_answer(" ".join(answer), prompt, passage).longest_run
            taken = time.perf_counter() - began
            each = (taken - built) / given.answers
            print(f"{kind:9} {size:8,} {built:6.2f} s {each * 1e3:7.2f} ms {taken:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
