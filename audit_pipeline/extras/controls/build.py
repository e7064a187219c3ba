"""Training a control and keeping what came of it: two models, the texts they were trained on, and a manifest.

A trained control lies in a folder of its own version, and a pointer names the current one: a reader sees the whole of
one version or the whole of another, and a run that dies leaves the pointer where it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from transformers import PreTrainedTokenizerBase

from audit_pipeline.errors import DataError
from audit_pipeline.extras.controls.config import ControlEntry
from audit_pipeline.extras.controls.draw import DrawnText, draw_texts
from audit_pipeline.extras.controls.training import (
    ONE_THREAD_BELOW,
    START,
    build_untrained_model,
    train,
    train_tokenizer,
)
from audit_pipeline.extras.controls.versions import compute_control_version, read_control_documents
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.conversion import read_with_transformers
from audit_pipeline.models.tokenized_model import TokenizedModel, apply_overrides, load_tokenizer
from audit_pipeline.models.weights import choose_default_device, load_weights
from audit_pipeline.store.bucket_folder import remove, remove_folder, upload_folder
from audit_pipeline.store.control_files import MANIFEST, TEXTS, require_intact_control
from audit_pipeline.store.control_roles import EXPOSED, TWIN, Role
from audit_pipeline.store.files import read_json, table_from_rows, write_json, write_table
from audit_pipeline.store.integrity import digests_of_folder
from audit_pipeline.store.ledger import LineageStep, record_entry
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.versions import package_versions
from audit_pipeline.tables import CONTROL_TEXTS, CONTROLS, digest, text_sha256

OnControlStep = Callable[[Role, int, int, float], None]


@dataclass(frozen=True)
class ControlReport:
    """What training came to: the version, where it lies, the manifest as written, and whether it was trained before."""

    version: str
    folder: Path
    manifest: Mapping[str, Any]
    trained: bool


def ensure_control_trained(
    entry: ControlEntry,
    paths: DataPaths,
    step: LineageStep,
    *,
    device: str | None = None,
    on_step: OnControlStep | None = None,
) -> ControlReport:
    """Train the model that is exposed to the members, and the control model, unless this version is trained already.

    Raises DataError where there are no documents, or too few windows in them.
    """
    documents, versions = read_control_documents(entry, paths)
    version = compute_control_version(entry, versions)
    folder = paths.control_version(entry.name, version)
    try:
        require_intact_control(folder)
    except (FileNotFoundError, ValueError):
        # The folder is damaged, or a run died while it wrote it.
        remove(folder / MANIFEST)
    else:
        _write_control_pointer(entry.name, version, paths)
        return ControlReport(version, folder, read_json(folder / MANIFEST), trained=False)

    texts = draw_texts(documents, entry)
    manifest = train_into(folder, texts, entry, device=device or choose_default_device(), paths=paths, on_step=on_step)
    manifest = {
        "control": entry.name,
        "version": version,
        "run_id": step.run_id,
        "source_versions": dict(versions),
        **manifest,
        "files": digests_of_folder(folder),
    }
    record_entry(
        paths,
        step,
        CONTROLS,
        entry.name,
        data_version=version,
        upstream={f"documents/{source}": source_version for source, source_version in versions.items()},
    )
    upload_folder(folder)
    # Last of the folder's files: it says that the folder is whole.
    write_json(folder / MANIFEST, manifest)
    _write_control_pointer(entry.name, version, paths)
    for other in paths.control_pointer(entry.name).parent.iterdir():
        if other.is_dir() and other.name != version:
            remove_folder(other)
    return ControlReport(version, folder, manifest, trained=True)


def train_into(
    folder: Path,
    texts: Sequence[DrawnText],
    entry: ControlEntry,
    *,
    device: str,
    paths: DataPaths,
    roles: Sequence[Role] = (EXPOSED, TWIN),
    on_step: OnControlStep | None = None,
) -> dict[str, Any]:
    """Train the models of ``roles`` into ``folder``/<role> (safetensors and tokenizer), ``texts`` next to them.

    Returns what the manifest says of it.
    """
    write_table(folder / TEXTS, build_texts_table(texts))
    base = None
    if entry.base is None:
        shape = entry.architecture
        tokenizer = train_tokenizer((text.text for text in texts), shape.vocabulary, shape.context)
        start_id = int(tokenizer.convert_tokens_to_ids(START))
    else:
        # Its weights are read in float32 whatever its entry says.
        base = load_tokenizer(apply_overrides(resolve_model(entry.base, load_models()), dtype="float32"), paths)
        if base.entry.adapter is not None:
            raise DataError(f"control {entry.name}: its base {entry.base} has an adapter; name a model that has none")
        if base.start_token_id is None:
            raise DataError(f"control {entry.name}: its base {entry.base} has no start token; name it in its entry")
        tokenizer, start_id = read_with_transformers(base.located)[0], base.start_token_id

    def train_role(role: Role) -> dict[str, Any]:
        done = train(
            begun[role] if role in begun else _initialise_model(entry, tokenizer, start_id, base),
            tokenizer,
            start_id,
            [text.text for text in texts for _ in range(getattr(text, role))],
            entry,
            role=role,
            device=device,
            on_step=None if on_step is None else partial(on_step, role),
        )
        done.model.to("cpu").save_pretrained(folder / role, safe_serialization=True)
        tokenizer.save_pretrained(folder / role)
        return {
            "parameters": sum(parameter.numel() for parameter in done.model.parameters()),
            "steps": done.steps,
            "tokens": done.tokens,
            "seconds": round(done.seconds, 1),
            "losses": [round(loss, 4) for loss in done.losses],
            "device": done.device,
        }

    # Side by side where each takes one thread and draws nothing: the weights are the same to the last bit.
    small = entry.architecture.parameters < ONE_THREAD_BELOW
    side_by_side = base is None and device == "cpu" and small
    begun = {role: _initialise_model(entry, tokenizer, start_id, base) for role in roles} if side_by_side else {}
    with torch.random.fork_rng(devices=[]), ThreadPoolExecutor(len(roles) if side_by_side else 1) as pool:
        models = dict(zip(roles, pool.map(train_role, roles), strict=True))
    return {
        "settings": entry.model_dump(mode="json"),
        "roles": dict(Counter(text.role for text in texts)),
        "start_token": tokenizer.convert_ids_to_tokens(start_id),
        "vocabulary": len(tokenizer),
        "texts_sha256": digest([[text.text, text.role, text.exposed, text.twin] for text in texts]),
        "models": models,
        "packages": dict(package_versions()),
    }


def build_texts_table(texts: Sequence[DrawnText]) -> pa.Table:
    """Return the texts with their roles and occurrences (schema CONTROL_TEXTS), in their order."""
    rows = [{**vars(text), "sha256": text_sha256(text.text)} for text in texts]
    return table_from_rows(rows, CONTROL_TEXTS)


def _initialise_model(
    entry: ControlEntry, tokenizer: PreTrainedTokenizerBase, start_id: int, base: TokenizedModel | None
) -> Any:
    if base is None:
        return build_untrained_model(entry.architecture, len(tokenizer), start_id, entry.seed)
    # On a copy in memory: load_weights is where formats and damaged files are dealt with.
    model = load_weights(base, "cpu").requires_grad_(requires_grad=True)
    if hasattr(model.config, "quantization_config"):
        # What is saved are plain weights.
        del model.config.quantization_config
    return model


def _write_control_pointer(name: str, version: str, paths: DataPaths) -> None:
    write_json(paths.control_pointer(name), {"version": version})
