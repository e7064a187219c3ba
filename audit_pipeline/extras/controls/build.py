"""The training of a control, and its files: two models, the texts that they were trained on, and a manifest.

The training loop is written here, because transformers' Trainer does not fix the order of texts by role and seed. This
fixed order makes a control repeatable.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
import transformers
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from torch.nn.utils.rnn import pad_sequence

from audit_pipeline.errors import DataError
from audit_pipeline.extras.controls.config import Architecture, ControlEntry
from audit_pipeline.extras.controls.draw import DrawnText, compute_control_version, draw_texts, read_control_documents
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.conversion import read_with_transformers
from audit_pipeline.models.tokenized_model import TokenizedModel, apply_overrides, load_tokenized
from audit_pipeline.models.weights import choose_default_device, load_weights
from audit_pipeline.store.control_files import MANIFEST, TEXTS, require_intact_control
from audit_pipeline.store.files import read_json, table_from_rows, write_json, write_table
from audit_pipeline.store.integrity import digests_of_folder, package_versions
from audit_pipeline.store.ledger import LineageStep, record_entry
from audit_pipeline.store.paths import EXPOSED, TWIN, DataPaths, Role
from audit_pipeline.tables import CONTROL_TEXTS, CONTROLS, digest, text_sha256
from audit_pipeline.token_statistics.layer_tuning import ONE_THREAD_BELOW

START = "<|endoftext|>"


def train_tokenizer(texts: Iterable[str], vocabulary: int, context: int) -> transformers.PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer. The token ``START`` begins and ends a text.

    Args:
        texts: The texts to learn from. They must include both members and held-out texts. Otherwise the tokenizer would
            split the words of one side into more tokens, and would separate the sides by itself.
        vocabulary: The maximum number of tokens.
        context: The maximum length of an input in tokens.
    """
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[START],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # Merges with equal frequency depend on the order of the texts, so the texts are sorted.
    tokenizer.train_from_iterator(sorted(texts), trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=START, eos_token=START, pad_token=START, model_max_length=context
    )


_IGNORED_LABEL = -100
_MAX_GRADIENT_NORM = 1.0

OnTrainingStep = Callable[[int, int, float], None]


@dataclass(frozen=True)
class TrainingResult:
    """A trained model and the course of its training.

    Attributes:
        model: The model.
        steps: The number of optimiser steps.
        tokens: The number of tokens, including repeated texts.
        seconds: The duration.
        losses: The mean loss of each epoch, in nats per token.
        device: The device of the training.
    """

    model: Any
    steps: int
    tokens: int
    seconds: float
    losses: tuple[float, ...]
    device: str


def build_untrained_model(architecture: Architecture, vocabulary: int, start_id: int, seed: int) -> Any:
    """Build a model with random weights. The same seed yields the same weights."""
    shape = {
        "vocab_size": vocabulary,
        "hidden_size": architecture.hidden_size,
        "num_hidden_layers": architecture.layers,
        "num_attention_heads": architecture.heads,
        "intermediate_size": architecture.intermediate_size,
        "max_position_embeddings": architecture.context,
        "bos_token_id": start_id,
        "eos_token_id": start_id,
        "tie_word_embeddings": True,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if architecture.family == "gpt_neox":
            return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**shape))
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape))


