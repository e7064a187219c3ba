"""Benchmark of the windows of extraction: their speed, the cost of a book, and the misses of the search coarse to fine.

Run by hand: ``python bench/bench_extraction.py [--model smollm2-135m] [--windows 40] [--control memorisation_check]``.

The control must be trained first (``corpus-audit control memorisation_check``). The script measures:

- The speed of the windows' pass, compared with the bare model. The bare model runs the same batches of equal windows,
  and computes the softmax only for the suffix. Ratios are computed within a repeat, and their median is printed.
- The cost of a search from coarse to fine in a book of 100,000 tokens that the control's model has not read. The cost
  is the number of processed tokens, divided by the tokens of the book.
- The windows of the whole grid (every 10 characters) that the control's model reproduces in its members, and the share
  of them that the search from coarse to fine also finds. The costs of both searches are printed, too.

Correctness is tested in tests/extras/extraction/ and tests/golden.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_token_statistics import seconds_of

from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.extras.extraction import PREFIX, SUFFIX, WindowLengths
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.extras.extraction.pair_extraction import read_searched_documents
from audit_pipeline.extras.extraction.search import Search
from audit_pipeline.extras.extraction.window_probabilities import encode_windows_at
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized
from audit_pipeline.models.weights import choose_default_device
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read_documents
from audit_pipeline.tables import KINDS
from audit_pipeline.token_statistics.cached_texts import Caches
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.loading import load_forward_pass
from audit_pipeline.token_statistics.tokens import Window, encode

BOOK_TOKENS = 100_000
A_BATCH = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--windows", type=int, default=40, help="Number of windows of the speed test.")
    parser.add_argument("--repeats", type=int, default=5, help="Number of repeats of the speed test.")
    parser.add_argument("--control", default="memorisation_check", help="Name of a trained control.")
    asked = parser.parse_args()
    paths = DataPaths.from_environment()
    addresses = read_documents(paths, "sotu").column("text").to_pylist()
    model, forward = _load_model(asked.model, paths)
    measure_speed(model, forward, max(addresses, key=len), asked.windows, asked.repeats)
    model, forward = _load_model(f"{asked.control}_exposed", paths)
    measure_book_cost(model, forward, "\n\n".join(addresses))
    [spec] = [one for one in paths.table("examples").iterdir() if one.name.startswith(f"benchmark={asked.control}")]
    texts = read_searched_documents(spec.name.removeprefix("benchmark="), model, paths)
    members, held_out = ([one for one in texts if one.side == side] for side in ("audited", "held_out"))
    measure_misses("texts of the control", model, forward, members)
    among = [
        SearchedDocument(one.name, f"{before.text} {one.text} {behind.text}")
        for one, before, behind in zip(members, held_out, reversed(held_out), strict=False)
    ]
    measure_misses("the same texts between unread texts", model, forward, among)


def _load_model(name: str, paths: DataPaths) -> tuple[TokenizedModel, ForwardPass]:
    model = load_tokenized(resolve_model(name, load_models()), paths)
    return model, load_forward_pass(model, paths, choose_default_device(), print)


def measure_speed(model: TokenizedModel, forward: ForwardPass, text: str, count: int, repeats: int) -> None:
    """Print the tokens per second of the windows' pass and of the bare model, on the same batches."""
    encoded = encode_windows_at(model, text, range(0, 200 * count, 200), WindowLengths(PREFIX, SUFFIX))[:count]
    windows = [
        Window(number, 0, len(one.token_id), one.first_scored, has_start_token=one.start_token_id is not None)
        for number, one in enumerate(encoded)
    ]
    batches = [windows[begin : begin + A_BATCH] for begin in range(0, len(windows), A_BATCH)]
    ids = [
        torch.tensor([[encoded[one.text].start_token_id, *encoded[one.text].token_id.tolist()] for one in batch])
        for batch in batches
    ]

    def ours() -> None:
        for batch in batches:
            forward.begin(encoded, batch, wanted=KINDS["extraction"].statistics)()

    @torch.inference_mode()
    def bare() -> None:
        bare_model: Any = forward.model
        with forward.running():
            for batch in ids:
                hidden = bare_model.base_model(input_ids=batch)[0]
                logits = bare_model.get_output_embeddings()(hidden[:, PREFIX:-1])
                torch.log_softmax(logits.float(), -1).gather(2, batch[:, PREFIX + 1 :, None])

    device = choose_default_device()
    tokens = sum(window.length for window in windows)
    times = [(seconds_of(ours, device), seconds_of(bare, device)) for _ in range(repeats)]
    ratio = statistics.median(theirs / own for own, theirs in times)
    rates = [tokens / statistics.median(column) for column in zip(*times, strict=True)]
    print(f"{len(windows)} windows of {PREFIX} + {SUFFIX} tokens, {model.entry.name}:")
    print(f"  windows' pass {rates[0]:,.0f} tokens/s, bare model {rates[1]:,.0f} tokens/s; ratio {ratio:.3f} (aim 0.9)")


def measure_book_cost(model: TokenizedModel, forward: ForwardPass, text: str) -> None:
    """Print the cost of a search in a text that the model has not read, in passes over the text."""
    [tokens] = encode(model, [text])
    whole = text[: int(tokens.char_end[BOOK_TOKENS - 1])]
    with tempfile.TemporaryDirectory() as folder:
        before = forward.tokens_run
        [found] = Search(
            model,
            [SearchedDocument("book", whole)],
            ExtractionSettings(),
            Caches(DataPaths(Path(folder))),
        ).run(lambda _: forward)
    passes = (forward.tokens_run - before) / BOOK_TOKENS
    print(f"a book of {BOOK_TOKENS:,} tokens: {len(found.windows):,} windows, {passes:.2f} passes (aim 2.5)")
    print(f"  reproduced share of the book: {found.memorisation.covered[0]:.2%}")


def measure_misses(what: str, model: TokenizedModel, forward: ForwardPass, documents: list[SearchedDocument]) -> None:
    """Print the share of the grid's hits that the search from coarse to fine finds, and the costs of both searches."""
    tokens = encode(model, [one.text for one in documents])
    own = sum(len(one.token_id) for one in tokens)
    hits, costs = {}, {}
    for stride in ("chars:10", "coarse-to-fine"):
        with tempfile.TemporaryDirectory() as folder:
            before = forward.tokens_run
            found = Search(model, documents, ExtractionSettings(stride=stride), Caches(DataPaths(Path(folder)))).run(
                lambda _: forward
            )
        costs[stride] = (forward.tokens_run - before) / own
        hits[stride] = {
            (one.document.name, start) for one in found for start in one.windows.start[one.windows.reproduced].tolist()
        }
    grid, fine = hits["chars:10"], hits["coarse-to-fine"]
    print(f"{len(documents)} documents, {what}: the grid of 10 characters reproduces {len(grid)} windows")
    print(f"  coarse to fine finds {len(grid & fine)} of them ({np.divide(len(grid & fine), len(grid)):.2%}; aim 99%)")
    print(f"  passes: grid {costs['chars:10']:.1f}, coarse to fine {costs['coarse-to-fine']:.2f}")


if __name__ == "__main__":
    main()
