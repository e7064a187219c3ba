"""Check that audits find the texts that an adapter was trained on, with two adapters of four checkpoints each.

    python bench/bench_adapters.py FOLDER [--texts 20] [--epochs 6]

Windows of State of the Union addresses are divided at random. The adapter `known` is trained on the audited windows,
and the adapter `others` on the same number of other windows. The held-out windows are in neither. The base is
smollm2-135m. Both adapters are series of models.yaml and are audited together with their base. The AUROC of `known`
must rise over its checkpoints. Audits of `others` and of the base must find nothing.

FOLDER becomes a workspace, whose report shows the curves. The script requires the extra `adapters`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from peft import LoraConfig, get_peft_model

from audit_pipeline.extras.controls.build import train
from audit_pipeline.extras.controls.config import ControlEntry
from audit_pipeline.extras.controls.draw import HELD_OUT, MEMBER, TWIN, DrawnText, draw_texts, read_control_documents
from audit_pipeline.models.config import load_models
from audit_pipeline.models.conversion import read_with_transformers
from audit_pipeline.models.tokenized_model import TokenizedModel, apply_overrides, load_tokenized
from audit_pipeline.models.weights import load_weights
from audit_pipeline.pipeline.workspace_creation import create_workspace
from audit_pipeline.sources.config import load_source_settings
from audit_pipeline.sources.store import refresh_source
from audit_pipeline.store.paths import DataPaths

BASE, BENCHMARK = "smollm2-135m", "adapter_check"
SERIES = {"known": MEMBER, "others": TWIN}
LORA = {
    "r": 8,
    "lora_alpha": 16,
    "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "task_type": "CAUSAL_LM",
}
# Only the uppermost 10 of 30 layers are trained. The layers below need no gradients, which halves the time.
TRAINED_LAYERS = list(range(20, 30))
# The processor multiplies bfloat16 two to three times as fast as float32.
DTYPE = "bfloat16"


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("folder", type=Path, help="Folder of the new workspace.")
    given.add_argument(
        "--texts", type=int, default=20, help="Number of texts per adapter, and of evaluated held-out texts."
    )
    given.add_argument("--calibrating", type=int, default=20, help="Number of held-out texts for calibration.")
    given.add_argument("--epochs", type=int, default=6, help="Number of training epochs.")
    arguments = given.parse_args()
    folder = arguments.folder.resolve()
    make_workspace(folder, texts=arguments.texts, epochs=arguments.epochs, calibrating=arguments.calibrating)
    for model in (BASE, *SERIES):
        run_command(folder, "audit", "--model", model, "--benchmark", BENCHMARK)
    for row in read_series(folder):
        print(*row.values(), sep="\t")
    print(folder / "data" / "reports")


def make_workspace(folder: Path, *, texts: int, epochs: int, calibrating: int = 0) -> None:
    """Draw the texts, train both adapters on them, and write the configuration that audits them.

    Args:
        folder: Folder of the workspace.
        texts: Number of texts per adapter.
        epochs: Number of training epochs.
        calibrating: Number of held-out texts for the p-values of single texts: at least 20, or 0 for no p-values.
    """
    control = ControlEntry(
        name=BENCHMARK,
        description="Windows of addresses",
        sources=("sotu",),
        words=24,
        members=texts,
        held_out=texts + calibrating,
        epochs=epochs,
        learning_rate=5e-3,
        batch_size=5,
        seed=20260101,
    )
    create_workspace(folder)
    paths = DataPaths(folder / "data")
    drawn = draw_windows(control, paths, folder / "config")
    by_role = {role: [text.text for text in drawn if text.role == role] for role in (MEMBER, HELD_OUT, TWIN)}
    rows = [{"input": text, "label": 1, "split": "evaluation"} for text in by_role[MEMBER]]
    for place, text in enumerate(by_role[HELD_OUT]):
        rows.append({"input": text, "label": 0, "split": "evaluation" if place < texts else "calibration"})
    lines = [json.dumps({"name": f"text {place:02}", **row}) for place, row in enumerate(rows, 1)]
    (folder / "texts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    for name, role in SERIES.items():
        train_adapter(folder / "runs" / name, by_role[role], control, paths, folder / "config")
    write_configuration(folder / "config")


def write_configuration(config: Path) -> None:
    models = yaml.safe_load((config / "models.yaml").read_text(encoding="utf-8"))["models"]
    models[BASE]["dtype"] = DTYPE
    series = {name: {**models[BASE], "title": name.title(), "series": {"folder": f"../runs/{name}"}} for name in SERIES}
    entries = {BASE: models[BASE], **series}
    (config / "models.yaml").write_text(yaml.safe_dump({"models": entries}, sort_keys=False), encoding="utf-8")
    benchmark = {
        "builder": "labelled",
        "title": "Windows of State of the Union addresses",
        "description": "Windows that an adapter was trained on, and windows of the same addresses that it was not.",
        "path": "../texts.jsonl",
        "id_column": "name",
        "split_column": "split",
        "words": [24],
        "design": "randomised",
        "infilling_m": 1,
        "extraction": {"prefix": 12, "suffix": 10},
        "licence": "public domain",
        "seed": 1,
    }
    (config / "benchmarks.yaml").write_text(yaml.safe_dump({"benchmarks": {BENCHMARK: benchmark}}), encoding="utf-8")
    for unused in ("controls", "studies"):
        (config / f"{unused}.yaml").unlink(missing_ok=True)


def draw_windows(control: ControlEntry, paths: DataPaths, config: Path) -> list[DrawnText]:
    """Fetch the source sotu into a new workspace, and draw the windows of a control with their roles."""
    refresh_source("sotu", paths, "bench", load_source_settings(config))
    documents = read_control_documents(control, paths)[0]
    return draw_texts(documents, control)


def train_adapter(folder: Path, texts: Sequence[str], control: ControlEntry, paths: DataPaths, config: Path) -> None:
    """Train an adapter, and save it after an eighth, a quarter, a half and all of the steps."""

    def name_checkpoint(step: int, steps: int) -> str | None:
        if step in {steps // 8, steps // 4, steps // 2, steps}:
            return f"step{step}"
        return None

    base, adapted = attach_new_adapter(control.seed, paths, config)
    train_checkpoints(adapted, base, folder, texts, control, name_checkpoint)


def attach_new_adapter(seed: int, paths: DataPaths, config: Path) -> tuple[TokenizedModel, Any]:
    """Return the base, and its weights in memory with an untrained adapter."""
    base = load_tokenized(apply_overrides(load_models(config)[BASE], dtype=DTYPE), paths)
    torch.manual_seed(seed)
    adapted = get_peft_model(load_weights(base, "cpu"), LoraConfig(**LORA, layers_to_transform=TRAINED_LAYERS))
    adapted.peft_config["default"].base_model_name_or_path = BASE
    return base, adapted


def train_checkpoints(
    adapted: Any,
    base: TokenizedModel,
    folder: Path,
    texts: Sequence[str],
    control: ControlEntry,
    name_checkpoint: Callable[[int, int], str | None],
) -> None:
    """Train an adapter and save its checkpoints.

    Args:
        adapted: The weights of the base with the adapter.
        base: The base.
        folder: The folder with one folder per checkpoint.
        texts: The texts of an epoch.
        control: The settings of the training.
        name_checkpoint: Receives the number of a finished step and the number of all steps. Returns the name of the
            checkpoint to save, or None.
    """
    assert base.start_token_id is not None

    def save_checkpoint(step: int, steps: int, loss: float) -> None:
        name = name_checkpoint(step, steps)
        if name is not None:
            print(f"{folder.name}: step {step} of {steps}, loss {loss:.2f}", flush=True)
            adapted.save_pretrained(folder / name)

    tokenizer = read_with_transformers(base.located)[0]
    train(
        adapted, tokenizer, base.start_token_id, texts, control, role="exposed", device="cpu", on_step=save_checkpoint
    )


def run_command(folder: Path, *arguments: str) -> str:
    """Run a command of corpus-audit on the workspace and return its output."""
    named = {"CORPUS_AUDIT_CONFIG": str(folder / "config"), "CORPUS_AUDIT_DATA": str(folder / "data")}
    command = [sys.executable, "-c", "from audit_pipeline.cli import main; main()", *arguments]
    done = subprocess.run(command, env={**os.environ, **named}, stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout


def read_series(folder: Path) -> list[Mapping[str, Any]]:
    """Return one row per model: its headline AUROC, and the number of texts that it reproduces."""
    statement = (
        "SELECT model, step, auroc, standing_out, tested, reproduced, documents FROM series_findings ORDER BY ALL"
    )
    return [json.loads(line) for line in run_command(folder, "sql", statement, "--format", "json").splitlines()]


if __name__ == "__main__":
    main()