def train(
    model: Any,
    tokenizer: transformers.PreTrainedTokenizerBase,
    start_id: int,
    texts: Sequence[str],
    entry: ControlEntry,
    *,
    role: str,
    device: str,
    on_step: OnTrainingStep | None = None,
) -> TrainingResult:
    """Train a causal language model on texts.

    Each text is one sequence after a start token. The loss covers the tokens of the text, as detectors read them. The
    learning rate is constant (Shi et al. 2024, section 6.1). The optimiser is AdamW without weight decay, with
    gradients clipped to norm 1. Batches have ``entry.batch_size`` texts, padded to the longest text.

    Args:
        model: The model, which is trained in place.
        tokenizer: The tokenizer of the model.
        start_id: The id of the start token.
        texts: The texts of an epoch. A text that occurs several times is trained on as often.
        entry: The settings of the control.
        role: The role of the model (exposed or twin). Role and seed decide the order of texts in each epoch.
        device: The device to train on.
        on_step: Receives the number of the step, the number of all steps, and the loss.
    """
    distinct_texts = list(dict.fromkeys(texts))
    encoded = tokenizer(distinct_texts, add_special_tokens=False)["input_ids"]
    ids_by_text = dict(zip(distinct_texts, encoded, strict=True))
    steps = entry.epochs * -(-len(texts) // entry.batch_size)
    model = model.to(device).train()
    # With fused, one kernel updates all parameters. Otherwise a small model spends its time in the interpreter.
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=entry.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )
    began = time.perf_counter()
    tokens = 0
    step = 0
    losses: list[float] = []
    # Dropout of a base model draws from this generator, so the seed makes the weights repeatable.
    with _limit_threads(model, device), torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(digest(entry.seed, role, "dropout"), 16) % 2**63)
        for epoch in range(entry.epochs):
            order = list(texts)
            random.Random(int(digest(entry.seed, entry.name, role, "order", epoch), 16)).shuffle(order)  # noqa: S311 - repeatable
            total = 0.0
            for start in range(0, len(order), entry.batch_size):
                batch_texts = order[start : start + entry.batch_size]
                batch = [torch.tensor([start_id, *ids_by_text[text]]) for text in batch_texts]
                ids = pad_sequence(batch, batch_first=True, padding_value=start_id).to(device)
                mask = pad_sequence([torch.ones_like(row) for row in batch], batch_first=True).to(device)
                labels = ids.masked_fill(mask == 0, _IGNORED_LABEL)
                loss = model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False).loss
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), _MAX_GRADIENT_NORM)
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
                step += 1
                value = float(loss.detach())
                total += value * len(batch)
                tokens += sum(map(len, batch)) - len(batch)
                if on_step is not None:
                    on_step(step, steps, value)
            losses.append(total / max(1, len(order)))
    return TrainingResult(model.eval(), step, tokens, time.perf_counter() - began, tuple(losses), device)


