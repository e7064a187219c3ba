"""The command compare: its table, conclusions and report section."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from made_rows import make_table
from made_workspace import Workspace, count_loads, made_text, make_workspace, quick_folder
from tiny_models import save_model

from audit_pipeline.store import store
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.tables import DOCUMENT_MEMORISATION, MEMBER, NON_MEMBER, Pair
from audit_pipeline.warehouse.query import query_warehouse

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")


def write_rows(folder: Path, side: str, label: int | None, count: int) -> None:
    rows = [{"input": made_text(f"{side} {number}", 12), "label": label} for number in range(count)]
    path = folder / f"{side}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def labelled(workspace: Workspace, *files: str, **changes: object) -> dict[str, object]:
    return {
        **{"builder": "labelled", "description": "made up", "path": str(workspace.root / "rows"), "files": list(files)},
        **{"design": "selected", "words": [12], "seed": 5, **changes},
    }


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """Yield two random models, audited on 30 + 50 texts (40% for thresholds) and on 10 held-out texts."""
    root = tmp_path_factory.mktemp("compare")
    with pytest.MonkeyPatch.context() as patch, quick_folder(root) as folder:
        models = {name: save_model(root / name, seed=seed) for seed, name in enumerate(("base", "edited"))}
        workspace = make_workspace(folder / "made", patch, **models)
        rows = workspace.root / "rows"
        rows.mkdir()
        for side, label, count in (("secret", MEMBER, 30), ("unseen", NON_MEMBER, 50), ("others", NON_MEMBER, 10)):
            write_rows(rows, side, label, count)
        workspace.write_benchmarks(
            shelf=labelled(workspace, "secret.jsonl", "unseen.jsonl", calibration_fraction=0.4),
            others=labelled(workspace, "others.jsonl", calibration_fraction=0, label_column=None, design="unlabelled"),
        )
        for benchmark in ("shelf", "others"):
            workspace.build(benchmark)
            workspace.assess(benchmark)
            for model in models:
                workspace.audit(model, benchmark)
        yield workspace


def asked(workspace: Workspace, *more: str) -> dict[str, Any]:
    done = workspace.run("compare", "--before", "base", "--after", "edited", "--forget", "shelf", *more, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_members_are_compared_with_non_members_and_no_model_is_loaded(
    audited: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = count_loads(monkeypatch)
    done = audited.run("compare", "--before", "base", "--after", "edited", "--forget", "shelf")
    assert done.exit_code == 0, done.output
    assert loaded == []
    # Two models that never read anything, and 18 texts against 30: that is too little to say so.
    assert "These numbers do not settle whether edited has forgotten the texts." in done.stdout
    assert "There are too few texts to say whether the model before knew them" in done.stdout
    assert "no difference from the retrained model: no retrained model was named" in done.stdout
    assert (
        "base was not searched for passages of shelf_12. Search for them: corpus-audit extract --model base "
        "--benchmark "
        "shelf_12" in done.stdout
    )
    rows = query_warehouse(audited.paths.warehouse, "FROM current_unlearning").to_pylist()
    compared = {(row["before"], row["model"], row["benchmark"], row["holdout"], row["retrained"]) for row in rows}
    assert compared == {("base", "edited", "shelf_12", "shelf_12", None)}
    counts = {(row["metric"], row["side"]): row["n"] for row in rows}
    # 40% of either side chose the threshold.
    assert (counts["exact_memorization", "forget"], counts["exact_memorization", "holdout"]) == (18, 30)
    assert counts["suspicious", "holdout"] == 30
    assert query_warehouse(audited.paths.warehouse, "FROM lineage_gaps").num_rows == 0
    (entry,) = query_warehouse(audited.paths.warehouse, "FROM lineage WHERE \"table\" = 'unlearning'").to_pylist()
    upstream = set(json.loads(entry["upstream_data_versions"]))
    read = {"token_statistics/shelf_12|base", "token_statistics/shelf_12|edited", "decisions/shelf_12|base"}
    assert {"examples/shelf_12", *read} <= upstream
    page = next(audited.paths.reports.glob("*edited*.html")).read_text(encoding="utf-8")
    assert "There are too few texts to say whether the model before knew them" in page
    assert "<small>n = 18</small>" in page
    assert "mean over texts; 95% interval over 30 groups by Student" in page


@pytest.mark.usefixtures("no_report")
def test_all_texts_of_one_benchmark_are_compared_with_all_of_another(audited: Workspace) -> None:
    found = asked(audited, "--holdout", "others")
    rows = {(row["metric"], row["role"]): row for row in found["unlearning"]}
    assert (rows["exact_memorization", "after"]["forget"]["n"], rows["unchanged", "change"]["holdout"]["n"]) == (80, 10)
    # The threshold is that of the benchmark that has one, and the texts that chose it are not counted.
    assert rows["suspicious", "change"]["forget"]["n"] == 60
    assert found["outcome"] == "undetermined"
    again = asked(audited, "--holdout", "others")
    assert again["unlearning"] == found["unlearning"]
    held = query_warehouse(audited.paths.warehouse, "FROM current_unlearning WHERE holdout = 'others_12'").to_pylist()
    assert len({row["run_id"] for row in held}) == 1, "the latest of two runs"
    every = query_warehouse(audited.paths.warehouse, "FROM unlearning WHERE holdout = 'others_12'").to_pylist()
    assert len(every) == 2 * len(held)


def test_a_missing_input_is_one_line_with_the_command_to_run(audited: Workspace) -> None:
    audited.write_config("models", {"models": {**audited_models(audited), "new": {"path": str(other_model(audited))}}})
    for forget, arguments, told in (
        (
            "shelf",
            ("--after", "new"),
            "new has not been run on 48 text(s) of shelf_12. Run the model: corpus-audit audit --model new --benchmark",
        ),
        ("shelf", ("--after", "edited", "--retrained", "base"), "The model base is given twice"),
        ("shelf", ("--after", "edited", "--holdout", "shelfs"), "there is no benchmark 'shelfs'; did you mean"),
        ("others", ("--after", "edited"), "others_12 has no texts to be forgotten"),
    ):
        done = audited.run("compare", "--before", "base", "--forget", forget, *arguments)
        assert done.exit_code == 2
        assert told in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_documents_that_are_still_reproduced_are_named(audited: Workspace) -> None:
    """The tables are those of an extraction that found a passage in one of two documents."""
    rows = [
        {
            **{"model": "edited", "benchmark": "shelf_12", "document_id": title, "title": title, "group": title},
            **{"characters": 900, "prefix_tokens": 50, "suffix_tokens": 50, "windows": 3, "reproduced": count},
            **{"side": "audited", "claim": "reproduced" if count else "not reproduced", "run_id": "extracted"},
        }
        for title, count in (("The Kettle", 1), ("Wool", 0))
    ]
    store.write(
        audited.paths,
        LineageStep.now("extracted", "extraction", "1"),
        DOCUMENT_MEMORISATION,
        Pair("shelf_12", "edited"),
        make_table(DOCUMENT_MEMORISATION, rows),
        upstream={},
    )
    found = asked(audited)
    assert found["outcome"] == "still reproduced"
    assert "passages of 1 of 2 documents that it was to forget (The Kettle)" in found["explanation"][0]
    page = next(audited.paths.reports.glob("*edited*.html")).read_text(encoding="utf-8")
    assert f"<b>{found['headline']}</b>" in page
    assert "There are too few texts to say whether the model before knew them" in page


WARNING = "compare again.</p>"


def is_outdated(workspace: Workspace) -> list[bool]:
    """Return whether each comparison is outdated according to the page and its JSON copy."""
    done = workspace.run("report")
    assert done.exit_code == 0, done.output
    page = next(workspace.paths.reports.glob("*edited*.html"))
    copy = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    shown = [not row["is_current"] for row in copy["unlearning"]]
    assert page.read_text(encoding="utf-8").count(WARNING) == sum(shown)
    return shown


@pytest.mark.slow
def test_a_comparison_of_other_texts_or_weights_is_marked(audited: Workspace) -> None:
    """This test changes the inputs of the others, so it is the last."""
    asked(audited)
    asked(audited, "--holdout", "others")
    assert is_outdated(audited) == [False, False]
    write_rows(audited.root / "rows", "others", NON_MEMBER, 12)
    audited.build("others")
    assert sorted(is_outdated(audited)) == [False, True], "that with the other held-out texts"
    audited.audit("edited", "others")
    audited.audit("base", "others")
    asked(audited, "--holdout", "others")
    assert is_outdated(audited) == [False, False]
    save_model(Path(audited_models(audited)["base"]["path"]), seed=11)
    audited.audit("base", "others")
    assert is_outdated(audited) == [True, True], "base was not run on shelf since, and has other weights all the same"


def audited_models(workspace: Workspace) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((workspace.config / "models.yaml").read_text(encoding="utf-8"))["models"]
    return found


def other_model(workspace: Workspace) -> Path:
    return save_model(workspace.root / "new", seed=7)
