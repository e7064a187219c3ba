"""From the results of windows to rows of the caches.

What belongs here: putting a text's windows together and the columns of each kind. What does not: the loop over batches
(run.py), files (cache.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from audit_pipeline.catalogue.contracts import KINDS, TOPK_ENTRIES, Kind
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.token_statistics.cache import PartCache
from audit_pipeline.token_statistics.cached_texts import Prepared
from audit_pipeline.token_statistics.tokens import EncodedText

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.backend import WindowBranches, WindowResult


Values = Mapping[str, npt.NDArray[Any]]
"""The statistics of a window, by the names that the sweep gives them."""


class RowWriter:
    """Collects the windows of each text and hands finished rows to the caches."""

    def __init__(self, model: TokenizedModel, prepared: Prepared, caches: Mapping[Kind, PartCache], steps: int) -> None:
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
        for number, text in enumerate(self._prepared.encoded):
            if not text.n_scored:
                self._finish(number, [])

    def add(self, result: WindowResult) -> None:
        number = result.window.text
        parts = self._parts.setdefault(number, [])
        parts.append(result)
        if len(parts) == self._expected[number]:
            del self._parts[number]
            if not result.written:
                self._finish(number, sorted(parts, key=lambda part: part.window.begin))
            self.texts_done += 1

    def flush(self) -> None:
        for cache in self._caches.values():
            cache.flush()

    @contextmanager
    def flushing_on_error(self) -> Iterator[None]:
        """Within it, whatever stops the run (Ctrl-C, no memory), what has been computed is kept."""
        try:
            yield
        except BaseException:
            # A second error on the way out, such as a full disk, must not hide the first.
            with suppress(OSError):
                self.flush()
            raise

    def _finish(self, number: int, parts: Sequence[WindowResult]) -> None:
        text = self._prepared.encoded[number]
        own = [part.statistics.values for part in parts if part.statistics is not None]
        branches = [part.branches for part in parts if part.branches is not None]
        for kind in sorted(self._prepared.missing[number]):
            columns = (
                _build_branch_columns(branches, self._steps) if kind == "branches" else self._columns(kind, text, own)
            )
            add_row(self._caches[kind], self._prepared.keys[number][kind], text, columns)

    def _columns(self, kind: Kind, text: EncodedText, parts: Sequence[Values]) -> dict[str, object]:
        """The columns of a kind's row but key and text, of all kinds but branches."""
        if kind == "topk":
            return {
                "k": parts[0]["topk_id"].shape[1] if parts else TOPK_ENTRIES,
                "token_id": _join_parts([part["topk_id"] for part in parts]),
                "logprob": _join_parts([part["topk_logprob"] for part in parts]),
            }
        if kind == "logits":
            halves = [part["logits"].astype("<f2", copy=False) for part in parts]
            width = halves[0].shape[1] if halves else self._model.vocab_size
            return {"vocab_size": width, "logits": _join_parts(halves).tobytes()}
        columns = build_swept_columns(kind, parts)
        names = KINDS[kind].table.schema.names
        if "prefix_sha256" in names and self._prepared.prefix is not None:
            columns["prefix_sha256"] = self._prepared.prefix.sha256
        if "start" in names:
            columns |= {"start": int(text.char_start[0]), "prefix_tokens": text.first_scored}
        if "char_start" in names:
            own = {"token_id": text.token_id, "char_start": text.char_start, "char_end": text.char_end}
            columns |= {name: values[text.first_scored :] for name, values in own.items()}
        return columns


def add_row(cache: PartCache, key: str, text: EncodedText, columns: Mapping[str, object]) -> None:
    """Hand one text's row to the cache of its kind."""
    row = {"key": key, "text_sha256": text.text_sha256, **columns}
    cache.add(row, sum(_count_bytes(value) for value in row.values()))


def _build_branch_columns(parts: Sequence[WindowBranches], steps: int) -> dict[str, object]:
    lengths = _join_parts([part.lengths for part in parts])
    return {
        "m": steps,
        "offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        "logprob": _join_parts([part.logprob for part in parts]),
        "z": _join_parts([part.z for part in parts]),
    }


def build_swept_columns(kind: Kind, parts: Sequence[Values], *, from_logits: bool = False) -> dict[str, object]:
    """The lists of a kind as the sweep gives them, and what says how they are to be read.

    What the back end cannot give is an empty list.
    """
    declared = KINDS[kind]
    entries = {"k": declared.entries} if "k" in declared.table.schema.names else {}
    lists = {name: _join_parts([part[name] for part in parts if name in part]) for name in declared.statistics}
    return {**entries, **lists, **({"from_logits": from_logits} if declared.is_from_logits else {})}


def _count_bytes(value: object) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    return len(value) if isinstance(value, bytes) else 0


def _join_parts(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate([array.reshape(-1) for array in arrays]) if arrays else np.empty(0)
