"""The command line: what people and scripts call, what they are told, and that no bad input ends in a traceback."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from made_files import save_dataset, write_rows
from made_workspace import (
    NEW,
    OLD,
    SOURCE,
    Workspace,
    controlled,
    count_loads,
    enter_workspace,
    made_document,
    made_documents,
    made_text,
    make_workspace,
    partitions_of_controls,
    quick_folder,
    temporal,
    tiny_control,
)
from tiny_models import save_model

from assets import scores
from audit_pipeline.benchmarks.built import read_built
from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.catalogue.lineage import LineageStep
from audit_pipeline.catalogue.paths import model_page
from audit_pipeline.cli import main
from audit_pipeline.detectors.page import plain
from audit_pipeline.detectors.registry import REGISTRY
from audit_pipeline.models.load import TokenizedModel, write_card
from audit_pipeline.operate import situation
from audit_pipeline.operate.stages.benchmarks import assess_split
from audit_pipeline.sources import local_files
from audit_pipeline.sources.base import MissingPart
from audit_pipeline.sources.registry import all_sources

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")

LABELLED = {
    "builder": "labelled",
    "description": "rows of somebody else",
    "split": "Rows",
    "words": [8],
    "design": "temporal",
    "calibration_fraction": 0,
    "seed": 5,
}


@pytest.fixture
def workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]
) -> Iterator[Workspace]:
    """A model, a family that could be built, nothing produced yet."""
    with quick_folder(tmp_path) as folder:
        made = make_workspace(folder / "made", monkeypatch, tiny=tiny_folder("llama"))
        made.write_benchmarks(made=temporal([8, 12]))
        made.hold(*made_documents(2, 40))
        yield made


@pytest.fixture(scope="module")
def audited_root(
    tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path], one_thread: None
) -> Iterator[tuple[Path, Result]]:
    """A workspace in which one audit has been run, and what that printed; not to be changed."""
    with quick_folder(tmp_path_factory.mktemp("audited")) as folder:
        with pytest.MonkeyPatch.context() as patch:
            made = make_workspace(folder / "made", patch, tiny=tiny_folder("llama"))
            made.write_benchmarks(made=temporal([8, 12]), other=temporal([10]))
            made.hold(*made_documents(2, 40))
            result = made.run("audit", "--model", "tiny", "--benchmark", "made")
        yield made.root, result


@pytest.fixture
def audited(audited_root: tuple[Path, Result], monkeypatch: pytest.MonkeyPatch) -> Workspace:
    return enter_workspace(audited_root[0], monkeypatch)


@pytest.fixture
def audited_copy(
    audited_root: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workspace]:
    """A copy of it that a test may change."""
    with quick_folder(tmp_path) as folder:
        yield enter_workspace(shutil.copytree(audited_root[0], folder / "copy"), monkeypatch)


def error_of(result: Result) -> str:
    """The one line that a user is left with, after the steps and the progress that were told before it."""
    assert result.exit_code == 2, result.output
    *before, last = result.stderr.splitlines()
    assert all(line.startswith("• ") or "tokens, " in line for line in before), result.stderr
    assert last.startswith("Error: ")
    assert "Traceback" not in result.output
    return last.removeprefix("Error: ")


def told(result: Result) -> str:
    """What a command that worked printed."""
    assert result.exit_code == 0, result.output
    return result.stdout


def length_of(model: TokenizedModel, text: str) -> int:
    """How many tokens the tokenizer makes of a text, its own special ones included."""
    return len(model.tokenizer.encode([text], add_special_tokens=True)[0].ids)


def texts_file(folder: Path, *texts: str, name: str = "texts.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(json.dumps({"input": text}) for text in texts), encoding="utf-8")
    return path


# Help, and what the front door costs.


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_command_explains_itself(workspace: Workspace, command: str) -> None:
    shown = told(workspace.run(command, "--help"))
    assert shown.startswith("Usage: ")
    # The first line of its purpose, in the list of commands too.
    assert (main.commands[command].help or "").split("\n")[0][:20] in shown
    assert command in told(workspace.run("--help"))


def test_the_commands_are_those_that_scripts_rely_on() -> None:
    stable = {"audit", "score", "count", "detectors", "models", "benchmarks", "report", "sql", "doctor", "dev"}
    assert stable <= set(main.commands)


@pytest.mark.parametrize("arguments", [["--help"], ["sql", "SELECT count(*) FROM leaderboard"], ["models"]])
def test_what_should_answer_at_once_needs_no_heavy_package(audited: Workspace, arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from audit_pipeline.cli import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        "print(sorted({'torch', 'transformers', 'dagster'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_there_is(audited: Workspace) -> None:
    shown = told(audited.run("detectors", "--long"))
    for name, detector in REGISTRY.items():
        assert name in shown
        assert detector.passes in shown
        assert detector.source in shown
        assert all(need.summary in shown for need in detector.needs)
    assert "neighbour (on request)" in shown
    assert "k (0.2)" in shown
    assert told(audited.run("detectors", "combined")).splitlines() == plain(REGISTRY["combined"]).splitlines()
    assert "did you mean min_k?" in error_of(audited.run("detectors", "mink"))
    shown = told(audited.run("models", "--long"))
    assert "tiny" in shown
    assert "float32" in shown
    lines = told(audited.run("benchmarks", "--long")).splitlines()
    built = next(line for line in lines if line.startswith("made_8"))
    members = sum(label == 1 for label in read_built(audited.paths, "made_8").examples.column("label").to_pylist())
    assert built.split()[:6] == ["made_8", "8", "temporal", "yes", str(members), str(members)]
    assert next(line for line in lines if line.startswith("other_10")).split()[3:6] == ["no", "-", "-"]


def test_which_pairs_have_findings(audited: Workspace) -> None:
    assert situation.is_evaluated(Pair("made_8", "tiny"), audited.paths)
    assert not situation.is_evaluated(Pair("other_10", "tiny"), audited.paths)


@pytest.mark.parametrize("command", ["detectors", "models", "benchmarks"])
def test_what_there_is_in_lines_of_100_columns(command: str) -> None:
    """Of the configuration that is shipped."""
    lines = told(CliRunner().invoke(main, [command], catch_exceptions=False)).splitlines()
    [rows] = answered(CliRunner().invoke(main, [command, "--json"], catch_exceptions=False)).values()
    assert max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines[1:]] == [row[command.removesuffix("s")] for row in rows]


# Bad input.


def broken_models(folder: Path, tiny: Path) -> dict[str, Path]:
    cut = shutil.copytree(tiny, folder / "cut")
    [weights] = cut.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1000])
    (folder / "cut.gguf").write_bytes(b"GGUF" + bytes(40))
    without = shutil.copytree(tiny, folder / "without", ignore=shutil.ignore_patterns("*.safetensors"))
    return {"cut": cut, "cut.gguf": folder / "cut.gguf", "without": without}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("tinny", "did you mean tiny?"),
        ("no such model", "configured: tiny"),
        ("a|b", "holds no '|'"),
        ("/nowhere/model", "no model at /nowhere/model: the path does not exist"),
        ("nowhere.gguf", "the path does not exist"),
        ("cut", "fetch it again"),
        ("cut.gguf", "fetch it again"),
        ("without", "holds no weights"),
    ],
)
@pytest.mark.parametrize("command", ["score", "audit"])
def test_models_that_cannot_be_had(
    audited_copy: Workspace, tmp_path: Path, tiny_folder: Callable[[str], Path], command: str, model: str, message: str
) -> None:
    given = str(broken_models(tmp_path, tiny_folder("llama")).get(model, model))
    if command == "score":
        out = tmp_path / "out.parquet"
        result = audited_copy.run("score", "--model", given, "--texts", texts_file(tmp_path, "a text"), "--out", out)
        assert not out.exists()
    else:
        before = audited_copy.runs()
        result = audited_copy.run("audit", "--model", given, "--benchmark", "made_8", "--refresh")
        if model != "cut":
            assert "•" not in result.stderr, "nothing is fetched for a model that cannot be had"
            assert len(audited_copy.runs()) == len(before)
            with audited_copy.instance() as instance:
                assert list(instance.get_dynamic_partitions("model")) == ["tiny"]
    assert message in error_of(result)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.jsonl", None, "no such file"),
        ("empty.jsonl", b"", "holds no rows"),
        ("empty.txt", b"\n\n", "holds no rows"),
        ("bad.jsonl", b'{"input": \n[1]\n', "none of its 2 rows can be used; the first, bad.jsonl:1: broken JSON"),
        ("bytes.jsonl", b'{"input": "caf\xe9"}\n', "invalid UTF-8 at byte"),
        (
            "other.jsonl",
            b'{"body": "x", "title": "y"}',
            "which column holds the text; the columns are: body, title",
        ),
        ("texts.docx", b"PK", "cannot tell its format from its name"),
        ("utf16.csv", "text\nx\n".encode("utf-16"), "is in UTF-16; save it as UTF-8"),
        ("torn.parquet", b"PAR1 torn", "not a readable Parquet file"),
    ],
)
def test_files_that_cannot_be_scored(
    workspace: Workspace, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    out = tmp_path / "out.parquet"
    result = workspace.run("score", "--model", "tiny", "--texts", tmp_path / name, "--out", out)
    assert message in error_of(result)
    assert not out.exists()
    assert not workspace.parts()


def test_the_prefix_options_meet_the_need_or_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    texts = texts_file(tmp_path, "a text", "another")
    known = texts_file(tmp_path, "QA", "QB", "QC", name="known.jsonl")
    base = ("score", "--model", "tiny", "--texts", texts, "--out", tmp_path / "s.parquet")
    of_recall = ("--detectors", "recall")
    assert "--prefix-texts has no effect" in error_of(
        workspace.run(*base, "--detectors", "loss", "--prefix-texts", known)
    )
    assert "name a file of texts known to be non-members" in error_of(workspace.run(*base, *of_recall))
    assert "name a file of texts" in error_of(workspace.run(*base, "--set", "recall.shots=2"))
    assert "takes the texts of 7 known non-members" in error_of(workspace.run(*base, "--prefix-texts", known))
    assert not (tmp_path / "s.parquet").exists()
    told(workspace.run(*base, *of_recall, "--prefix-texts", known, "--set", "recall.shots=2"))
    assert {row["status"] for row in scores_of(tmp_path / "s.parquet").values()} == {"ok"}
    # Whoever gives none and names none of these detectors is told in the table.
    told(workspace.run(*base))
    assert "--prefix-texts" in scores_of(tmp_path / "s.parquet")[0, "recall", '{"shots":7}']["reason"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--detectors", "loss,min_kk"), "there is no detector 'min_kk'; did you mean min_k"),
        (("--detectors", ","), "no detector is chosen"),
        (("--detectors", "recall"), "name a file of texts known to be non-members with --prefix-texts"),
        (("--set", "min_k=0.3"), "is not of the form DETECTOR.PARAMETER=VALUE"),
        (("--set", "min_k.q=0.3"), "has no parameter 'q'"),
        (("--set", "min_k.k=zero"), "min_k.k: 'zero' is not a number"),
        (("--set", "min_k.k=1.5"), "is not a number above 0 and at most 1"),
        (("--set", "loss.k=1"), "detector 'loss' has no parameters"),
        (("--set", "min_k.k=.1", "--set", "min_k.k=.2"), "set twice"),
        (("--detectors", "loss", "--set", "min_k.k=.1"), "not among those chosen"),
        (("--text-column", "body"), "no column 'body'; the columns are: input"),
    ],
)
def test_options_that_mean_nothing(
    workspace: Workspace, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    texts = texts_file(tmp_path, "a text")
    result = workspace.run("score", "--model", "tiny", "--texts", texts, "--out", tmp_path / "o.parquet", *options)
    assert message in error_of(result)


@pytest.mark.parametrize(
    ("file", "content", "command", "message"),
    [
        ("models", "models: [", ("models",), "is not readable YAML"),
        ("models", "models: [", ("audit", "--model", "tiny", "--benchmark", "made"), "is not readable YAML"),
        ("benchmarks", "benchmarks: [", ("benchmarks",), "cannot be read"),
        ("benchmarks", "benchmarks: {}", ("audit", "--model", "tiny", "--benchmark", "made"), "holds no family"),
        ("sources", "release_notes: 3", ("benchmarks", "--build", "made"), "section release_notes: must be a mapping"),
        ("sources", "sources: [", ("benchmarks", "--build", "made"), "is not readable YAML"),
    ],
)
def test_configurations_that_cannot_be_used(
    workspace: Workspace, file: str, content: str, command: tuple[str, ...], message: str
) -> None:
    workspace.write_config(file, content)
    error = error_of(workspace.run(*command))
    assert message in error
    assert f"{file}.yaml" in error


def test_a_configuration_that_is_missing(workspace: Workspace) -> None:
    (workspace.config / "models.yaml").unlink()
    assert "models.yaml is missing" in error_of(workspace.run("models"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("audit", "--model", "tiny"),
        ("audit", "--model", "tiny", "--benchmark", "made", "--kinds", "base,logit"),
        ("audit", "--model", "tiny", "--benchmark", "made", "--logits-budget-gb", "-1"),
        ("score", "--model", "tiny", "--texts", "t.jsonl", "--out", "."),
        ("score", "--model", "tiny", "--texts", "t.jsonl", "--out", "o.parquet", "--dtype", "float8"),
        ("sql",),
        ("nothing",),
    ],
)
def test_usage_errors_are_clicks_own(workspace: Workspace, arguments: tuple[str, ...]) -> None:
    result = workspace.run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in result.output
    assert not workspace.runs()


def test_what_the_machine_refuses_is_one_line_too(workspace: Workspace, tmp_path: Path) -> None:
    texts = texts_file(tmp_path, "a text")
    result = workspace.run("score", "--model", "tiny", "--texts", texts, "--out", texts / "below" / "o.parquet")
    assert str(texts) in error_of(result)
    workspace.monkeypatch.setenv("CORPUS_AUDIT_DATA", str(texts))
    assert str(texts) in error_of(workspace.run("report"))
    assert str(texts) in error_of(workspace.run("audit", "--model", "tiny", "--benchmark", "made"))


# Scoring a file.


def scores_of(path: Path) -> dict[tuple[int, str, str], dict[str, Any]]:
    rows = pq.read_table(path).to_pylist()
    found = {(row["example_index"], row["detector"], row["parameters"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def test_rows_good_and_bad_and_odd(workspace: Workspace, tmp_path: Path) -> None:
    model = workspace.model("tiny")
    [one_token] = [text for text in ("!",) if length_of(model, text) == 1]
    lines = [
        json.dumps({"input": "a plain text of some words", "label": 1}).encode(),
        b'{"input": "broken',
        b'{"input": "caf\xe9"}',
        b'{"input": "lone \\ud800 surrogate"}',
        json.dumps({"input": one_token, "label": 0}).encode(),
        json.dumps({"input": "😀🎉👩‍👩‍👧"}).encode(),
        json.dumps({"input": "a plain text of some words"}).encode(),
        json.dumps({"input": "<script>alert(1)</script> [bold]x[/bold]"}).encode(),
        b"{}",
    ]
    (tmp_path / "t.jsonl").write_bytes(b"\n".join(lines))
    out = tmp_path / "new folder" / "s.parquet"
    arguments = (
        "score",
        "--model",
        "tiny",
        "--texts",
        tmp_path / "t.jsonl",
        "--out",
        out,
        "--detectors",
        "loss,zlib,min_k,min_k_plus_plus",
        "--start-token",
        "tokenizer",
    )
    result = workspace.run(*arguments)
    assert told(result).startswith("20 scores in ")
    skips = result.stderr[result.stderr.index("4 row(s) skipped:") :].splitlines()
    assert [line.split(": ")[0].strip() for line in skips[1:5]] == [f"t.jsonl:{number}" for number in (2, 3, 4, 9)]
    assert "5 texts: 0 from the cache, 3 computed" in skips[5]

    rows = scores_of(out)
    assert {index for index, _, _ in rows} == {0, 4, 5, 6, 7}, "places in the file, bad rows counted"
    for (index, _, _), row in rows.items():
        if index == 4:
            assert (row["status"], row["reason"]) == ("not_applicable", "the text has no scored token")
            assert row["score"] is None
        else:
            assert (row["status"], row["reason"]) == ("ok", None)
    for (_, detector, parameters), row in rows.items():
        assert rows[0, detector, parameters]["score"] == rows[6, detector, parameters]["score"], "the same text"
        assert row["detector"] in REGISTRY

    # With a start token in front the one token is scored.
    workspace.run(*arguments[:-2])
    assert scores_of(out)[4, "loss", "{}"]["status"] == "ok"


def test_a_spreadsheets_csv_and_what_was_taken_of_it(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('text;label\n"one, two; three";1\nfour five;0\n')
    out = tmp_path / "s.parquet"
    arguments = ("score", "--model", "tiny", "--texts", tmp_path / "t.csv", "--out", out, "--detectors", "loss")
    result = workspace.run(*arguments)
    assert "2 texts: 0 from the cache, 2 computed" in result.stderr
    first, second, *_ = result.stderr.splitlines()
    said = f"• {tmp_path / 't.csv'}: read as CSV with ';' between fields and '\"' as quote; columns: text, label"
    assert (first, second) == (said, "• t.csv: 2 row(s)")
    assert "1 + 1" in told(result)
    assert {row["status"] for row in scores_of(out).values()} == {"ok"}


def test_standard_input_and_a_data_set_on_disk(workspace: Workspace, tmp_path: Path) -> None:
    texts = ["one text", "another text"]
    save_dataset(tmp_path / "saved", [{"text": text} for text in texts])
    base = ("score", "--model", "tiny", "--detectors", "loss", "--out", str(tmp_path / "s.parquet"), "--texts")
    told(workspace.run(*base, tmp_path / "saved"))
    saved = scores_of(tmp_path / "s.parquet")
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    result = CliRunner().invoke(main, [*base, "-"], input=lines)
    assert result.stderr.splitlines()[:2] == [
        "• reading lines of JSON from standard input",
        "• standard input: 2 row(s)",
    ]
    assert "2 texts: 2 from the cache, 0 computed" in result.stderr
    assert scores_of(tmp_path / "s.parquet") == saved
    refused = CliRunner().invoke(main, [*base, "-"], input=bytes(range(256)))
    assert "standard input: is read as lines of JSON, and this is no text" in error_of(refused)


def test_scores_from_the_cache_and_given_ones_need_no_heavy_package(workspace: Workspace, tmp_path: Path) -> None:
    texts, out = texts_file(tmp_path, "one text", "another text"), tmp_path / "s.parquet"
    score = ["score", "--model", "tiny", "--texts", str(texts), "--out", str(out)]
    told(workspace.run(*score))
    rows = "".join(f"{number % 17},{number % 2}\n" for number in range(100))
    (tmp_path / "given.csv").write_text(f"score,label\n{rows}", encoding="utf-8")
    for command in (score, ["evaluate", "--scores", str(tmp_path / "given.csv")]):
        code = (
            "import sys\n"
            "from audit_pipeline.cli import main\n"
            f"main({command!r}, standalone_mode=False)\n"
            "print(sorted({'torch', 'transformers', 'dagster'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]", command


def test_how_much_there_is_is_said_before_anything_heavy_is_imported(workspace: Workspace, tmp_path: Path) -> None:
    """The first line of a long file comes at once; importing what runs a model takes seconds."""
    texts = texts_file(tmp_path, *(f"text {number}" for number in range(3000)))
    code = (
        "import sys\n"
        "from audit_pipeline.cli import main, scoring\n"
        "def first(what):\n"
        "    print(what, sorted({'torch', 'transformers', 'dagster'} & set(sys.modules)))\n"
        "    raise SystemExit\n"
        "scoring.tell_step = first\n"
        f"main(['score', '--model', 'tiny', '--texts', {str(texts)!r}, '--out', 'o.parquet'], standalone_mode=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"texts\.jsonl: about (29|30|31)\d\d row\(s\) \[\]", done.stdout.strip().replace(",", ""))


def test_a_label_column_that_is_not_there_is_said_only_where_it_was_named(workspace: Workspace, tmp_path: Path) -> None:
    base = ("score", "--model", "tiny", "--texts", texts_file(tmp_path, "a text"), "--out", tmp_path / "s.parquet")
    named = workspace.run(*base, "--label-column", "side")
    assert "no row has the column 'side', so there is no AUROC" in named.stderr
    assert "no row has the column" not in workspace.run(*base).stderr


def test_the_second_call_loads_no_model(workspace: Workspace, tmp_path: Path) -> None:
    texts, out = texts_file(tmp_path, "one text", "another text"), tmp_path / "s.parquet"
    first = workspace.run("score", "--model", "tiny", "--texts", texts, "--out", out)
    assert "• loading tiny" in first.stderr
    assert "2 texts: 0 from the cache, 2 computed" in first.stderr
    before = scores_of(out)
    out.unlink()
    second = workspace.run("score", "--model", "tiny", "--texts", texts, "--out", out)
    assert "loading" not in second.stderr
    assert "2 texts: 2 from the cache, 0 computed" in second.stderr
    assert scores_of(out) == before
    assert not workspace.runs(), "no Dagster in it"


def test_what_scored_no_text_and_that_one_of_several_is_chosen_beforehand(workspace: Workspace, tmp_path: Path) -> None:
    rows = [{"text": made_text(str(number), 9), "label": number % 2} for number in range(8)]
    file = write_rows(tmp_path / "t.jsonl", rows)
    base = ("score", "--model", "tiny", "--texts", file, "--out", tmp_path / "s.parquet", "--detectors")
    one = workspace.run(*base, "loss,combined")
    assert "best of several" not in told(one)
    assert [line for line in one.stderr.splitlines() if "scored no text" in line] == [
        "combined scored no text: a text is ranked among all texts of a benchmark, and a file is scored in parts:"
        " make the texts a benchmark (config/benchmarks.yaml) and audit that"
    ]
    several = workspace.run(*base, "loss,zlib")
    assert "The best of several looks better than it is. Choose the one to quote beforehand." in told(several)
    assert "scored no text" not in several.stderr


def test_the_grid_and_what_is_set(workspace: Workspace, tmp_path: Path) -> None:
    texts, out = texts_file(tmp_path, "one text", "another text"), tmp_path / "s.parquet"
    base = ("score", "--model", "tiny", "--texts", texts, "--out", out)

    def settings(*options: str) -> list[tuple[str, str]]:
        told(workspace.run(*base, *options))
        rows = scores_of(out)
        labels = [(detector, parameters) for index, detector, parameters in rows if index == 0]
        assert [(detector, parameters) for index, detector, parameters in rows if index == 1] == labels
        return labels

    ks = ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1.0"]
    grid = settings("--grid")
    assert {("loss", "{}"), ("zlib", "{}"), ("lowercase", "{}")} <= set(grid)
    for detector in ("min_k", "min_k_plus_plus"):
        own = [json.loads(parameters) for name, parameters in grid if name == detector]
        assert [(one["k"], one.get("window", 1)) for one in own] == [
            (float(k), window) for k in ks for window in (1, 3)
        ]
        assert (detector, '{"k":0.3}') in grid, "0.3, not 0.30000000000000004"
    assert settings("--detectors", "min_k,loss") == [("min_k", '{"k":0.2}'), ("loss", "{}")]
    assert settings("--detectors", "min_k", "--set", "min_k.k=.35") == [("min_k", '{"k":0.35}')]
    fixed = settings("--grid", "--set", "min_k.k=0.5")
    assert [parameters for name, parameters in fixed if name == "min_k"] == ['{"k":0.5}', '{"k":0.5,"window":3}']
    assert len([name for name, _ in fixed if name == "min_k_plus_plus"]) == 2 * len(ks)


def test_other_files_columns_and_a_dtype(workspace: Workspace, tmp_path: Path) -> None:
    out = tmp_path / "s.parquet"
    (tmp_path / "t.csv").write_text('body,side\n"a text, with a comma",1\nanother,0\n')
    pq.write_table(pa.table({"text": ["a text", None, "b text"]}), tmp_path / "t.parquet")
    (tmp_path / "t.txt").write_text("one line\n\nanother line\n")
    for name, options, places in (
        ("t.csv", ("--text-column", "body", "--label-column", "side"), {0, 1}),
        ("t.parquet", ("--label-column", "no such column"), {0, 2}),
        ("t.txt", ("--dtype", "bfloat16", "--device", "cpu"), {0, 1}),
    ):
        told(workspace.run("score", "--model", "tiny", "--texts", tmp_path / name, "--out", out, *options))
        assert {index for index, _, _ in scores_of(out)} == places, name
    assert len(workspace.parts()) == 2, "another dtype is another model to the cache"


@pytest.mark.slow
def test_a_text_of_a_hundred_thousand_words(workspace: Workspace, tmp_path: Path) -> None:
    context = 4096
    folder = save_model(tmp_path / "long", "llama", max_position_embeddings=context)
    workspace.write_models(long={"path": folder, "stride": context - 2})
    text = " ".join(random.Random(3).choices(["the", "boats", "and", "a", "model", "is"], k=100_000))
    texts, out = texts_file(tmp_path, "a short text", text), tmp_path / "s.parquet"
    detectors = ("--detectors", "zlib,min_k_plus_plus,lowercase,infilling", "--set", "infilling.m=1")
    result = workspace.run("score", "--model", "long", "--texts", texts, "--out", out, *detectors)
    assert "2 texts: 0 from the cache, 2 computed" in result.stderr
    assert [row["status"] for row in scores_of(out).values()] == ["ok"] * 8
    part = workspace.parts()[0]
    tokens = [len(row) for row in pq.read_table(part, columns=["token_id"], partitioning=None)["token_id"].to_pylist()]
    assert sorted(tokens)[-1] == length_of(workspace.model("long"), text) >= 100_000


# Counting.


def test_count_says_what_it_counted(workspace: Workspace, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.jsonl").write_text('{"text": "the boats", "n": 1}\n{broken\n')
    (corpus / "b.txt").write_text("<s> the boats </s>\n")
    result = workspace.run("count", "--corpus", corpus, "--tokenizer", "tiny", "--out", tmp_path / "f.parquet")
    tokenizer = workspace.model("tiny").tokenizer
    special = tokenizer.special_ids
    encoded = tokenizer.encode(["the boats", "<s> the boats </s>"], add_special_tokens=True)
    ids = [one for text in encoded for one in text.ids]
    expected = Counter(one for one in ids if one not in special)
    assert told(result).startswith(f"{sum(expected.values())} tokens in 2 texts, {len(expected)} distinct, in ")
    assert "1 row(s) skipped:" in result.stderr
    assert "a.jsonl:2: broken JSON" in result.stderr
    rows = pq.read_table(tmp_path / "f.parquet").to_pylist()
    assert {row["token_id"]: row["count"] for row in rows if row["count"]} == expected


def test_what_cannot_be_counted(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    for corpus, tokenizer, message in (
        (tmp_path / "nowhere", "tiny", "no such file or folder"),
        (tmp_path / "nothing", "tiny", "holds no file of a kind that can be read"),
        (texts_file(tmp_path, "a text"), "tinny", "did you mean tiny?"),
    ):
        out = tmp_path / "f.parquet"
        assert message in error_of(workspace.run("count", "--corpus", corpus, "--tokenizer", tokenizer, "--out", out))
        assert not out.exists()


# Auditing.


def tables_of_findings(shown: str) -> dict[str, list[str]]:
    """The lines of each benchmark's table, by benchmark, its head left out."""
    blocks = [block.splitlines() for block in shown.split("\n\n")]
    tables = {
        lines[0].partition(":")[0]: [line.rstrip() for line in lines[2:] if " scored " not in line]
        for lines in (block[1:] if not block[0] else block for block in blocks)
        if len(lines) > 1 and lines[1].startswith("detector ")
    }
    assert set(tables) == {"made_8", "made_12"}
    return tables


