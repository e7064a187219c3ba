"""From a file of the user's own to the place of a passage in it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from ledger_lines import step_of
from made_epubs import epub, page

from audit_pipeline.extras.extraction.conclusions import windows_from_rows
from audit_pipeline.extras.extraction.documents import SearchedDocument, read_document_of_source
from audit_pipeline.extras.extraction.judgements import Judgement
from audit_pipeline.extras.extraction.results import write_windows
from audit_pipeline.extras.extraction.search import Extraction
from audit_pipeline.sources.local_files import LocalFilesSettings, harvest_local_files
from audit_pipeline.sources.store import store_harvest
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read_documents
from audit_pipeline.tables import EXTRACTION

RUNNING = " ".join(["The lamps were lit before the carriage came down the long hill to the town."] * 10)


def test_the_strongest_windows_of_a_file_say_where_they_are(tmp_path: Path) -> None:
    folder, paths = tmp_path / "shelf", DataPaths(tmp_path / "data")
    folder.mkdir()
    chapters = {f"{number}.xhtml": page(f"<h2>Night {number}</h2><p>{RUNNING}</p><p>End.</p>") for number in (7, 8)}
    (folder / "novel.epub").write_bytes(epub({"cover.xhtml": page("<p>© 2024</p>"), **chapters}))
    (folder / "notes.txt").write_text("One.\n\nEnd.\n", encoding="utf-8")
    harvest = harvest_local_files(LocalFilesSettings(path=folder))
    store_harvest("local_files", harvest, paths, step_of("first"), datetime(2030, 1, 1, tzinfo=UTC))
    assert read_documents(paths, "local_files")["places"].to_pylist()[0] is None
    places = {
        name: describe_strongest(read_document_of_source(f"local_files:local:{name}", paths), tmp_path)
        for name in ("novel.epub", "notes.txt")
    }
    assert places == {"novel.epub": [None, "chapter 2 (Night 8), paragraph 3"], "notes.txt": [None, "line 3"]}


def describe_strongest(document: SearchedDocument, tmp_path: Path) -> list[str | None]:
    """The places of two windows that overlap: an unlikely one of the whole document, and a likely one of its end."""
    begins = [0, document.text.rindex("End.")]
    rows = [
        {
            **{"key": str(begin), "text_sha256": "x", "start": begin, "prefix_tokens": 2, "token_id": [0]},
            **{"char_start": [begin], "char_end": [len(document.text)], "logprob": [log_p], "rank": [1]},
            **{"log_mass_40": [0.0], "argmax_id": [0]},
        }
        for begin, log_p in zip(begins, (-50.0, -0.1), strict=True)
    ]
    windows = windows_from_rows(pa.Table.from_pylist(rows, schema=EXTRACTION.schema))
    judged = Judgement((None, None), *np.full((2, 2), np.nan))
    write_windows(tmp_path / "out.parquet", [Extraction(document, windows, np.ones(2, dtype=bool), judged)])
    described: list[str | None] = pq.read_table(tmp_path / "out.parquet")["place"].to_pylist()
    return described
