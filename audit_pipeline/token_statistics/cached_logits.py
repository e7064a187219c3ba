"""Computation of statistics from cached logits, so that a new kind of statistic needs no forward pass."""

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
from audit_pipeline.token_statistics.reductions import sweep
from audit_pipeline.token_statistics.rows import Values, add_rows, build_swept_columns
from audit_pipeline.token_statistics.tokens import EncodedText
from audit_pipeline.token_statistics.vocabulary_blocks import ComputedLogits, Scratch, begin_fetch


def fill_rows_from_logits(
    model: TokenizedModel,
    prepared: Prepared,
    texts: Mapping[str, int],
    caches: Caches,
    report: Callable[[int, int], None],
) -> set[int]:
    """Compute missing rows from cached logits, and return the numbers of the filled texts.

    A text is skipped if its logits are missing, do not match its tokens, or give a statistic that is not finite. It
    then needs a forward pass.

    Args:
        model: The model.
        prepared: The texts and the kinds that each of them misses.
        texts: Text numbers by the keys of their logits.
        caches: Caches of the model.
        report: Function that receives the numbers of finished texts and tokens after each text.
    """
    set_threads()
    scratch = Scratch(torch.device("cpu"))
    done: set[int] = set()
    tokens = 0
    for part in caches.of(model, "logits").read_by_part(texts):
        for batch in part.to_batches():
            for row, key in enumerate(batch.column("key").to_pylist()):
                number = texts[key]
                if number in done:
                    continue
                kinds = sorted(kind for kind in prepared.missing[number] if KINDS[kind].is_from_logits)
                text = prepared.encoded[number]
                values = _reduce_text(batch, row, text, kinds, scratch)
                if values is None:
                    continue
                for kind in kinds:
                    columns = build_swept_columns(kind, [values], from_logits=True)
                    add_rows(caches.of(model, kind), [prepared.keys[number][kind]], [text], [columns])
                done.add(number)
                tokens += text.n_scored
                report(len(done), tokens)
    return done


def _reduce_text(
    batch: pa.RecordBatch, row: int, text: EncodedText, kinds: list[Kind], scratch: Scratch
) -> Values | None:
    """Return the statistics of one text, or None if its row lacks logits or a statistic is not finite."""
    values: np.ndarray[Any, Any] = np.frombuffer(batch.column("logits")[row].as_buffer(), "<f2")
    width = batch.column("vocab_size")[row].as_py()
    if values.size != text.n_scored * width:
        return None
    # torch has no read-only tensors, and Arrow's memory is read-only, so the logits are copied.
    logits = ComputedLogits(torch.from_numpy(values.reshape(text.n_scored, width).copy()))
    names: set[str] = set()
    for kind in kinds:
        names.update(KINDS[kind].statistics)
    target = torch.from_numpy(text.token_id[text.first_scored :].astype(np.int64))
    with torch.inference_mode():
        statistics = begin_fetch(sweep(logits, target, scratch, names))()
    for name in names:
        if not np.isfinite(statistics[name]).all():
            return None
    return statistics