def test_an_audit_ends_with_findings_and_the_way_to_the_report(audited_root: tuple[Path, Result]) -> None:
    root, result = audited_root
    shown = told(result)
    for benchmark, table in tables_of_findings(shown).items():
        for detector in ("loss", "zlib", "min_k k=0.2", "min_k_plus_plus k=0.2"):
            assert any(line.startswith(f"{detector} ") for line in table)
        assert f"{benchmark}: screening only; split: undetermined" in shown
        assert f"{benchmark}|tiny: 0 texts from the cache, " in result.stderr
    assert f"Report: {root / 'data' / 'reports' / 'contamination_report.html'}" in shown
    steps = [line for line in result.stderr.splitlines() if line.startswith("• ")]
    assert steps == [
        f"• fetching documents: {SOURCE}",
        "• building benchmark: made_8",
        "• building benchmark: made_12",
        "• auditing tiny on made_8, made_12",
        "• rebuilding warehouse and report",
    ]
    assert "tokens" in result.stderr, "progress was shown"


def test_without_a_command_it_says_what_is_there_and_what_to_do_next(audited: Workspace) -> None:
    shown = told(audited.run())
    assert "1 model audited on 2 benchmarks, in " in shown
    assert str(audited.paths.report) in shown
    suggested = [line.split("corpus-audit ")[1] for line in shown.splitlines() if "corpus-audit " in line]
    # other_10 is configured and was not audited.
    assert suggested[:2] == ["report --open", 'sql "FROM not_audited"']
    assert len(json.loads(told(audited.run("sql", "FROM not_audited", "--json")))["rows"]) == 1


