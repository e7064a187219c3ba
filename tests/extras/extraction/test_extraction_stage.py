"""Extraction from the documents of a benchmark: the documents, the stored results and the assets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_workspace import SOURCE, Workspace, copy_workspace, made_documents, make_workspace, quick_folder, temporal
from tiny_models import forward_of

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.errors import DataError
from audit_pipeline.extras.extraction import WindowLengths
from audit_pipeline.extras.extraction.pair_extraction import (
    EXTRACTION_VERSION,
    build_search_version,
    extract_pair,
    find_extraction_settings,
    read_searched_documents,
)
from audit_pipeline.extras.maintenance.forgetting import RemovalTarget, execute_removal, find_removal
from audit_pipeline.store import store
from audit_pipeline.store.ledger import LineageStep, read_latest_run
from audit_pipeline.tables import (
    DOCUMENT_MEMORISATION,
    EXTRACTION_GRID,
    EXTRACTION_RATES,
    EXTRACTION_WINDOWS,
    Pair,
    Table,
    text_sha256,
)
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.warehouse.query import query_warehouse

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "no_report")

PAIR = Pair("made_8", "tiny")
ASKED = ExtractionSettings(prefix=12, suffix=8)
PER_SIDE = 2


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        made = make_workspace(tmp_path_factory.mktemp("built") / "made", patch, tiny=tiny_folder("llama"))
        made.write_benchmarks(made=temporal([8], extraction=True), plain=temporal([9]))
        made.fetch(*made_documents(PER_SIDE, 40))
        for name in ("made", "plain"):
            made.build(name)
            made.assess(name)
    return made.root


@pytest.fixture
def workspace(built_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    with quick_folder(tmp_path) as folder:
        made = copy_workspace(built_once, folder / "made", monkeypatch)
        made.hold(*made_documents(PER_SIDE, 40))
        yield made


def extract(workspace: Workspace, run_id: str, forward: Callable[[Any], ForwardPass] = forward_of, **how: Any) -> Any:
    step = LineageStep.now(run_id, "extraction", "1")
    return extract_pair(PAIR, workspace.model("tiny"), workspace.paths, forward, step, how.get("asked", ASKED))


def kept(workspace: Workspace, table: Table, run_id: str) -> pa.Table:
    return store.read(workspace.paths, table, PAIR, run_id=run_id, label=table.name)


def test_documents_are_whole_and_keep_the_side_of_their_texts(workspace: Workspace) -> None:
    model = workspace.model("tiny")
    documents = read_searched_documents("made_8", model, workspace.paths)
    examples = read_built(workspace.paths, "made_8").examples.to_pylist()
    sides = {row["document_id"]: "audited" if row["label"] else "held_out" for row in examples}
    assert {one.name: one.side for one in documents} == sides
    texts = {one.name: one.text for one in documents}
    assert all(row["text"] in texts[row["document_id"]] for row in examples)
    assert all(len(text.split()) == 40 for text in texts.values())
    assert {one.collection for one in documents} == {row["collection"] for row in examples}
    assert all(one.title for one in documents)


def test_results_are_stored_with_their_lineage(workspace: Workspace) -> None:
    made = extract(workspace, "first")
    windows, documents, rates = (
        kept(workspace, table, "first").to_pylist()
        for table in (EXTRACTION_WINDOWS, DOCUMENT_MEMORISATION, EXTRACTION_RATES)
    )
    assert {row["document_id"] for row in windows} == {row["document_id"] for row in documents}
    for row in documents:
        own = [one for one in windows if one["document_id"] == row["document_id"]]
        best = max(own, key=lambda one: one["log_p"])
        assert (row["windows"], row["log_p"]) == (len(own), best["log_p"])
        assert best["strength"] == 1
        assert len(best["suffix_pieces"]) == len(best["first_choice_pieces"]) > 0
        assert (row["prefix_tokens"], row["suffix_tokens"], row["stride"]) == (12, 8, "coarse-to-fine")
        held_out = sum(one["side"] == "held_out" for one in documents)
        assert (row["p_value"] is None) == (row["side"] == "held_out")
        assert row["n_held_out"] in (None, held_out)
    whole = [row for row in rates if (row["unit"], row["side"]) == ("benchmark", "audited")]
    assert [row["threshold"] for row in whole] == [0.001, 0.01, 0.1, 0.5, None]
    assert {row["n_documents"] for row in whole} == {sum(row["side"] == "audited" for row in documents)}
    assert made.metadata.values["windows"] == len(windows)
    written = read_latest_run(workspace.paths, "document_memorisation", PAIR.partition)
    assert written.upstream.keys() == {"examples/made_8", f"token_statistics/{PAIR.partition}"}


def test_a_passage_names_its_page_and_pages_change_no_version(workspace: Workspace) -> None:
    before = store.read_documents_version(workspace.paths, SOURCE)
    places = ((0, "page 1"), (50, "page 3"))
    workspace.fetch(*(replace(document, places=places) for document in made_documents(PER_SIDE, 40)))
    assert store.compute_documents_version(store.read_documents(workspace.paths, SOURCE)) == before
    documents = read_searched_documents("made_8", workspace.model("tiny"), workspace.paths)
    assert {document.places for document in documents} == {places}
    extract(workspace, "first")
    rows = kept(workspace, EXTRACTION_WINDOWS, "first").to_pylist()
    assert {row["place"] for row in rows} == {None, "page 1", "page 3"}
    texts = {document.name: document.text for document in documents}
    for row in rows:
        suffix = texts[row["document_id"]][row["suffix_begin"] :]
        word = row["suffix_begin"] + len(suffix) - len(suffix.lstrip())
        assert row["place"] == (None if row["strength"] is None else "page 1" if word < 50 else "page 3")


def test_a_grid_is_stored_with_the_results(workspace: Workspace) -> None:
    extract(workspace, "plain")
    assert kept(workspace, EXTRACTION_GRID, "plain").num_rows == 0
    plain = kept(workspace, DOCUMENT_MEMORISATION, "plain").to_pylist()
    assert {row["grid_settings"] for row in plain} == {None}
    assert {row["given_text"] for row in kept(workspace, EXTRACTION_WINDOWS, "plain").to_pylist()} == {None}

    extract(workspace, "first", asked=ASKED.override(grid=True, price_per_million=2.0))
    grid, documents, windows = (
        kept(workspace, table, "first").to_pylist()
        for table in (EXTRACTION_GRID, DOCUMENT_MEMORISATION, EXTRACTION_WINDOWS)
    )
    assert [row["p_value"] for row in documents] == [row["p_value"] for row in plain]
    assert {row["document_id"] for row in grid} == {row["document_id"] for row in documents}
    for row in documents:
        own = [one for one in grid if one["document_id"] == row["document_id"]]
        # The prefix of the search alone has room: three usual suffixes and its own, 15 ways of drawing and none.
        assert row["grid_settings"] == len(own) == 4 * 16
        assert {(one["prefix_tokens"], one["side"]) for one in own} == {(12, row["side"])}
        [named] = [one for one in own if one["is_named"]]
        assert (named["suffix_tokens"], named["temperature"], named["drawn_from"]) == (8, 1.0, "top-k 40")
        assert (row["grid_p_value"] is None) == (row["grid_q_bh"] is None) == (row["side"] == "held_out")
        assert row["side"] == "held_out" or 0 < row["grid_p_value"] <= row["grid_q_bh"] <= 1
    given = {(row["document_id"], row["strength"]) for row in windows if row["given_text"] is not None}
    assert given == {(row["document_id"], 1) for row in documents if row["side"] == "audited"}
    for row in windows:
        assert (row["suffix_words"] is None) == (row["words_in_common"] is None) == (row["given_text"] is None)
        assert row["given_text"] is None or 0 <= row["words_in_common"] <= row["suffix_words"]
    for table in (EXTRACTION_GRID, DOCUMENT_MEMORISATION):
        settings = read_latest_run(workspace.paths, table.name, PAIR.partition).settings
        assert (settings["grid"], settings["price_per_million"]) == (True, 2.0)


def test_a_repeated_search_reads_the_cache_without_a_model(workspace: Workspace) -> None:
    first = extract(workspace, "first")
    again = extract(workspace, "again", lambda _: pytest.fail("everything is in the cache"))
    assert again.data_version == first.data_version
    for table in (EXTRACTION_WINDOWS, EXTRACTION_RATES):
        one, other = (kept(workspace, table, run).drop_columns(["run_id"]) for run in ("first", "again"))
        assert one.equals(other)


def test_too_long_windows_are_a_reason_and_no_error(workspace: Workspace) -> None:
    made = extract(
        workspace,
        "first",
        lambda _: pytest.fail("nothing can be run"),
        asked=ExtractionSettings(stride="chars:10"),
    )
    rows = kept(workspace, DOCUMENT_MEMORISATION, "first").to_pylist()
    assert {row["windows"] for row in rows} == {0}
    assert all("do not fit into the 64 tokens" in row["reason"] for row in rows)
    assert kept(workspace, EXTRACTION_RATES, "first").num_rows == 0
    assert "do not fit into the 64 tokens" in str(made.metadata.values["reason"])


def test_missing_documents_are_reported(workspace: Workspace) -> None:
    workspace.fetch(*made_documents(1, 40))
    with pytest.raises(DataError, match=r"no longer in its sources.*Build the benchmark again"):
        read_searched_documents("made_8", workspace.model("tiny"), workspace.paths)


def test_removed_texts_are_removed_from_the_cache(workspace: Workspace) -> None:
    extract(workspace, "first")
    columns = (pq.read_table(part, columns=["text_sha256"]).column(0) for part in workspace.parts("extraction"))
    digests = {sha256 for column in columns for sha256 in column.to_pylist()}
    documents = read_searched_documents("plain_9", workspace.model("tiny"), workspace.paths)
    removal = find_removal(RemovalTarget("benchmark", "made_8"), workspace.paths)
    assert not digests & removal.texts, "every document is of both benchmarks"
    assert digests <= {text_sha256(document.text) for document in documents}
    shutil.rmtree(workspace.paths.examples("plain_9").parent)
    execute_removal(find_removal(RemovalTarget("benchmark", "made_8"), workspace.paths), workspace.paths)
    assert workspace.parts("extraction") == []
    assert not list(workspace.paths.table("document_memorisation").rglob("*"))


def test_other_settings_change_the_version(workspace: Workspace) -> None:
    assert build_search_version(ExtractionSettings()) == EXTRACTION_VERSION
    changes = ({}, {"stride": "tiled"}, {"characters": 90}, {"near_verbatim": 2}, {"grid": True})
    others = [ASKED.override(**change) for change in changes]
    assert len({EXTRACTION_VERSION, *map(build_search_version, others)}) == 6
    # A price changes nothing that is searched.
    for settings in (ExtractionSettings(), ASKED):
        assert build_search_version(settings.override(price_per_million=2.0)) == build_search_version(settings)


@pytest.mark.slow
def test_an_audit_searches_with_the_settings_of_the_benchmark_once(workspace: Workspace) -> None:

    def table_of(workspace: Workspace, table: Table) -> list[dict[str, Any]]:
        run_id = read_latest_run(workspace.paths, table.name, PAIR.partition).run_id
        found: list[dict[str, Any]] = kept(workspace, table, run_id).to_pylist()
        return found

    how = {"prefix": 12, "suffix": 8, "stride": "tiled", "characters": 150, "near_verbatim": 2}
    workspace.write_benchmarks(made=temporal([8], extraction=how), plain=temporal([9]))
    settings = find_extraction_settings("made_8")
    assert settings is not None
    assert settings.override(suffix=6, prefix=None).lengths == WindowLengths(12, 6), "what is given goes first"
    assert find_extraction_settings("plain_9") is None

    audit = ("audit", "--model", "tiny", "--benchmark", "made_8")
    assert (result := workspace.run(*audit)).exit_code == 0, result.stderr
    documents, windows = (table_of(workspace, name) for name in (DOCUMENT_MEMORISATION, EXTRACTION_WINDOWS))
    assert {(row["prefix_tokens"], row["suffix_tokens"], row["stride"]) for row in documents} == {(12, 8, "tiled")}
    assert {row["characters"] for row in documents} == {150}
    assert max(row["suffix_end"] for row in windows) <= 150
    audited = {row["document_id"] for row in documents if row["side"] == "audited"}
    near = {row["document_id"]: row for row in windows if row["log_p_near_verbatim"] is not None}
    assert near.keys() <= audited, "held-out documents are not asked for it"
    assert all(row["strength"] == 1 and row["log_p_near_verbatim"] >= row["log_p"] for row in near.values())

    runs = len(workspace.runs())
    assert workspace.run(*audit).exit_code == 0
    assert len(workspace.runs()) == runs, "everything is up to date"
    workspace.write_benchmarks(made=temporal([8], extraction={**how, "near_verbatim": 1}), plain=temporal([9]))
    assert workspace.run(*audit).exit_code == 0
    assert len(workspace.runs()) > runs, "it is searched again under another setting"


def test_too_long_windows_are_refused_before_results_are_replaced(workspace: Workspace) -> None:
    extract(workspace, "first")
    result = workspace.run("extract", "--model", "tiny", "--benchmark", "made_8")
    assert (result.exit_code, "do not fit into the 64 tokens" in result.stderr) == (2, True), result.stderr
    assert workspace.runs() == []


def test_a_benchmark_of_rows_has_its_texts_as_documents(workspace: Workspace) -> None:
    rows = workspace.root / "rows.jsonl"
    lines = [f'{{"input": "text number {number}, with some more words", "label": {number % 2}}}' for number in range(6)]
    rows.write_text("\n".join(lines), encoding="utf-8")
    workspace.write_benchmarks(
        rows={
            **{"builder": "labelled", "description": "made up", "path": str(rows), "design": "selected", "seed": 1},
            **{"words": "any", "calibration_fraction": 0},
        }
    )
    workspace.build("rows")
    documents = read_searched_documents("rows", workspace.model("tiny"), workspace.paths)
    assert sorted((one.text[:13], one.side) for one in documents) == [
        (f"text number {number}", "audited" if number % 2 else "held_out") for number in range(6)
    ]


@pytest.mark.slow
def test_a_run_over_all_pairs_skips_benchmarks_without_extraction(workspace: Workspace) -> None:

    def read_told(instance: dg.DagsterInstance, run_id: str) -> dict[str | None, dict[str, Any]]:
        """Return what a run told Dagster of the cells of extraction that it made."""
        return {
            one.partition: {name: value.value for name, value in one.metadata.items()}
            for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
            if (one := entry.asset_materialization) is not None and one.asset_key == dg.AssetKey("extraction")
        }

    from audit_pipeline.definitions import defs
    from audit_pipeline.pipeline.dagster.partitions import register_partitions
    from audit_pipeline.pipeline.dagster.runs import run_job

    job = defs().resolve_job_def("audit_pairs")
    with dg.DagsterInstance.ephemeral() as instance:
        register_partitions(instance, benchmarks=["made_8", "plain_9"], models=["tiny"])
        pairs = ("made_8|tiny", "plain_9|tiny")
        told = read_told(instance, run_job(job, instance, partition_range=pairs))
        assert "plain_9|tiny" not in told, "the cell stays missing"
        assert told["made_8|tiny"]["status"] == "done"
        assert told["made_8|tiny"]["windows"] == 0, "50 + 50 tokens do not fit into a tiny model"
        told = read_told(instance, run_job(job, instance, partition_range=pairs, tags={"dagster/backfill": "one"}))
        assert told["plain_9|tiny"]["status"] == "not_requested", "a backfill waits for each of its cells"


def test_the_command_searches_a_benchmark_or_a_document(workspace: Workspace) -> None:
    asked = ("extract", "--model", "tiny", "--prefix", "12", "--suffix", "8")
    result = workspace.run(*asked, "--benchmark", "plain_9", "--grid", "--json")
    assert result.exit_code == 0, result.stderr
    assert '"calibrated": true' in result.stdout
    found = query_warehouse(
        workspace.paths.warehouse, "SELECT DISTINCT benchmark, suffix_tokens, grid_settings FROM document_memorisation"
    )
    assert found.to_pylist() == [{"benchmark": "plain_9", "suffix_tokens": 8, "grid_settings": 64}]
    [counted] = query_warehouse(workspace.paths.warehouse, "SELECT count(*) AS n FROM extraction_grid").to_pylist()
    assert counted["n"] == len(json.loads(result.stdout)["grid"]) > 0
    [document, *_] = read_searched_documents("plain_9", workspace.model("tiny"), workspace.paths)
    name = document.name
    result = workspace.run(*asked, "--document", name)
    assert result.exit_code == 0, result.stderr
    assert "Not calibrated" in result.stdout
    for wrong, said in (
        (("--document", "nobody:knows:it"), "the source nobody"),
        (("--document", name.rpartition(":")[0] + ":other"), "has no document"),
        (("--document", "x"), "is not a document id"),
        ((), "Give either --texts FILE"),
        (("--benchmark", "plain_9", "--held-out", str(workspace.root)), "cannot be combined with --benchmark"),
    ):
        result = workspace.run(*asked, *wrong)
        assert (result.exit_code, said in result.stderr) == (2, True), (wrong, result.stderr)
