"""A tiny model that was trained on one passage, and documents with and without the passage."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from tiny_models import CONTEXT, SENTENCES, forward_of, save_model, tokenized
from transformers import AutoModelForCausalLM

from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.extras.extraction.search import Search
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.cached_texts import Caches
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.tokens import encode

PASSAGE = " ".join([SENTENCES[0], SENTENCES[2], SENTENCES[5], SENTENCES[1]])
WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})


def filler(words: int, seed: int) -> str:
    """Return random words in random order."""
    return " ".join(random.Random(seed).choices(WORDS, k=words))


DOCUMENTS = [
    SearchedDocument("planted", f"{filler(80, 1)} {PASSAGE} {filler(80, 2)}"),
    # Words that the model has never seen.
    SearchedDocument("clean", " ".join(word[::-1] for word in filler(160, 3).split())),
    SearchedDocument("short", "Two words."),
]


class Taught(NamedTuple):
    """A model, and the back end that runs it."""

    model: TokenizedModel
    forward: ForwardPass

    def search(
        self, folder: Path, asked: ExtractionSettings, documents: Sequence[SearchedDocument] = DOCUMENTS
    ) -> Search:
        return Search(self.model, documents, asked, Caches(DataPaths(folder)))

    def load(self, model: TokenizedModel) -> ForwardPass:
        return self.forward


def teach(folder: Path) -> Taught:
    """Train a model on random ends of the passage, and on random words."""
    save_model(folder / "llama", initializer_range=0.05, hidden_size=64)
    model = tokenized(folder / "llama", folder / "data")
    network = AutoModelForCausalLM.from_pretrained(folder / "llama")
    optimizer, draw = torch.optim.AdamW(network.parameters(), lr=6e-3), random.Random(0)
    for step in range(120):
        begins = [draw.randrange(len(PASSAGE) * 3 // 4) for _ in range(8)]
        texts = [*(PASSAGE[begin:] for begin in begins), *(filler(30, 100 * step + number) for number in range(8))]
        ids = [[model.start_token_id, *text.token_id.tolist()][: CONTEXT - 2] for text in encode(model, texts)]
        length = min(map(len, ids))
        batch = torch.tensor([one[:length] for one in ids])
        optimizer.zero_grad()
        network(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
    network.save_pretrained(folder / "llama")
    model = tokenized(folder / "llama", folder / "data")
    return Taught(model, forward_of(model))