def test_a_second_audit_runs_nothing_and_needs_no_heavy_package(audited: Workspace) -> None:
    before = {path: path.stat().st_mtime_ns for path in audited.paths.root.rglob("*") if path.is_file()}
    code = (
        "import sys\n"
        "from audit_pipeline.cli import main\n"
        "main(['audit', '--model', 'tiny', '--benchmark', 'made'], standalone_mode=False)\n"
        "print(sorted({'torch', 'transformers', 'dagster'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *shown, heavy = done.stdout.splitlines()
    assert heavy == "[]"
    assert done.stderr == "• tiny on made_8, made_12: everything is up to date, nothing is run\n"
    assert "made_8: screening only; split: undetermined" in done.stdout
    assert shown[-1] == f"Report: {audited.paths.report}"
    after = {path: path.stat().st_mtime_ns for path in audited.paths.root.rglob("*") if path.is_file()}
    assert after == before


AUDITED, PUBLISHED = "• auditing tiny on made_8", "• rebuilding warehouse and report"


def again(workspace: Workspace, *options: str, because: str) -> list[str]:
    """Audit once more: something is to be done, and a dry run says why, but no text is run. What was done."""
    loads, parts = count_loads(workspace.monkeypatch), workspace.parts()
    command = ("audit", "--model", "tiny", "--benchmark", "made_8", *options)
    [plan] = json.loads(told(workspace.run(*command, "--dry-run", "--json")))["plans"]
    assert plan["because"] == because
    result = workspace.run(*command)
    told(result)
    assert (loads, workspace.parts()) == ([], parts)
    if "made_8|tiny: " in result.stderr:
        texts = len(read_built(workspace.paths, "made_8").examples)
        assert f"made_8|tiny: {texts} texts from the cache, 0 computed" in result.stderr
    return [line for line in result.stderr.splitlines() if line.startswith("• ")]


@pytest.mark.parametrize("stage", ["scores", "evaluations"])
def test_other_code_runs_a_pair_again_from_the_stage_that_it_is_of(audited_copy: Workspace, stage: str) -> None:
    audited_copy.monkeypatch.setattr(scores, f"{stage.upper()}_VERSION", "another")
    audited_copy.monkeypatch.setitem(situation.CODE, stage, "another")
    what = {"scores": "scores", "evaluations": "evaluates"}[stage]
    assert again(audited_copy, because=f"the code that {what} changed since") == [AUDITED, PUBLISHED]
    for table, runs in (("scores", 2 if stage == "scores" else 1), ("evaluations", 2)):
        history = f"SELECT count(DISTINCT run_id) AS runs FROM {table} WHERE benchmark = 'made_8'"
        assert json.loads(told(audited_copy.run("sql", history, "--format", "json"))) == {"runs": runs}
        current = f"SELECT count(DISTINCT run_id) AS runs FROM current_{table} WHERE benchmark = 'made_8'"
        assert json.loads(told(audited_copy.run("sql", current, "--format", "json"))) == {"runs": 1}
    assert "0 row(s)" in told(audited_copy.run("sql", "SELECT * FROM lineage_gaps"))
    states = told(audited_copy.run("sql", "SELECT DISTINCT reason FROM coverage WHERE benchmark = 'made_8'"))
    assert "changed since" not in states


def test_of_several_pairs_only_those_that_are_not_done_are_run(audited_copy: Workspace) -> None:
    audited_copy.write_benchmarks(made=temporal([8, 10, 12]))
    loads = count_loads(audited_copy.monkeypatch)
    result = audited_copy.run("audit", "--model", "tiny", "--benchmark", "made")
    told(result)
    assert [line for line in result.stderr.splitlines() if line.startswith("• ")] == [
        "• building benchmark: made_10",
        "• auditing tiny on made_10",
        PUBLISHED,
    ]
    assert loads == ["tiny"]
    runs = "SELECT benchmark, count(DISTINCT run_id) AS runs FROM evaluations GROUP BY ALL ORDER BY ALL"
    found = [json.loads(line) for line in told(audited_copy.run("sql", runs, "--format", "json")).splitlines()]
    assert [(row["benchmark"], row["runs"]) for row in found] == [("made_10", 1), ("made_12", 1), ("made_8", 1)]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            {"start_token_policy": "tokenizer"},
            "the start token, the window or the form of the token statistics changed since",
        ),
        ({"window": 16}, "the start token, the window or the form of the token statistics changed since"),
        ({"reference_model": "other"}, "the reference model changed since"),
    ],
)
def test_coverage_says_of_a_pair_what_its_audit_says(
    audited_copy: Workspace, tiny_folder: Callable[[str], Path], changed: Mapping[str, Any], why: str
) -> None:
    folder = tiny_folder("llama")
    audited_copy.write_models(tiny={"path": folder, **changed}, other={"path": tiny_folder("gpt_neox")})
    # So that the reference model was seen once.
    write_card(audited_copy.model("other"), audited_copy.paths)
    told(audited_copy.run("report"))
    statement = "SELECT status, reason FROM coverage WHERE (model, benchmark) = ('tiny', 'made_8')"
    said = json.loads(told(audited_copy.run("sql", statement, "--format", "json")))
    assert said == {"status": "stale", "reason": why}
    [plan] = json.loads(
        told(audited_copy.run("audit", "--model", "tiny", "--benchmark", "made_8", "--dry-run", "--json"))
    )["plans"]
    assert plan["because"] == why


