"""From the results of windows to rows of the caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.tables import KINDS, TOPK_ENTRIES, Kind
from audit_pipeline.token_statistics.cache import PartCache
from audit_pipeline.token_statistics.cached_texts import Caches, Prepared
from audit_pipeline.token_statistics.tokens import EncodedText

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.backend import WindowResult


Values = Mapping[str, npt.NDArray[Any]]
"""The statistics of a window, by the names that the sweep gives them."""

# A text's logits take megabytes: its row goes to the cache alone.
_ALONE = frozenset({"logits"})


class RowWriter:
    """Collects the windows of each text and hands finished rows to the caches."""

    def __init__(self, model: TokenizedModel, prepared: Prepared, caches: Caches, steps: int) -> None:
        self.texts_done = 0
        self._steps = steps
        self._model = model
        self._prepared = prepared
        self._caches = caches
        self._parts: dict[int, list[WindowResult]] = {}
        self._expected: dict[int, int] = {}
        for window in prepared.windows:
            self._expected[window.text] = self._expected.get(window.text, 0) + 1

    def add_empty(self) -> None:
        """Rows for texts without a scored token."""
        self._write({number: [] for number, text in enumerate(self._prepared.encoded) if not text.n_scored})

    def add(self, results: Sequence[WindowResult]) -> int:
        """Take the results of a batch, and hand on the rows of the texts that are complete; returns its tokens."""
        complete: dict[int, list[WindowResult]] = {}
        for result in results:
            number = result.window.text
            parts = self._parts.setdefault(number, [])
            parts.append(result)
            if len(parts) == self._expected[number]:
                del self._parts[number]
                self.texts_done += 1
                if not result.written:
                    complete[number] = sorted(parts, key=lambda part: part.window.begin)
        self._write(complete)
        return sum(result.window.length for result in results)

    @contextmanager
    def flushing_on_error(self) -> Iterator[None]:
        """Within it, whatever stops the run (Ctrl-C, no memory), what has been computed is kept."""
        try:
            yield
        except BaseException:
            # A second error on the way out, such as a full disk, must not hide the first.
            with suppress(OSError):
                self._caches.flush()
            raise

    def _write(self, complete: Mapping[int, Sequence[WindowResult]]) -> None:
        """Write what is missing of texts, by their number; their windows' results in order."""
        missing = self._prepared.missing
        for kind in sorted(frozenset().union(*(missing[number] for number in complete))):
            lacking = [number for number in complete if kind in missing[number]]
            for numbers in [[number] for number in lacking] if kind in _ALONE else [lacking]:
                add_rows(
                    self._caches.of(self._model, kind),
                    [self._prepared.keys[number][kind] for number in numbers],
                    [self._prepared.encoded[number] for number in numbers],
                    [self._columns(kind, self._prepared.encoded[number], complete[number]) for number in numbers],
                )

    def _columns(self, kind: Kind, text: EncodedText, parts: Sequence[WindowResult]) -> dict[str, object]:
        """The columns of a text's row of ``kind`` but key and text."""
        if kind == "branches":
            branches = [part.branches for part in parts if part.branches is not None]
            lengths = _join_parts([part.lengths for part in branches])
            return {
                "m": self._steps,
                "offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
                "logprob": _join_parts([part.logprob for part in branches]),
                "z": _join_parts([part.z for part in branches]),
            }
        own = [part.values for part in parts if part.values is not None]
        if kind == "topk":
            return {
                "k": own[0]["topk_id"].shape[1] if own else TOPK_ENTRIES,
                "token_id": _join_parts([part["topk_id"] for part in own]),
                "logprob": _join_parts([part["topk_logprob"] for part in own]),
            }
        if kind == "logits":
            halves = [part["logits"].astype("<f2", copy=False) for part in own]
            width = halves[0].shape[1] if halves else self._model.vocab_size
            return {"vocab_size": width, "logits": _join_parts(halves).tobytes()}
        columns = build_swept_columns(kind, own)
        names = KINDS[kind].table.schema.names
        if "prefix_sha256" in names and self._prepared.prefix is not None:
            columns["prefix_sha256"] = self._prepared.prefix.sha256
        if "start" in names:
            columns |= {"start": int(text.char_start[0]), "prefix_tokens": text.first_scored}
        if "char_start" in names:
            of_text = {"token_id": text.token_id, "char_start": text.char_start, "char_end": text.char_end}
            columns |= {name: values[text.first_scored :] for name, values in of_text.items()}
        return columns


def add_rows(
    cache: PartCache, keys: Sequence[str], texts: Sequence[EncodedText], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Hand texts' rows to the cache of their kind; ``rows`` hold the columns but key and text."""
    columns: dict[str, Sequence[Any]] = {"key": keys, "text_sha256": [text.text_sha256 for text in texts]}
    arrays = [
        _build_array(columns.get(field.name) or [row.get(field.name) for row in rows], field.type)
        for field in cache.schema
    ]
    cache.append(pa.Table.from_arrays(arrays, schema=cache.schema))


def _build_array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """A column of ``values``, one a row; those of a list are an array each."""
    if not pa.types.is_list(type_):
        return pa.array(values, type_)
    offsets = np.concatenate([[0], np.cumsum([value.size for value in values])]).astype(np.int32)
    # An empty array may have another type than its column.
    filled = [value for value in values if value.size] or [np.empty(0)]
    return pa.ListArray.from_arrays(offsets, pa.array(np.concatenate(filled), type_.value_type), type=type_)


def build_swept_columns(kind: Kind, parts: Sequence[Values], *, from_logits: bool = False) -> dict[str, object]:
    """The lists of a kind as the sweep gives them, and what says how they are to be read.

    What the back end cannot give is an empty list.
    """
    declared = KINDS[kind]
    entries = {"k": declared.entries} if "k" in declared.table.schema.names else {}
    lists = {name: _join_parts([part[name] for part in parts if name in part]) for name in declared.statistics}
    return {**entries, **lists, **({"from_logits": from_logits} if declared.is_from_logits else {})}


def _join_parts(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if len(arrays) == 1:
        return arrays[0].reshape(-1)
    return np.concatenate([array.reshape(-1) for array in arrays]) if arrays else np.empty(0)
