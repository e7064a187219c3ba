"""Data sets of the hub with the names of the shipped benchmarks and synthetic texts."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from bad_server import fault
from hub_server import STRANGER, TOKEN, HubServer, Repository
from made_repositories import bookmia, files_of, jsonl, mimir, parquet, wikimia

from audit_pipeline.benchmarks.build import compute_digest_from_inputs
from audit_pipeline.benchmarks.config import resolve_benchmarks
from audit_pipeline.store.paths import DataPaths

CallInProcess = Callable[..., Any]
Cli = Callable[..., Any]
WIKIMIA, BOOKMIA, MIMIR = "swj0419/WikiMIA", "swj0419/BookMIA", "iamgroot42/mimir"
SHIPPED = ("wikimia_32", "wikimia_64", "wikimia_online_32", "bookmia_512", "mimir_arxiv", "mimir_wikipedia")
FAMILY = {
    **{"builder": "labelled", "description": "Synthetic.", "words": [4], "exact_words": False, "split": "train"},
    **{"design": "temporal", "calibration_fraction": 0, "licence": "CC0-1.0", "seed": 1},
}
ROWS = [{"input": f"a made up row {number}", "label": number % 2} for number in range(6)]


@pytest.fixture
def shipped(hub: HubServer) -> dict[str, Repository]:
    """Add the data sets of the shipped benchmarks to the hub."""
    made = {WIKIMIA: wikimia(32, 64, 128), BOOKMIA: bookmia(), MIMIR: mimir()}
    return {name: hub.add("dataset", name, files, gated=name == MIMIR) for name, files in made.items()}


def texts_in(content: bytes, column: str) -> list[list[object]]:
    rows = pq.read_table(io.BytesIO(content)).to_pylist()
    return sorted([row[column], row["label"]] for row in rows)


@pytest.mark.slow
def test_the_shipped_benchmarks_are_built_from_the_hub_and_again_offline(
    hub: HubServer,
    call_in_process: CallInProcess,
    shipped: dict[str, Repository],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = dict(zip(SHIPPED, call_in_process("build", *SHIPPED, HF_TOKEN=TOKEN), strict=True))
    assert {name: one.get("error") for name, one in found.items()} == dict.fromkeys(SHIPPED)
    commits = {name: one.refs["main"] for name, one in shipped.items()}
    for words in (32, 64):
        [file] = [content for name, content in wikimia(32, 64).items() if f"length{words}-" in name]
        assert found[f"wikimia_{words}"]["texts"] == texts_in(file, "input")
        assert found[f"wikimia_{words}"]["commits"] == [commits[WIKIMIA]]
    # The same benchmark as from a clone of the repository.
    for name, content in wikimia(32, 64).items():
        written = tmp_path / "clone" / name
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_bytes(content)
    monkeypatch.setenv("CORPUS_AUDIT_WIKIMIA", str(tmp_path / "clone"))
    assert (
        compute_digest_from_inputs(resolve_benchmarks("wikimia_32")[0], DataPaths(tmp_path / "local"))
        == found["wikimia_32"]["digest"]
    )
    monkeypatch.delenv("CORPUS_AUDIT_WIKIMIA")
    assert found["wikimia_online_32"]["commits"] == [commits[WIKIMIA]] * 3
    assert [label for _, label in found["bookmia_512"]["texts"]].count(1) == 6
    assert found["bookmia_512"]["commits"] == [commits[BOOKMIA]]
    members = [text for text, label in found["mimir_arxiv"]["texts"] if label == 1]
    lines = mimir()["cache_100_200_1000_512/train/arxiv_ngram_13_0.8.jsonl"].splitlines()
    assert members == sorted(json.loads(line) for line in lines)
    assert found["mimir_wikipedia"]["commits"] == [commits[MIMIR]] * 2
    for one in found["mimir_wikipedia"]["provenance"]:
        [(name, digest)] = one["files"].items()
        assert digest == hashlib.sha256(mimir()[name]).hexdigest()
    assert not hub.asked("mimir.py"), "a loading script is never fetched"

    hub.stop()
    asked = len(hub.requests)
    offline = call_in_process("build", *SHIPPED, HF_HUB_OFFLINE="1", CORPUS_AUDIT_DATA=str(tmp_path / "offline"))
    assert offline == [found[name] for name in SHIPPED]
    assert len(hub.requests) == asked


def test_unusable_data_sets_raise_errors_with_a_remedy(
    hub: HubServer, call_in_process: CallInProcess, configured: Callable[..., dict[str, str]]
) -> None:
    files = {"data/train.jsonl": jsonl(ROWS)}
    hub.add("dataset", "maker/gated", files, gated=True)
    hub.add("dataset", "maker/open", files)
    hub.add("dataset", "maker/script", {"script.py": b"raise SystemExit\n", "data/x.bin": b"x"})
    configs = "".join(
        f"- config_name: {name}\n  data_files:\n  - split: test\n    path: {name}/test-*\n" for name in ("one", "two")
    )
    of_two = {"one/test-0.parquet": parquet(ROWS), "two/test-0.parquet": parquet(ROWS[:4])}
    hub.add("dataset", "maker/configs", {"README.md": f"---\nconfigs:\n{configs}---\n".encode(), **of_two})
    environment = configured(
        "benchmarks.yaml",
        FAMILY,
        gated={"hub": "maker/gated"},
        gated_file={"hub": "maker/gated", "split": None, "files": ["data/train.jsonl"]},
        none={"hub": "maker/none"},
        revision={"hub": "maker/open", "revision": "v9"},
        split={"hub": "maker/open", "split": "test"},
        file={"hub": "maker/open", "split": None, "files": ["data/test.jsonl"]},
        script={"hub": "maker/script"},
        good={"hub": "maker/open"},
        subset={"hub": "maker/configs", "subset": "two", "split": "test"},
    )
    expected = {
        "gated_4": "the data set maker/gated is gated: accept its terms on the hub, and set HF_TOKEN",
        "gated_file_4": "the data set maker/gated is gated: accept its terms on the hub, and set HF_TOKEN",
        "none_4": "the data set maker/none is not on the hub, or is private: correct the name, or set HF_TOKEN",
        "revision_4": "the data set maker/open has no revision v9",
        "split_4": "split test of the data set maker/open cannot be read (",
        "file_4": "the data set maker/open contains no file data/test.jsonl: correct files",
        "script_4": "split train of the data set maker/script cannot be read (Dataset scripts are no longer supported",
    }
    asked = (*expected, "good_4", "subset_4", ("gated_4", STRANGER))
    *found, good, subset, stranger = call_in_process("build", *asked, **environment)
    for one, message in zip(found, expected.values(), strict=True):
        assert message in one["error"]
        assert "to a folder that contains" in one["error"]
        assert "\n" not in one["error"]
        assert one["transient"] is False
    assert [text for text, _ in good["texts"]] == [row["input"] for row in ROWS]
    assert [text for text, _ in subset["texts"]] == [row["input"] for row in ROWS[:4]]
    [provenance] = subset["provenance"]
    assert (provenance["subset"], provenance["split"], provenance["revision"]) == ("two", "test", None)
    assert "maker/gated is gated, and the account of HF_TOKEN has no access" in stranger["error"]


@pytest.mark.slow
def test_transient_faults_are_retried_or_reported(
    hub: HubServer, call_in_process: CallInProcess, configured: Callable[..., dict[str, str]]
) -> None:
    rows = parquet(ROWS)
    for name in ("busy", "waits", "cut", "down"):
        hub.add("dataset", f"maker/{name}", {"data/train-00000-of-00001.parquet": rows})
    environment = configured(
        "benchmarks.yaml", FAMILY, **{name: {"hub": f"maker/{name}"} for name in ("busy", "waits", "cut", "down")}
    )
    hub.fail("/api/datasets/maker/busy", fault(429, retry_after=30))
    hub.fail("maker/waits/data/", fault(429, retry_after=0))
    hub.cut("maker/cut/data/", after=100)
    hub.fail("/api/datasets/maker/down", fault(503))
    busy, waits, cut, down = call_in_process("build", "busy_4", "waits_4", "cut_4", "down_4", **environment)
    assert (
        "the data set maker/busy cannot be fetched now, because the hub is busy (status 429) and requests a pause of "
        "30 s" in busy["error"]
    )
    assert "the data set maker/down cannot be fetched now, because the hub is busy (status 503)" in down["error"]
    assert (busy["transient"], down["transient"]) == (True, True)
    assert waits["texts"] == cut["texts"] == texts_in(rows, "input")


@pytest.mark.slow
def test_no_other_version_of_a_data_set_is_read(
    hub: HubServer, call_in_process: CallInProcess, configured: Callable[..., dict[str, str]]
) -> None:
    """Without an answer of the hub, `datasets` would use the version that it read last."""
    first = hub.add("dataset", "maker/rows", {"data/train.jsonl": jsonl(ROWS)})
    old = first.refs["main"]
    first.refs["v1"] = old
    new = first.commit({"data/train.jsonl": jsonl(ROWS[:4])})
    entry = {"hub": "maker/rows"}
    environment = configured(
        "benchmarks.yaml", FAMILY, main=entry, v1={**entry, "revision": "v1"}, by_commit={**entry, "revision": old}
    )
    [main] = call_in_process("build", "main_4", **environment)
    assert main.get("error") is None
    assert (main["commits"], len(main["texts"])) == ([new], 4)
    main_again, v1, by_commit = call_in_process(
        "build", "main_4", "v1_4", "by_commit_4", HF_HUB_OFFLINE="1", **environment
    )
    assert main_again == main
    assert "the data set maker/rows is not in the local hub cache, and HF_HUB_OFFLINE forbids requests" in v1["error"]
    assert f"the data set maker/rows is not in the local cache at commit {old}, only at {new}" in by_commit["error"]


@pytest.mark.slow
def test_a_model_of_the_hub_is_audited_on_a_data_set_of_the_hub_and_again_offline(
    hub: HubServer, cli: Cli, shipped: dict[str, Repository], tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    made = hub.add("model", "maker/small", files_of(tiny_folder("llama")))
    config = shutil.copytree(Path(__file__).parent.parent.parent / "config", tmp_path / "config")
    entry = {"hub": "maker/small", "revision": made.refs["main"], "reference_corpus": None}
    (config / "models.yaml").write_text(yaml.safe_dump({"models": {"small": entry}}))

    def scores(data: str, **variables: str) -> list[Any]:
        folders = {"CORPUS_AUDIT_CONFIG": str(config), "CORPUS_AUDIT_DATA": str(tmp_path / data)}
        done = cli("audit", "--model", "small", "--benchmark", "wikimia_32", **folders, **variables)
        assert done.returncode == 0, done.stderr
        out = tmp_path / f"{data}.csv"
        assert cli("export", "scores", "--out", str(out), **folders).returncode == 0
        rows = csv.DictReader(out.read_text().splitlines())
        return sorted((row["example_id"], row["detector"], row["status"], row["score"]) for row in rows)

    online = scores("online")
    assert len(online) > 100
    hub.stop()
    assert scores("offline", HF_HUB_OFFLINE="1") == online