def test_a_split_of_an_earlier_version_is_assessed_again_and_coverage_and_dry_run_say_so(
    audited_copy: Workspace,
) -> None:
    paths, why = audited_copy.paths, "the code that assesses the split changed since"
    assess_split(read_built(paths, "made_8"), paths, LineageStep.now("older", "split_quality", "0"))
    told(audited_copy.run("report"))
    statement = "SELECT status, reason FROM coverage WHERE (model, benchmark) = ('tiny', 'made_8')"
    said = json.loads(told(audited_copy.run("sql", statement, "--format", "json")))
    assert said == {"status": "stale", "reason": why}
    # It comes out as it was: nothing that was made of it is made again, and the warehouse holds it.
    assert again(audited_copy, because=why) == ["• assessing the split of made_8", PUBLISHED]
    assert json.loads(told(audited_copy.run("sql", statement, "--format", "json"))) == {
        "status": "done",
        "reason": None,
    }


def test_what_is_done_is_audited_again_where_that_is_asked(audited_copy: Workspace) -> None:
    assert again(audited_copy, "--again", because="it is asked for again") == [AUDITED, PUBLISHED]
    history = "SELECT count(DISTINCT run_id) AS runs FROM evaluations WHERE benchmark = 'made_8'"
    assert json.loads(told(audited_copy.run("sql", history, "--format", "json"))) == {"runs": 2}