@contextmanager
def _limit_threads(model: Any, device: str) -> Iterator[None]:
    """Use one thread for a small model on the CPU, which is faster on a busy machine.

    With one thread, the order of additions does not depend on the number of cores. So the weights do not either.
    """
    n_threads = torch.get_num_threads()
    if device == "cpu" and _count_parameters(model) < ONE_THREAD_BELOW:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _count_parameters(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


OnControlStep = Callable[[Role, int, int, float], None]


@dataclass(frozen=True)
class ControlReport:
    """A trained control: its version, its files, and whether it was trained just now.

    Attributes:
        version: The version of the control.
        folder: The folder of its files.
        manifest: The content of its manifest.
        trained: True if this call trained the control. False if this version was trained before.
    """

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
    """Train the exposed model and the twin, unless this version is already trained.

    Args:
        entry: The settings of the control.
        paths: The data folder.
        step: The lineage step that the ledger records.
        device: The device to train on. By default the best available one.
        on_step: Receives the role, the number of the step, the number of all steps, and the loss.

    Raises:
        DataError: If documents are missing or have too few windows.
    """
    documents, versions = read_control_documents(entry, paths)
    version = compute_control_version(entry, versions)
    folder = paths.control_version(entry.name, version)
    try:
        require_intact_control(folder)
    except (FileNotFoundError, ValueError):
        # The folder is damaged, or a run ended while it wrote the folder.
        (folder / MANIFEST).unlink(missing_ok=True)
    else:
        _write_control_pointer(entry.name, version, paths)
        return ControlReport(version, folder, read_json(folder / MANIFEST), trained=False)

    texts = draw_texts(documents, entry)
    manifest = train_models_into(
        folder, texts, entry, device=device or choose_default_device(), paths=paths, on_step=on_step
    )
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
    # The manifest is written last, because its presence means that the folder is complete.
    write_json(folder / MANIFEST, manifest)
    _write_control_pointer(entry.name, version, paths)
    for other in paths.control_pointer(entry.name).parent.iterdir():
        if other.is_dir() and other.name != version:
            shutil.rmtree(other)
    return ControlReport(version, folder, manifest, trained=True)


def train_models_into(
    folder: Path,
    texts: Sequence[DrawnText],
    entry: ControlEntry,
    *,
    device: str,
    paths: DataPaths,
    roles: Sequence[Role] = (EXPOSED, TWIN),
    on_step: OnControlStep | None = None,
) -> dict[str, Any]:
    """Train models into ``folder``/<role> (safetensors and tokenizer), and write the texts to ``folder``.

    Args:
        folder: The folder of the control's files.
        texts: The drawn texts.
        entry: The settings of the control.
        device: The device to train on.
        paths: The data folder, which contains the stored description (card) of a base model.
        roles: The models to train.
        on_step: Receives the role, the number of the step, the number of all steps, and the loss.

    Returns:
        The part of the manifest that describes the training.
    """
    write_table(folder / TEXTS, build_texts_table(texts))
    base = None
    if entry.base is None:
        shape = entry.architecture
        tokenizer = train_tokenizer((text.text for text in texts), shape.vocabulary, shape.context)
        start_id = int(tokenizer.convert_tokens_to_ids(START))
    else:
        base, start_id = _load_base_and_start_token(entry, entry.base, paths)
        tokenizer = read_with_transformers(base.located)[0]

    initial_models: dict[Role, Any] = {}
    n_workers = 1
    is_small = entry.architecture.parameter_count < ONE_THREAD_BELOW
    # Small models are trained in parallel. Each uses one thread and no random numbers, so that the weights are the same
    # to the last bit. They are initialised here, because threads share the state of the random generator.
    if base is None and device == "cpu" and is_small:
        n_workers = len(roles)
        initial_models = {role: _initialise_model(entry, tokenizer, start_id, base) for role in roles}

    def train_role(role: Role) -> dict[str, Any]:
        model = initial_models.get(role)
        if model is None:
            model = _initialise_model(entry, tokenizer, start_id, base)
        report_step: OnTrainingStep | None = None
        if on_step is not None:
            report_step = partial(on_step, role)
        result = train(
            model,
            tokenizer,
            start_id,
            _repeat_texts(texts, role),
            entry,
            role=role,
            device=device,
            on_step=report_step,
        )
        result.model.to("cpu").save_pretrained(folder / role, safe_serialization=True)
        tokenizer.save_pretrained(folder / role)
        losses = [round(loss, 4) for loss in result.losses]
        return {
            "parameters": _count_parameters(result.model),
            "steps": result.steps,
            "tokens": result.tokens,
            "seconds": round(result.seconds, 1),
            "losses": losses,
            "device": result.device,
        }

    with torch.random.fork_rng(devices=[]), ThreadPoolExecutor(n_workers) as pool:
        models = dict(zip(roles, pool.map(train_role, roles), strict=True))
    text_rows = [[text.text, text.role, text.exposed, text.twin] for text in texts]
    return {
        "settings": entry.model_dump(mode="json"),
        "roles": dict(Counter(text.role for text in texts)),
        "start_token": tokenizer.convert_ids_to_tokens(start_id),
        "vocabulary": len(tokenizer),
        "texts_sha256": digest(text_rows),
        "models": models,
        "packages": dict(package_versions()),
    }


def _load_base_and_start_token(entry: ControlEntry, name: str, paths: DataPaths) -> tuple[TokenizedModel, int]:
    """Return the base model of a control and the id of its start token. Its weights are read in float32."""
    base = load_tokenized(apply_overrides(resolve_model(name, load_models()), dtype="float32"), paths)
    if base.entry.adapter is not None:
        raise DataError(
            f"The base {name} of control {entry.name} has an adapter. Choose a base without an adapter in "
            "config/controls.yaml."
        )
    if base.start_token_id is None:
        raise DataError(
            f"The base {name} of control {entry.name} has no start token. Set 'start_token' in the entry of {name} in "
            "config/models.yaml."
        )
    return base, base.start_token_id


def _repeat_texts(texts: Sequence[DrawnText], role: Role) -> list[str]:
    """Return the texts of an epoch. Each text occurs as often as the model of this role is trained on it."""
    repeated: list[str] = []
    for text in texts:
        repeated += [text.text] * getattr(text, role)
    return repeated


def build_texts_table(texts: Sequence[DrawnText]) -> pa.Table:
    """Build the table of texts with their roles and occurrences, in order (schema CONTROL_TEXTS)."""
    rows = [{**vars(text), "sha256": text_sha256(text.text)} for text in texts]
    return table_from_rows(rows, CONTROL_TEXTS)


def _initialise_model(
    entry: ControlEntry, tokenizer: transformers.PreTrainedTokenizerBase, start_id: int, base: TokenizedModel | None
) -> Any:
    if base is None:
        return build_untrained_model(entry.architecture, len(tokenizer), start_id, entry.seed)
    # The training changes only this copy in memory. load_weights handles all formats and damaged files.
    model = load_weights(base, "cpu").requires_grad_(requires_grad=True)
    if hasattr(model.config, "quantization_config"):
        # The trained model is saved with plain weights, so a description of quantised weights would be wrong.
        del model.config.quantization_config
    return model


def _write_control_pointer(name: str, version: str, paths: DataPaths) -> None:
    write_json(paths.control_pointer(name), {"version": version})
