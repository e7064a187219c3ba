"""Conversion of the results of windows into rows of the caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
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
"""The statistics of a window, by the names that the sweep uses."""

# The logits of a text take megabytes, so each row is written separately.
_WRITTEN_SEPARATELY = frozenset({"logits"})


class RowWriter:
    """A collector of window results. When all windows of a text have arrived, its rows are added to the caches."""

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
        """Write empty rows for texts without a scored token."""
        empty: dict[int, list[WindowResult]] = {}
        for number, text in enumerate(self._prepared.encoded):
            if not text.n_scored:
                empty[number] = []
        self._write(empty)

    def add(self, results: Sequence[WindowResult]) -> int:
        """Add the results of a batch, write the rows of complete texts, and return the batch's number of tokens."""
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
    def flush_on_error(self) -> Iterator[None]:
        """Write the computed rows if any exception leaves this block, including Ctrl-C and lack of memory."""
        try:
            yield
        except BaseException:
            # A second error on the way out, such as a full disk, must not hide the first.
            with suppress(OSError):
                self._caches.flush()
            raise

    def _write(self, complete: Mapping[int, Sequence[WindowResult]]) -> None:
        """Write the missing rows of texts. ``complete`` holds the results of their windows in order, by text number."""
        numbers_by_kind: dict[Kind, list[int]] = {}
        for number in complete:
            for kind in self._prepared.missing[number]:
                numbers_by_kind.setdefault(kind, []).append(number)
        for kind, numbers in sorted(numbers_by_kind.items()):
            if kind not in _WRITTEN_SEPARATELY:
                self._write_kind(kind, numbers, complete)
                continue
            for number in numbers:
                self._write_kind(kind, [number], complete)

    def _write_kind(self, kind: Kind, numbers: Sequence[int], complete: Mapping[int, Sequence[WindowResult]]) -> None:
        keys = [self._prepared.keys[number][kind] for number in numbers]
        texts = [self._prepared.encoded[number] for number in numbers]
        rows = [self._columns(kind, text, complete[number]) for text, number in zip(texts, numbers, strict=True)]
        add_rows(self._caches.of(self._model, kind), keys, texts, rows)

    def _columns(self, kind: Kind, text: EncodedText, parts: Sequence[WindowResult]) -> dict[str, object]:
        """Return the columns of a text's row of ``kind`` except key and text."""
        if kind == "branches":
            branches = [part.branches for part in parts if part.branches is not None]
            lengths = _join_attributes(branches, "lengths")
            return {
                "m": self._steps,
                "offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
                "logprob": _join_attributes(branches, "logprob"),
                "z": _join_attributes(branches, "z"),
            }
        values = [part.values for part in parts if part.values is not None]
        if kind == "topk":
            k = values[0]["topk_id"].shape[1] if values else TOPK_ENTRIES
            return {
                "k": k,
                "token_id": _join_statistic(values, "topk_id"),
                "logprob": _join_statistic(values, "topk_logprob"),
            }
        if kind == "logits":
            logits = [part["logits"].astype("<f2", copy=False) for part in values]
            width = logits[0].shape[1] if logits else self._model.vocab_size
            return {"vocab_size": width, "logits": _join_parts(logits).tobytes()}
        columns = build_swept_columns(kind, values)
        names = KINDS[kind].table.schema.names
        if "prefix_sha256" in names and self._prepared.prefix is not None:
            columns["prefix_sha256"] = self._prepared.prefix.sha256
        if "start" in names:
            columns |= {"start": int(text.char_start[0]), "prefix_tokens": text.first_scored}
        if "char_start" in names:
            for name in ("token_id", "char_start", "char_end"):
                columns[name] = getattr(text, name)[text.first_scored :]
        return columns


def add_rows(
    cache: PartCache, keys: Sequence[str], texts: Sequence[EncodedText], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Add the rows of texts to the cache of their kind. ``rows`` hold the columns except key and text."""
    columns: dict[str, Sequence[Any]] = {"key": keys, "text_sha256": [text.text_sha256 for text in texts]}
    arrays = []
    for field in cache.schema:
        values = columns.get(field.name) or [row.get(field.name) for row in rows]
        arrays.append(_build_array(values, field.type))
    cache.append(pa.Table.from_arrays(arrays, schema=cache.schema))


def _build_array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return a column with one value per row. The values of a list column are arrays."""
    if not pa.types.is_list(type_):
        return pa.array(values, type_)
    offsets = np.concatenate([[0], np.cumsum([value.size for value in values])]).astype(np.int32)
    # Empty arrays are skipped, because they may have another type than the column.
    filled = [value for value in values if value.size] or [np.empty(0)]
    return pa.ListArray.from_arrays(offsets, pa.array(np.concatenate(filled), type_.value_type), type=type_)


def build_swept_columns(kind: Kind, parts: Sequence[Values], *, from_logits: bool = False) -> dict[str, object]:
    """Return the statistics of one kind, joined over windows, and the columns that describe their layout.

    A statistic that the back end cannot give is an empty list.
    """
    declared = KINDS[kind]
    columns: dict[str, object] = {}
    if "k" in declared.table.schema.names:
        columns["k"] = declared.entries
    for name in declared.statistics:
        columns[name] = _join_statistic(parts, name)
    if declared.is_from_logits:
        columns["from_logits"] = from_logits
    return columns


def _join_statistic(parts: Sequence[Values], name: str) -> npt.NDArray[Any]:
    return _join_parts([part[name] for part in parts if name in part])


def _join_attributes(parts: Sequence[object], name: str) -> npt.NDArray[Any]:
    return _join_parts(list(map(attrgetter(name), parts)))


def _join_parts(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if not arrays:
        return np.empty(0)
    if len(arrays) == 1:
        return arrays[0].reshape(-1)
    return np.concatenate([array.reshape(-1) for array in arrays])