def test_what_was_published_is_published_again_where_it_is_gone(audited_copy: Workspace) -> None:
    audited_copy.paths.report.unlink()
    assert again(audited_copy, because="") == [PUBLISHED]
    assert audited_copy.paths.report.exists()
    audited_copy.paths.warehouse.write_bytes(b"damaged")
    assert again(audited_copy, because="") == [PUBLISHED]
    assert "nothing is run" in audited_copy.run("audit", "--model", "tiny", "--benchmark", "made_8").stderr


def test_what_is_to_be_fetched_again_has_no_dry_run(workspace: Workspace) -> None:
    done = workspace.run("audit", "--model", "tiny", "--benchmark", "made_8", "--dry-run", "--refresh")
    assert done.exit_code == 2
    assert "--dry-run and --refresh do not go together" in done.stderr


@pytest.mark.parametrize(
    ("table", "damage"),
    [
        ("scores", "a flipped bit"),
        pytest.param("evaluations", "deleted", marks=pytest.mark.slow),
        pytest.param("decisions", "a flipped bit", marks=pytest.mark.slow),
        pytest.param("scores", "deleted", marks=pytest.mark.slow),
        pytest.param("evaluations", "a flipped bit", marks=pytest.mark.slow),
        pytest.param("decisions", "deleted", marks=pytest.mark.slow),
    ],
)
def test_a_lost_finding_is_told_and_made_again(audited_copy: Workspace, table: str, damage: str) -> None:
    [file] = audited_copy.paths.table(table).glob("partition=made_8*/*.parquet")
    if damage == "deleted":
        file.unlink()
        assert audited_copy.run("doctor").exit_code == 1
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 4
        file.write_bytes(bytes(content))
        report = audited_copy.run("report")
        told(report)
        assert f"damaged, and left out: {table} of made_8|tiny (run " in report.stderr
        page = model_page(audited_copy.paths.reports, "tiny").read_text(encoding="utf-8")
        assert "partition is not as written" in page
    because = f"a file of its {'scores' if table == 'scores' else 'findings'} is damaged or gone"
    assert again(
        audited_copy, because=because if (table, damage) != ("evaluations", "deleted") else "scored, not evaluated"
    ) == [AUDITED, PUBLISHED]
    assert "nothing is run" in audited_copy.run("audit", "--model", "tiny", "--benchmark", "made_8").stderr
    if damage == "deleted":
        seen = audited_copy.run("doctor", "--deep")
        assert seen.exit_code == 0, "the doctor's advice was followed"
        assert "history is lost; what counts now, of a later run, is there" in seen.stdout
    else:
        assert audited_copy.run("doctor", "--deep").exit_code == 1
        file.unlink()
        assert audited_copy.run("doctor", "--deep").exit_code == 0


def test_other_configuration_and_leaving_texts_out_publish_again(
    audited_copy: Workspace, tiny_folder: Callable[[str], Path]
) -> None:
    audited_copy.write_models(tiny={"path": tiny_folder("llama"), "training_cutoff": date(2020, 5, 1)})
    assert again(audited_copy, because="") == [PUBLISHED]
    cutoff = "SELECT training_cutoff FROM configured_models WHERE name = 'tiny'"
    assert json.loads(told(audited_copy.run("sql", cutoff, "--format", "json"))) == {"training_cutoff": "2020-05-01"}
    quoted = "SELECT count(*) AS n FROM examples WHERE excerpt IS NOT NULL"
    assert json.loads(told(audited_copy.run("sql", quoted, "--format", "json")))["n"] > 0
    audited_copy.monkeypatch.setenv("CORPUS_AUDIT_NO_TEXT", "1")
    assert again(audited_copy, because="") == [PUBLISHED]
    assert json.loads(told(audited_copy.run("sql", quoted, "--format", "json")))["n"] == 0


def test_other_weights_run_a_pair_again(audited_copy: Workspace, tiny_folder: Callable[[str], Path]) -> None:
    audited_copy.write_models(tiny={"path": tiny_folder("gpt_neox")})
    result = audited_copy.run("audit", "--model", "tiny", "--benchmark", "made_8")
    assert "made_8|tiny: 0 texts from the cache" in result.stderr


def test_refresh_fetches_again_and_rebuilds_what_changed(audited_copy: Workspace) -> None:
    audited_copy.hold(*made_documents(2, 40), made_document("alder", "more", NEW, made_text("more", 40)))
    loads = count_loads(audited_copy.monkeypatch)
    result = audited_copy.run("benchmarks", "--build", "made_8")
    told(result)
    assert "•" not in result.stderr, "all is there"
    result = audited_copy.run("audit", "--model", "tiny", "--benchmark", "made_8", "--refresh")
    told(result)
    assert f"• fetching documents: {SOURCE}" in result.stderr
    assert "• building benchmark: made_8" in result.stderr
    assert len(loads) <= 1


def test_what_a_source_lacks_and_which_rows_are_skipped_is_told(workspace: Workspace) -> None:
    workspace.hold(*made_documents(2, 40, ["alder"]), missing=[MissingPart("birch", "no route to host", "birch")])
    result = workspace.run("benchmarks", "--build", "made_8")
    told(result)
    assert f"• missing from {SOURCE}: birch: no route to host" in result.stderr.splitlines()

    rows = [{"input": made_text(f"row {place}", 8), "label": place % 2} for place in range(4)]
    lines = [*map(json.dumps, rows), "{broken", json.dumps({"input": "too short", "label": 1})]
    (workspace.config / "Rows.jsonl").write_text("\n".join(lines))
    workspace.write_benchmarks(rows={**LABELLED, "path": "."})
    result = workspace.run("benchmarks", "--build", "rows")
    told(result)
    [line] = [line for line in result.stderr.splitlines() if "skipped" in line]
    assert line.startswith("• skipped in rows_8: 2 row(s), the first Rows.jsonl:5: broken JSON")


