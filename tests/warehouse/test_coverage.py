"""The status of every pair while users change data folder and configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from made_data_folder import BENCHMARKS, DAY, MODELS, Folder, make_family, write_config

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.pipeline.registry import get_stage
from audit_pipeline.tables import Pair
from audit_pipeline.warehouse.query import open_read_only


@dataclass
class Audited:
    """The audited folder, with a configuration of its own, and its coverage as it is now."""

    folder: Folder
    config: Any
    unreadable: Sequence[Path] = ()

    def coverage(self) -> dict[tuple[str, str], tuple[str, str | None]]:
        report = build_warehouse(self.folder.paths, config=self.config)
        self.unreadable = [one.path for one in report.left_out]
        with open_read_only(self.folder.paths.warehouse) as connection:
            rows = connection.sql("SELECT model, benchmark, status, reason FROM coverage").fetchall()
        return {(model, benchmark): (status, reason) for model, benchmark, status, reason in rows}

    def changed(self) -> dict[tuple[str, str], tuple[str, str | None]]:
        return {pair: said for pair, said in self.coverage().items() if said != ("done", None)}


@pytest.fixture
def live(audited: Folder, tmp_path: Any) -> Audited:
    return Audited(audited, write_config(tmp_path / "config"))


ALL_DONE = {(model, benchmark): ("done", None) for model in MODELS for benchmark in BENCHMARKS}


def test_a_failure_lasts_until_the_next_successful_run(live: Audited) -> None:
    pair = ("tiny-125m", "speeches_64")
    live.folder.write_outcome(Pair("speeches_64", "tiny-125m"), "r7", "failed", "out of memory")
    assert live.changed() == {pair: ("failed", "out of memory")}
    live.folder.write_audit("speeches_64", "tiny-125m", "r8", DAY + timedelta(days=3))
    assert live.changed() == {}


def test_another_build_of_a_benchmark_and_scores_that_are_not_an_audit(live: Audited) -> None:
    live.folder.change_manifest("notes_32", digest="of another build")
    live.folder.paths.run_file("evaluations", "speeches_64|tiny-125m", "run-0-speeches_64").unlink()
    assert live.changed() == {
        **{(model, "notes_32"): ("stale", "the benchmark was rebuilt") for model in MODELS},
        ("tiny-125m", "speeches_64"): ("missing", "a file of its evaluations is damaged or missing"),
    }


def test_a_benchmark_removed_from_the_configuration_is_stale(live: Audited) -> None:
    write_config(live.config, speeches=make_family("speeches", 64))
    removed = "the benchmark is no longer in the configuration"
    assert live.changed() == {(model, "notes_32"): ("stale", removed) for model in MODELS}
    live.folder.paths.benchmark_manifest("notes_32").unlink()
    gone = "benchmark notes_32: it has not been built"
    assert live.changed() == {(model, "notes_32"): ("stale", gone) for model in MODELS}


def test_a_configuration_that_cannot_be_read_removes_nothing(live: Audited) -> None:
    (live.config / "benchmarks.yaml").write_text("benchmarks: [", encoding="utf-8")
    assert live.coverage() == ALL_DONE


def test_a_new_model_and_a_new_benchmark(live: Audited) -> None:
    families = {source: make_family(source, length) for source, length in BENCHMARKS.values()}
    write_config(live.config, [*MODELS, "new"], **families, more=make_family("notes", 8))
    unbuilt = ("missing", "benchmark more_8: it has not been built")
    assert live.changed() == {
        ("new", "notes_32"): ("missing", "it was never audited"),
        ("new", "speeches_64"): ("missing", "it was never audited"),
        **{(model, "more_8"): unbuilt for model in (*MODELS, "new")},
    }


def test_changed_model_files_make_pairs_stale_until_they_are_back(live: Audited) -> None:
    live.folder.write_card("tiny-125m", "another", first_loaded_at=(DAY + timedelta(days=2)).isoformat())
    changed = ("stale", "the model's files changed")
    assert live.changed() == {("tiny-125m", benchmark): changed for benchmark in BENCHMARKS}
    # Back to the first files: no card tells, since theirs is an old one, but the run that used them does.
    live.folder.write_audit("notes_32", "tiny-125m", "back", DAY + timedelta(days=3))
    assert live.changed() == {}


def test_a_model_that_is_not_configured_is_covered(live: Audited) -> None:
    write_config(live.config, ["tiny-125m"])
    assert live.coverage() == ALL_DONE
    with open_read_only(live.folder.paths.warehouse) as connection:
        outside = connection.sql("SELECT DISTINCT model FROM coverage WHERE NOT is_configured").fetchall()
    assert outside == [("small <2b> $x$",)]


def test_other_inputs_of_a_pair_make_it_stale(live: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(get_stage("evaluations").__dict__, "code_version", "another")
    assert set(live.changed().values()) == {("stale", "the code that evaluates changed")}
    monkeypatch.setitem(get_stage("scores").__dict__, "code_version", "another")
    assert set(live.changed().values()) == {("stale", "the code that scores changed")}
    monkeypatch.undo()
    live.folder.paths.run_file("scores", "speeches_64|tiny-125m", "run-0-speeches_64").write_bytes(b"half")
    gone = "a file of its scores is damaged or missing"
    assert live.changed() == {("tiny-125m", "speeches_64"): ("stale", gone)}
