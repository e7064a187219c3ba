"""Data sets of the hub as corpora: read as streams through ``datasets``, nothing is kept on disk.

What belongs here: which files of a data set are read, at which commit, and their rows. What does not: the other corpora
(corpus.py).

Files of JSON lines are streamed as plain lines and parsed here, so that one broken line costs one document; read as
JSON, it would cost the file. A file that is not UTF-8 stops the count with an error that says so: `datasets` decodes
compressed files before anybody can look at their bytes.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2
from huggingface_hub import HfApi

from audit_pipeline.catalogue.contracts import digest
from audit_pipeline.errors import DataError, one_line
from audit_pipeline.fetch.hub import HubDataUnreachableError, fault_of, hub_errors
from audit_pipeline.fetch.rows import Row, Skipped, json_row, text_row
from audit_pipeline.references.corpus import Corpus, State

_REMEDY = "or set path to a copy of its files"


_LOOKED_AT = 1000
"""Where none of so many rows can be used, no later one is expected to be: a corpus may be terabytes."""


class HubStream:
    """The documents of a data set's files (addresses or paths, all Parquet or all JSON lines), in their order."""

    def __init__(self, what: str, files: Sequence[str], column: str, state: State | None) -> None:
        self._what, self._column = what, column
        self._groups = [
            group
            for group in ([one for one in files if _is_parquet(one)], [one for one in files if not _is_parquet(one)])
            if group
        ]
        self._group, self._row = (0, 0) if state is None else (int(state["group"]), int(state["row"]))
        self._begin: State | None = None if state is None else state["inner"]
        self._rows: Any = None
        # Whether some row could be used, and why the first of all could not be. States of old do not say: no count is
        # refused for what they leave out.
        self._usable = state is not None and bool(state.get("usable", True))
        self._unusable: str | None = None if state is None else state.get("unusable")

    def __iter__(self) -> Iterator[str | Skipped]:
        # Here and not above: importing datasets takes a second, and only this needs it.
        from datasets import load_dataset  # noqa: PLC0415
        from datasets.exceptions import DatasetsError  # noqa: PLC0415

        while self._group < len(self._groups):
            files = self._groups[self._group]
            parquet = _is_parquet(files[0])
            options: dict[str, Any] = {"columns": [self._column]} if parquet else {}
            try:
                rows = load_dataset(
                    "parquet" if parquet else "text", data_files=files, split="train", streaming=True, **options
                )
                if self._begin is not None:
                    rows.load_state_dict(dict(self._begin))
                self._rows = rows
                for row in rows:
                    self._row += 1
                    item = self._item(row, parquet=parquet)
                    if item is not None:
                        self._require_usable(item)
                        yield item
            except (httpx2.HTTPError, DatasetsError, OSError, ValueError, RuntimeError) as error:
                raise self._build_stream_error(error) from error
            self._group, self._begin, self._rows = self._group + 1, None, None

    def _require_usable(self, item: str | Skipped) -> None:
        if not isinstance(item, Skipped):
            self._usable = True
        elif not self._usable:
            self._unusable = self._unusable or item.reason
            if self._row >= _LOOKED_AT:
                raise DataError(
                    f"{self._what}: none of its first {_LOOKED_AT:,} rows can be used; the first: "
                    f"{self._unusable}; correct files or text_column, {_REMEDY}"
                )

    def _build_stream_error(self, error: Exception) -> DataError:
        fault = fault_of(error)
        if fault is None:
            return DataError(
                f"{self._what} cannot be read behind row {self._row:,} ({one_line(error)[:300]}); "
                f"correct files or text_column, {_REMEDY}"
            )
        told = f"{self._what}, behind row {self._row:,}, {fault.why}"
        if fault.passing:
            return HubDataUnreachableError(f"{told} (counting again goes on from the last checkpoint), {_REMEDY}")
        return DataError(f"{told}, {_REMEDY}")

    def _item(self, row: dict[str, Any], *, parquet: bool) -> str | Skipped | None:
        location = f"{self._what}:{self._row}"
        if not parquet and not row["text"].strip():
            return None
        index = self._row - 1
        found = Row(location, index, row) if parquet else json_row(row["text"].encode(), location, index)
        item = found if isinstance(found, Skipped) else text_row(found, self._column)
        return item if isinstance(item, Skipped) else item.text

    def state(self) -> State:
        inner = self._begin if self._rows is None else self._rows.state_dict()
        known = {"usable": self._usable, "unusable": self._unusable}
        return {"group": self._group, "row": self._row, "inner": inner, **known}


def hub_corpus(hub: str, patterns: Sequence[str], revision: str | None, column: str | None) -> Corpus:
    """The files of a data set that match one of ``patterns``, at the commit that ``revision`` stands for now.

    Raises DataError where the data set cannot be had, and where none of its files matches.
    """
    commit, names = _listing(hub, revision)
    files = [name for name in sorted(names) if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    if not files:
        raise DataError(
            f"the data set {hub} has no file that matches {', '.join(patterns)}: correct files of its entry"
        )
    addresses = [f"hf://datasets/{hub}@{commit}/{name}" for name in files]
    return Corpus(
        digest(hub, commit, files)[:16],
        lambda state: HubStream(f"the data set {hub}", addresses, column or "text", state),
        {f"hub:{hub}": commit},
    )


def _listing(hub: str, revision: str | None) -> tuple[str, list[str]]:
    """The commit and the names of the data set's files."""
    with hub_errors(f"the data set {hub}", revision, _REMEDY, DataError, HubDataUnreachableError):
        found = HfApi().dataset_info(hub, revision=revision)
    return str(found.sha), [one.rfilename for one in found.siblings or []]


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(".parquet")