def test_a_model_by_its_path(audited_copy: Workspace, tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    folder = str(shutil.copytree(tiny_folder("gpt_neox"), tmp_path / f"my models {'x' * 30}" / "[bold] :smile: m"))
    assert (
        f"made_8|{folder}: 0 texts from the cache"
        in audited_copy.run("audit", "--model", folder, "--benchmark", "made_8").stderr
    )
    rows = told(audited_copy.run("sql", "SELECT DISTINCT model FROM leaderboard ORDER BY 1", "--format", "csv"))
    assert rows.splitlines() == ["model", folder, "tiny"]
    assert "0 row(s)" in told(audited_copy.run("sql", "SELECT * FROM lineage_gaps"))


@pytest.mark.parametrize("dry_run", [True, False])
def test_unknown_benchmarks(workspace: Workspace, dry_run: bool) -> None:
    option = ("--dry-run",) if dry_run else ()
    error = error_of(workspace.run("audit", "--model", "tiny", "--benchmark", "maed", *option))
    assert "there is no benchmark 'maed'" in error
    assert "did you mean made" in error


def test_a_dry_run_runs_nothing_and_says_what_it_would_cost(audited: Workspace) -> None:
    parts, runs = audited.parts(), len(audited.runs())
    loads = count_loads(audited.monkeypatch)
    audited.monkeypatch.setattr("audit_pipeline.models.weights.load_weights", lambda *given: pytest.fail("loaded"))
    shown = told(
        audited.run("audit", "--model", "tiny", "--benchmark", "made", "--dry-run", "--kinds", "base,topk")
    ).splitlines()
    assert shown[0].split("  ")[0] == "benchmark"
    for title in ("texts", "cached", "to run", "passes", "tokens", "branch tokens", "bytes to write", "time"):
        assert title in shown[0]
    rows = {line.split()[0]: line.split() for line in shown[1:] if line.startswith("made")}
    for name in ("made_8", "made_12"):
        texts = len(read_built(audited.paths, name).examples)
        # The base statistics are there, the top-k ones are not.
        assert rows[name][1:4] == [str(texts), "0", str(texts)]
        assert int(rows[name][4]) >= texts
        assert int(rows[name][5].replace(",", "")) > texts
        assert rows[name][6] == "0", "branches are cached"
        assert int(rows[name][7].replace(",", "")) > 0
        assert rows[name][8] == "about"
    assert shown[-2].startswith("The weights take")
    assert "and fit: main memory has" in shown[-2]
    assert "Nothing was run." in shown[-1]
    assert (audited.parts(), len(audited.runs()), loads) == (parts, runs, [])
    assert not audited.parts("topk")


def test_a_dry_run_of_what_is_not_built_says_what_is_fetched_and_built_first(workspace: Workspace) -> None:
    command = ("audit", "--model", "tiny", "--benchmark", "made_8", "--dry-run")
    first = answered(workspace.run(*command, "--json"))
    assert (first["not_built"], first["plans"]) == (["made_8"], [])
    steps = [(step["step"], step["what"]) for step in first["first"]]
    assert steps == [("fetch", "release_notes"), ("build", "made_8")]
    assert first["first"][0]["because"] == "its documents are not there"
    shown = told(workspace.run(*command))
    assert "corpus-audit benchmarks --build made_8" in shown
    assert shown.splitlines()[-1] == "Nothing was fetched, built or run."
    assert not workspace.runs()
    shown = told(workspace.run("benchmarks", "--build", "made_8"))
    assert next(line for line in shown.splitlines() if line.startswith("made_8")).split()[1] == "yes"
    assert next(line for line in shown.splitlines() if line.startswith("made_12")).split()[1] == "no"
    loads = count_loads(workspace.monkeypatch)
    shown = told(workspace.run("audit", "--model", "tiny", "--benchmark", "made_8", "--dry-run"))
    row = next(line.split() for line in shown.splitlines() if line.startswith("made_8"))
    texts, passes, tokens, branches = (int(row[place].replace(",", "")) for place in (1, 4, 5, 6))
    assert passes == texts, "the made texts are in lower case already"
    assert 0 < branches < tokens, "m is 1 for texts of 8 words"
    assert not loads


def test_a_benchmark_of_one_class_is_refused(workspace: Workspace) -> None:
    rows = [{"input": made_text(f"row {place}", 8), "label": 1} for place in range(4)]
    (workspace.config / "Rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    workspace.write_benchmarks(rows={**LABELLED, "path": "."})
    error = error_of(workspace.run("audit", "--model", "tiny", "--benchmark", "rows"))
    assert "all 4 labelled rows" in error
    assert "are members" in error

    workspace.write_benchmarks(made=temporal([8]))
    workspace.hold(*(document for document in made_documents(2, 40) if document.published == OLD))
    error = error_of(workspace.run("audit", "--model", "tiny", "--benchmark", "made"))
    assert "non-member" in error
    assert not workspace.parts()


def test_a_benchmark_that_fails_a_check_is_refused_now_and_later(workspace: Workspace) -> None:
    rows = [{"input": made_text(f"row {place}", 8), "label": place % 2} for place in range(3)]
    (workspace.config / "Rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    workspace.write_benchmarks(few={**LABELLED, "path": ".", "calibration_fraction": 0.9})
    for command in (("benchmarks", "--build", "few"), ("audit", "--model", "tiny", "--benchmark", "few")):
        error = error_of(workspace.run(*command))
        assert error.startswith("the benchmark few_8 is not fit to be audited: members and non-members in the")
    assert not workspace.parts()


def test_texts_that_nobody_has_labelled_are_scored_and_no_more(workspace: Workspace) -> None:
    rows = [{"input": made_text(f"row {place}", 8)} for place in range(4)]
    (workspace.config / "Rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    workspace.write_benchmarks(rows={**LABELLED, "path": ".", "label_column": None})
    shown = told(workspace.run("audit", "--model", "tiny", "--benchmark", "rows"))
    assert "rows_8: This comparison could not have found anything: no comparison documents, 79 needed" in shown
    scored = "SELECT count(DISTINCT example_id) AS n FROM scores_with_examples WHERE status = 'ok'"
    assert json.loads(told(workspace.run("sql", scored, "--format", "json"))) == {"n": 4}


def test_full_logits_have_a_budget(audited_copy: Workspace) -> None:
    arguments = ("audit", "--model", "tiny", "--benchmark", "made_8", "--kinds", "logits")
    error = error_of(audited_copy.run(*arguments, "--logits-budget-gb", "0.00001"))
    assert "full logits of these texts take" in error
    assert "raise the budget" in error
    assert not audited_copy.parts("logits")
    told(audited_copy.run(*arguments))
    assert len(audited_copy.parts("logits")) == 1


def test_the_demo_ends_with_what_to_do_next(workspace: Workspace) -> None:
    how = {"prefix": 12, "suffix": 8, "stride": "tiled", "near_verbatim": 2}
    recited = temporal([8], description="A test of the instrument, not news.", extraction=how)
    workspace.write_benchmarks(demo=temporal([8]), famous_texts=recited)
    result = workspace.run("demo", "--model", "tiny")
    shown = told(result)
    # The answer on texts that everybody expects to find comes last, behind what it is, with both values by text.
    assert shown.index("demo_8:") < shown.index("A test of the instrument, not news.") < shown.index("famous_texts_8:")
    runs = len(workspace.runs())
    again = workspace.run("demo", "--model", "tiny")
    assert "tiny on famous_texts_8: everything is up to date, nothing is run" in again.stderr
    assert len(workspace.runs()) == runs
    for command in (
        "dev",
        "report --open",
        'sql "SELECT * FROM leaderboard"',
        "audit --model tiny",
        "score --model tiny",
    ):
        assert f"corpus-audit {command}" in shown
    assert str(workspace.paths.root) in shown


def test_texts_of_the_users_own(workspace: Workspace, tmp_path: Path) -> None:
    rows = [
        {"body": made_text(f"{year} {place}", 30), "day": f"{year}-05-01", "book": f"{year} {place // 2}"}
        for year in (2019, 2025)
        for place in range(6)
    ]
    undated = {"body": "undated", "day": "May", "book": "x"}
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, [*rows, undated])))
    columns = {"text_column": "body", "date_column": "day", "group_column": "book"}
    workspace.write_config("sources", {"local_files": {"path": str(tmp_path / "own.jsonl"), **columns}})
    assert all_sources()["local_files"].fetch is local_files.fetch
    workspace.write_benchmarks(own=temporal([8], sources=["local_files"]))
    result = workspace.run("audit", "--model", "tiny", "--benchmark", "own")
    assert "• fetching documents: local_files" in result.stderr
    assert "• left out of local_files: 1, the first own.jsonl#12: own.jsonl:13: column 'day' is not an" in result.stderr
    assert "own_8: screening only" in told(result)
    groups = set(read_built(workspace.paths, "own_8").examples.column("group").to_pylist())
    assert groups == {row["book"] for row in rows}


def test_texts_of_the_users_own_that_nobody_has_named(workspace: Workspace) -> None:
    workspace.write_benchmarks(own=temporal([8], sources=["local_files"]))
    for command in (("audit", "--model", "tiny", "--benchmark", "own"), ("benchmarks", "--build", "own")):
        error = error_of(workspace.run(*command))
        assert "local_files.path" in error
        assert "config/sources.yaml" in error
    assert not workspace.runs()


# SQL.


def test_sql_before_any_audit(workspace: Workspace) -> None:
    assert "audit a model first" in error_of(workspace.run("sql", "SELECT 1"))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELEC 1", "the SQL is wrong"),
        ("SELECT * FROM nothing", "the SQL cannot be run"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("", "one statement at a time"),
        ("INSERT INTO lineage SELECT * FROM lineage", "INSERT is refused"),
        ("DELETE FROM scores", "DELETE is refused"),
        ("COPY scores TO '{folder}/out.csv'", "COPY is refused"),
        ("ATTACH '{folder}/other.duckdb'", "ATTACH is refused"),
        ("SELECT * FROM read_csv('{folder}/secret.csv')", "refused"),
        ("SELECT * FROM '{folder}/secret.csv'", "refused"),
        ("SET enable_external_access = true", "SET is refused"),
    ],
)
def test_sql_reads_and_does_nothing_else(audited: Workspace, tmp_path: Path, statement: str, message: str) -> None:
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    before = audited.paths.warehouse.read_bytes()
    result = audited.run("sql", statement.replace("{folder}", str(tmp_path)))
    assert message in error_of(result)
    assert result.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]
    assert audited.paths.warehouse.read_bytes() == before


