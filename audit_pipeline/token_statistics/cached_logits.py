"""Statistics that are made of cached logits: one that is thought of later costs no forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.tables import KINDS, Kind
from audit_pipeline.token_statistics.cached_texts import Caches, Prepared
from audit_pipeline.token_statistics.layer_tuning import set_threads
from audit_pipeline.token_statistics.reductions import begin_fetch, sweep
from audit_pipeline.token_statistics.rows import Values, add_rows, build_swept_columns
from audit_pipeline.token_statistics.tokens import EncodedText
from audit_pipeline.token_statistics.vocabulary_blocks import ComputedLogits, Scratch


def fill_rows_from_logits(
    model: TokenizedModel,
    prepared: Prepared,
    texts: Mapping[str, int],
    caches: Caches,
    report: Callable[[int, int], None],
) -> set[int]:
    """Fill the missing rows that logits give of ``texts``, numbers by the keys of their logits; those that were filled.

    A text whose logits are gone, or are not those of its tokens, or give no finite sums is left out: it needs a pass.
    ``report`` is called with the texts and tokens that are done, after each.
    """
    set_threads()
    scratch = Scratch(torch.device("cpu"))
    done: set[int] = set()
    tokens = 0
    for part in caches.of(model, "logits").read_by_part(texts):
        for batch in part.to_batches():
            for row, key in enumerate(batch.column("key").to_pylist()):
                number = texts[key]
                kinds = sorted(kind for kind in prepared.missing[number] if KINDS[kind].is_from_logits)
                found = None if number in done else _reduce_text(batch, row, prepared.encoded[number], kinds, scratch)
                if found is None:
                    continue
                for kind in kinds:
                    columns = build_swept_columns(kind, [found], from_logits=True)
                    add_rows(
                        caches.of(model, kind), [prepared.keys[number][kind]], [prepared.encoded[number]], [columns]
                    )
                done.add(number)
                tokens += prepared.encoded[number].n_scored
                report(len(done), tokens)
    return done


def _reduce_text(
    batch: pa.RecordBatch, row: int, text: EncodedText, kinds: list[Kind], scratch: Scratch
) -> Values | None:
    """The statistics of one text; None where its row holds no logits for each of its tokens, or none to sum."""
    values: np.ndarray[Any, Any] = np.frombuffer(batch.column("logits")[row].as_buffer(), "<f2")
    width = batch.column("vocab_size")[row].as_py()
    if values.size != text.n_scored * width:
        return None
    # A copy: what Arrow owns is read-only, which torch has no tensors for.
    at_hand = ComputedLogits(torch.from_numpy(values.reshape(text.n_scored, width).copy()))
    names = {name for kind in kinds for name in KINDS[kind].statistics}
    target = torch.from_numpy(text.token_id[text.first_scored :].astype(np.int64))
    with torch.inference_mode():
        found = begin_fetch(sweep(at_hand, target, scratch, names))()
    return found if all(np.isfinite(found[name]).all() for name in names) else None