def test_sql_in_three_layouts(audited: Workspace) -> None:
    statement = (
        "SELECT 'a|b, \"c\"' AS words, 1.5 AS number, NULL AS nothing, "
        "[1, 2] AS list, {'x': true} AS struct, true AS yes"
    )
    shown = told(audited.run("sql", statement)).splitlines()
    assert shown[0].split() == ["words", "number", "nothing", "list", "struct", "yes"]
    assert shown[-1] == "1 row(s)"
    [header, row] = csv.reader(io.StringIO(told(audited.run("sql", statement, "--format", "csv"))))
    assert header == ["words", "number", "nothing", "list", "struct", "yes"]
    assert row == ['a|b, "c"', "1.5", "", "[1, 2]", '{"x": true}', "true"]
    assert json.loads(told(audited.run("sql", statement, "--format", "json"))) == {
        "words": 'a|b, "c"',
        "number": "1.5",
        "nothing": None,
        "list": [1, 2],
        "struct": {"x": True},
        "yes": True,
    }


def test_sql_keeps_columns_of_one_name_apart(audited: Workspace) -> None:
    statement = "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a"
    assert told(audited.run("sql", statement)).splitlines()[1].split() == ["1", "2", "3", "4"]
    assert told(audited.run("sql", statement, "--format", "csv")).splitlines() == ["a,a,a_1,a", "1,2,3,4"]
    assert json.loads(told(audited.run("sql", statement, "--format", "json"))) == {
        "a": 1,
        "a_1": 2,
        "a_1_1": 3,
        "a_2": 4,
    }


def test_sql_shows_text_as_it_is_and_obeys_none_of_it(audited: Workspace) -> None:
    shown = told(
        audited.run("sql", "SELECT '[bold]:smile: <script>' AS a, chr(27) || '[31m' AS b, 'é' || chr(10) || 'x' AS c")
    )
    assert "[bold]:smile: <script>" in shown
    assert "\\x1b[31m" in shown
    assert "\x1b" not in shown
    assert "é" in shown


def test_a_finding_joins_to_run_fingerprint_digest_and_code_version(audited: Workspace) -> None:
    statement = """
        SELECT findings.detector, findings.run_id, findings.code_version, models.name, benchmarks.benchmark
        FROM findings
        JOIN models ON models.fingerprint = findings.model_fingerprint
        JOIN benchmarks ON benchmarks.digest = findings.benchmark_digest
        WHERE is_default AND metric = 'auroc'
    """
    rows = [json.loads(line) for line in told(audited.run("sql", statement, "--format", "json")).splitlines()]
    assert {(row["name"], row["benchmark"]) for row in rows} == {("tiny", "made_8"), ("tiny", "made_12")}
    audited_with = [one for one in REGISTRY.values() if not one.on_request]
    assert len(rows) == 2 * (len(audited_with) + 1), "every detector and the blind control, once each"
    runs = {run.run_id for run in audited.runs()}
    assert {row["run_id"] for row in rows} <= runs
    assert {row["code_version"] for row in rows} == {"3"}
    assert "0 row(s)" in told(audited.run("sql", "SELECT * FROM lineage_gaps"))


# The same as JSON.


def answered(result: Result, code: int = 0) -> dict[str, Any]:
    """The document, which is all that stands on standard output."""
    assert result.exit_code == code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.parametrize(
    "command",
    [
        *("audit", "score", "detectors", "models", "benchmarks", "study", "control", "evaluate", "power", "forget"),
        *("doctor", "sql"),
    ],
)
def test_every_command_with_a_table_answers_in_json(command: str) -> None:
    assert "--json" in [name for option in main.commands[command].params for name in option.opts]


def test_what_there_is_as_json(audited: Workspace) -> None:
    detectors = answered(audited.run("detectors", "--json"))["detectors"]
    assert [row["detector"] for row in detectors] == list(REGISTRY)
    assert answered(audited.run("detectors", "loss", "--json"))["detector"] in detectors
    assert set(detectors[0]) >= {"equation", "reported", "also_reads"}
    [min_k] = [row for row in detectors if row["detector"] == "min_k"]
    assert (min_k["parameters"], min_k["on_request"], min_k["own_logprobs_suffice"]) == (
        {"k": 0.2, "window": 1},
        False,
        True,
    )
    [tiny] = answered(audited.run("models", "--json"))["models"]
    assert (tiny["model"], tiny["dtype"], tiny["licence"]) == ("tiny", "float32", None)
    benchmarks = {row["benchmark"]: row for row in answered(audited.run("benchmarks", "--json"))["benchmarks"]}
    members = sum(label == 1 for label in read_built(audited.paths, "made_8").examples.column("label").to_pylist())
    assert (benchmarks["made_8"]["built"], benchmarks["made_8"]["members"]) == (True, members)
    assert (benchmarks["other_10"]["built"], benchmarks["other_10"]["members"]) == (False, None)


def test_an_audit_as_json_holds_what_its_table_shows(
    audited_copy: Workspace, audited_root: tuple[Path, Result]
) -> None:
    arguments = ("audit", "--model", "tiny", "--benchmark", "made")
    tables = tables_of_findings(told(audited_root[1]))
    result = audited_copy.run(*arguments, "--json")
    document = answered(result)
    assert "everything is up to date" in result.stderr, "what happens meanwhile is told beside it"
    for row in document["findings"]:
        shown = next(
            line
            for line in tables[row["benchmark"]]
            if line.split()[0] == row["detector"]
            and all(f"{name}={value}" in line for name, value in row["parameters"].items())
        )
        expected = "not defined" if row["auroc"] is None else f"{row['auroc']:.3f}"
        assert expected in shown
    assert len(document["findings"]) == sum(map(len, tables.values()))
    assert [row["benchmark"] for row in document["answers"]] == ["made_8", "made_12"]
    assert {row["claim_level"] for row in document["answers"]} == {"screening only"}
    assert document["report"] == str(audited_copy.paths.report)
    plans = answered(audited_copy.run(*arguments, "--dry-run", "--json"))["plans"]
    assert [(row["benchmark"], row["to_run"], row["tokens"]) for row in plans] == [("made_8", 0, 0), ("made_12", 0, 0)]


def test_scores_of_a_file_as_json(workspace: Workspace, tmp_path: Path) -> None:
    rows = [{"text": made_text(str(n), 9), "label": "maybe" if n == 0 else n % 2} for n in range(9)]
    file = write_rows(tmp_path / "t.csv", rows)
    arguments = ("score", "--model", "tiny", "--texts", file, "--out", tmp_path / "s.parquet", "--detectors", "loss")
    result = workspace.run(*arguments, "--json")
    document = answered(result)
    [row] = document.pop("separation")
    assert (row["detector"], row["parameters"], row["n_members"], row["n_nonmembers"]) == ("loss", {}, 4, 4)
    assert 0 <= row["auroc_low"] <= row["auroc"] <= row["auroc_high"] <= 1
    assert document == {
        "claim_level": "screening only",
        "scores": 9,
        "out": str(tmp_path / "s.parquet"),
        "texts": {"all": 9, "from_cache": 0, "computed": 9},
        "skipped_rows": 0,
        "labels_not_understood": 1,
        "no_auroc": None,
    }
    unlabelled = answered(workspace.run(*arguments, "--label-column", "text", "--json"))
    assert (unlabelled["separation"], unlabelled["labels_not_understood"]) == ([], 9)
    assert unlabelled["no_auroc"] == "no AUROC: it takes texts of both sides, and the labels name neither side"
    assert "1 label(s) not understood, taken as unknown: 'maybe' (1); a label is" in result.stderr


def test_what_was_forgotten_and_examined_as_json(audited_copy: Workspace) -> None:
    plan = answered(audited_copy.run("forget", "--benchmark", "made_8", "--dry-run", "--json"))["would_go"]
    assert {row["what"] for row in plan} >= {"partition in Dagster"}
    assert all(isinstance(row["bytes"], int) or row["what"] == "partition in Dagster" for row in plan)
    findings = answered(audited_copy.run("doctor", "--json"))["findings"]
    assert findings
    assert all(row["ok"] is True for row in findings)
    audited_copy.write_models(gone={"path": "/nowhere/model"})
    broken = answered(audited_copy.run("doctor", "--json"), code=1)["findings"]
    assert [row["what"] for row in broken if not row["ok"]] != []


def test_sql_as_one_document(audited: Workspace) -> None:
    statement = "SELECT 1 AS a, 2.5 AS a, NULL AS b, 'nan'::DOUBLE AS c, DATE '2024-05-31' AS d"
    row = {"a": 1, "a_1": 2.5, "b": None, "c": None, "d": "2024-05-31"}
    for layout in ((), ("--format", "json")):
        assert answered(audited.run("sql", statement, "--json", *layout)) == {"rows": [row], "row_count": 1}
    refused = audited.run("sql", statement, "--json", "--format", "csv")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "give either --json or --format csv" in refused.stderr


def test_an_error_leaves_standard_output_empty(audited: Workspace) -> None:
    result = audited.run("sql", "SELEC 1", "--json")
    assert "the SQL is wrong" in error_of(result)
    assert result.stdout == ""


# Shell completion.


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_of_a_shell(shell: str) -> None:
    environment = {"_CORPUS_AUDIT_COMPLETE": f"{shell}_source"}
    result = CliRunner().invoke(main, [], prog_name="corpus-audit", env=environment)
    assert result.exit_code == 0, result.output
    assert f"_CORPUS_AUDIT_COMPLETE={shell}_complete" in result.stdout.replace("env ", "")
    assert "corpus-audit" in result.stdout


def test_commands_and_options_are_completed() -> None:
    def completed(words: str) -> list[str]:
        environment = {
            "_CORPUS_AUDIT_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        result = CliRunner().invoke(main, [], prog_name="corpus-audit", env=environment)
        return [line.removeprefix("plain,") for line in result.stdout.splitlines()]

    assert completed("corpus-audit sc") == ["score"]
    assert "--json" in completed("corpus-audit score --")


# The report.


def test_a_report_of_nothing_says_how_to_begin(workspace: Workspace) -> None:
    told(workspace.run("report"))
    assert "corpus-audit audit" in workspace.paths.report.read_text(encoding="utf-8")


def test_a_report_opens_in_the_browser(audited_copy: Workspace) -> None:
    opened: list[str] = []
    audited_copy.monkeypatch.setattr("webbrowser.open", opened.append)
    told(audited_copy.run("report", "--open"))
    assert opened == [audited_copy.paths.report.as_uri()]


def test_a_report_says_how_many_files_were_loaded_and_loads_all_where_it_is_asked_to(audited_copy: Workspace) -> None:
    def files(*options: str) -> tuple[int, int]:
        said = told(audited_copy.run("report", *options))
        found = re.search(r"Warehouse: ([\d,]+) files loaded, ([\d,]+) that have not changed carried over", said)
        assert found is not None
        return int(found[1]), int(found[2])

    there = sum(files())
    loaded, carried_over = files()
    assert loaded + carried_over == there
    assert carried_over > 0
    assert files("--rebuild") == (there, 0)


def written_pages(workspace: Workspace) -> str:
    """Every page of the report and its JSON copy, as it is and without tags: a text may be shown token by token."""
    pages = [page.read_text(encoding="utf-8") for page in sorted(workspace.paths.reports.iterdir())]
    return "".join([*pages, *(re.sub(r"<[^<>]*>", "", page) for page in pages)])


def test_a_report_without_text_quotes_nothing(audited_copy: Workspace) -> None:
    texts = [
        text
        for name in ("made_8", "made_12")
        for text in read_built(audited_copy.paths, name).examples["text"].to_pylist()
    ]
    quoted = "SELECT count(excerpt) AS n FROM examples"
    assert any(text in written_pages(audited_copy) for text in texts)
    assert json.loads(told(audited_copy.run("sql", quoted, "--format", "json"))) == {"n": len(texts)}

    told(audited_copy.run("report", "--no-text"))
    pages = written_pages(audited_copy)
    assert not any(" ".join(text.split()[:4]) in pages for text in texts)
    assert "screening only" in pages
    assert json.loads(told(audited_copy.run("sql", quoted, "--format", "json"))) == {"n": 0}
    warehouse = audited_copy.paths.warehouse.read_bytes()
    assert not any(" ".join(text.split()[:4]).encode() in warehouse for text in texts)


# The doctor and the UI.


def test_the_doctor_ends_with_one_where_something_is_wrong(audited_copy: Workspace) -> None:
    told(audited_copy.run("doctor"))
    [part] = audited_copy.parts()
    part.write_bytes(part.read_bytes()[:100])
    audited_copy.write_models(gone={"path": "/nowhere/model"})
    result = audited_copy.run("doctor")
    assert result.exit_code == 1
    wrong = [line for line in result.stdout.splitlines() if line.startswith("!!")]
    assert len(wrong) == 2
    assert "no model at /nowhere/model" in wrong[0]
    assert f"damaged: {part}" in wrong[1]


def test_dev_starts_dagster_on_loopback_with_its_own_home(workspace: Workspace) -> None:
    started: list[list[str]] = []
    homes: list[str] = []

    def record(program: str, arguments: list[str]) -> None:
        started.append([str(program), *arguments[1:]])
        homes.append(os.environ["DAGSTER_HOME"])

    workspace.monkeypatch.setattr(os, "execv", record)
    result = workspace.run("dev", "--port", "3999")
    assert result.exit_code == 0
    [[program, *arguments]] = started
    assert program == sys.executable
    assert arguments[:2] == ["-m", "audit_pipeline.operate.dagster.dev"]
    options: Mapping[str, str] = dict(zip(arguments[2::2], arguments[3::2], strict=True))
    assert (options["-h"], options["-p"]) == ("127.0.0.1", "3999")
    assert Path(options["-w"]).name == "workspace.yaml"
    assert homes == [str(workspace.paths.dagster_home)]
    assert (workspace.paths.dagster_home / "dagster.yaml").exists()
    assert "http://127.0.0.1:3999" in result.stderr


def test_an_interrupt_leaves_what_was_finished(workspace: Workspace) -> None:
    def interrupted(*given: object, **options: object) -> Iterator[None]:
        raise KeyboardInterrupt

    workspace.monkeypatch.setattr("audit_pipeline.operate.dagster.audit.audit", interrupted)
    result = workspace.run("audit", "--model", "tiny", "--benchmark", "made")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "stopped; what was finished is kept"


# Controls with known truth.


@pytest.fixture
def with_control(workspace: Workspace) -> Iterator[Workspace]:
    """A control with one of its models, a benchmark, and a study of it; nothing is trained."""
    folder = workspace.model("tiny").located.folder
    workspace.write_models(tiny={"path": folder}, exposed={"control": {"name": "check", "role": "exposed"}})
    workspace.write_benchmarks(known=controlled("check"), made=temporal([8], on_request=True))
    lone = tiny_control(description="without a model")
    workspace.write_config("controls", {"controls": {"check": tiny_control(epochs=1), "lone": lone}})
    study = {"description": "made up", "control": "check", "vary": {"occurrences": [1, 2]}, "detectors": ["loss"]}
    workspace.write_config("studies", {"studies": {"rates": study}})
    workspace.hold(*made_documents(5, 40))
    with partitions_of_controls():
        yield workspace


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("control", "chekc"), "there is no control 'chekc' in config/controls.yaml; did you mean check?"),
        (("control",), "there is no control 'instrument_check' in config/controls.yaml; configured: check, lone"),
        (("control", "lone"), "the control lone has no model or no benchmark: name it in config/models.yaml"),
        (("study", "rate"), "there is no study 'rate' in config/studies.yaml; did you mean rates?"),
        (("score", "--model", "exposed"), "exposed has not been trained yet: corpus-audit control check"),
    ],
)
def test_controls_and_studies_that_cannot_be_run(
    with_control: Workspace, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    if arguments[0] == "score":
        arguments = (*arguments, "--texts", str(texts_file(tmp_path, "a text")), "--out", str(tmp_path / "o.parquet"))
    assert message in error_of(with_control.run(*arguments))
    assert not with_control.runs()


def test_all_leaves_out_what_is_on_request_and_a_dry_run_trains_nothing(with_control: Workspace) -> None:
    shown = told(with_control.run("audit", "--model", "tiny", "--benchmark", "all", "--dry-run"))
    assert "known_12" not in shown
    assert "made_8" not in shown
    error = error_of(with_control.run("audit", "--model", "tiny", "--benchmark", "known", "--dry-run"))
    assert "do not belong together" in error
    first = answered(with_control.run("audit", "--model", "exposed", "--benchmark", "known", "--dry-run", "--json"))
    assert ("train", "check") in [(step["step"], step["what"]) for step in first["first"]]
    assert not with_control.paths.control_pointer("check").exists()
    lines = told(with_control.run("models")).splitlines()
    assert any(line.split()[:4] == ["exposed", "control", "check:", "exposed"] for line in lines)


def test_a_study_ends_with_its_numbers(with_control: Workspace) -> None:
    result = with_control.run("study", "rates")
    shown = told(result)
    steps = [line for line in result.stderr.splitlines() if line.startswith("• ")]
    assert steps == [f"• fetching documents: {SOURCE}", "• rebuilding warehouse and report"]
    rows = [line.split() for line in shown.splitlines() if line.startswith("occurrences")]
    assert [row[1:4] for row in rows if row[3] == "loss"] == [["1", "5", "loss"], ["2", "5", "loss"]]
    assert f"Report: {with_control.paths.report}" in shown
    assert with_control.paths.study("rates").exists()
    again = json.loads(told(with_control.run("study", "rates", "--json")))
    assert [(row["value"], row["seed"], row["detector"]) for row in again["study"] if row["detector"] == "loss"] == [
        ("1", 5, "loss"),
        ("2", 5, "loss"),
    ]
    assert all(row["auroc"] is None or isinstance(row["auroc"], float) for row in again["study"])
    assert not with_control.paths.control_pointer("check").exists(), "a study's models are thrown away"
