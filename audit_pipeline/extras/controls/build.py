"""Training a control and keeping what came of it: two models, the texts they were trained on, and a manifest.

With the training of a causal language model on known texts, and of the tokenizer of one that is trained from nothing.
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
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from audit_pipeline.errors import DataError
from audit_pipeline.extras.controls.config import Architecture, ControlEntry
from audit_pipeline.extras.controls.draw import DrawnText, compute_control_version, draw_texts, read_control_documents
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.conversion import read_with_transformers
from audit_pipeline.models.tokenized_model import TokenizedModel, apply_overrides, load_tokenized
from audit_pipeline.models.weights import choose_default_device, load_weights
from audit_pipeline.store.control_files import MANIFEST, TEXTS, require_intact_control
from audit_pipeline.store.control_names import EXPOSED, TWIN, Role
from audit_pipeline.store.files import read_json, table_from_rows, write_json, write_table
from audit_pipeline.store.integrity import digests_of_folder
from audit_pipeline.store.ledger import LineageStep, record_entry
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.versions import package_versions
from audit_pipeline.tables import CONTROL_TEXTS, CONTROLS, digest, text_sha256

START = "<|endoftext|>"


def train_tokenizer(texts: Iterable[str], vocabulary: int, context: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE of at most ``vocabulary`` tokens, learnt on ``texts``; ``START`` begins and ends a text.

    Members and held-out texts must both be in ``texts``: a tokenizer that knew one side's words better would separate
    the sides by itself.
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
    # In one order whatever the order of the texts: merges that are equally frequent are taken as they come.
    tokenizer.train_from_iterator(sorted(texts), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=START, eos_token=START, pad_token=START, model_max_length=context
    )


_IGNORED = -100
_NORM_LIMIT = 1.0
# Below this many parameters, the threads of an operation wait for each other longer than they work.
ONE_THREAD_BELOW = 20_000_000

OnTrainingStep = Callable[[int, int, float], None]


@dataclass(frozen=True)
class TrainingResult:
    """A trained model and what the training came to: steps, tokens (with repeats), seconds, mean loss of each epoch."""

    model: Any
    steps: int
    tokens: int
    seconds: float
    losses: tuple[float, ...]
    device: str


def build_untrained_model(architecture: Architecture, vocabulary: int, start_id: int, seed: int) -> Any:
    """Return a model with random weights that ``seed`` decides."""
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
            return GPTNeoXForCausalLM(GPTNeoXConfig(**shape))
        return LlamaForCausalLM(LlamaConfig(**shape))


def train(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    start_id: int,
    texts: Sequence[str],
    entry: ControlEntry,
    *,
    role: str,
    device: str,
    on_step: OnTrainingStep | None = None,
) -> TrainingResult:
    """Train ``model`` on ``texts`` in every epoch, in an order that ``role`` and seed decide.

    A text that ``texts`` hold several times is trained on as often. The learning rate is constant (Shi et al. 2024,
    section 6.1). Every text is one sequence after a start token, and the loss is taken over its tokens, as detectors
    read them. AdamW without weight decay, gradients clipped to norm 1; batches of ``entry.batch_size`` texts, padded to
    the longest. ``on_step`` gets step, steps and loss.
    """
    distinct = list(dict.fromkeys(texts))
    ids_of = dict(zip(distinct, tokenizer(distinct, add_special_tokens=False)["input_ids"], strict=True))
    steps = entry.epochs * -(-len(texts) // entry.batch_size)
    model = model.to(device).train()
    # fused: one kernel for all parameters, where a small model would spend its time in the interpreter.
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=entry.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )
    began, tokens, step, losses = time.perf_counter(), 0, 0, []
    # Dropout of a base model draws from this generator: the same run gives the same weights.
    with _limit_threads(model, device), torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(digest(entry.seed, role, "dropout"), 16) % 2**63)
        for epoch in range(entry.epochs):
            order = list(texts)
            random.Random(int(digest(entry.seed, entry.name, role, "order", epoch), 16)).shuffle(order)  # noqa: S311 - repeatable
            total = 0.0
            for start in range(0, len(order), entry.batch_size):
                batch = [torch.tensor([start_id, *ids_of[text]]) for text in order[start : start + entry.batch_size]]
                ids = pad_sequence(batch, batch_first=True, padding_value=start_id).to(device)
                mask = pad_sequence([torch.ones_like(row) for row in batch], batch_first=True).to(device)
                labels = ids.masked_fill(mask == 0, _IGNORED)
                loss = model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False).loss
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), _NORM_LIMIT)
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
    """One thread for a small model on the processor: quicker on a busy machine, and the same sums on every one."""
    before = torch.get_num_threads()
    small = device == "cpu" and sum(parameter.numel() for parameter in model.parameters()) < ONE_THREAD_BELOW
    torch.set_num_threads(1 if small else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
        (folder / MANIFEST).unlink(missing_ok=True)
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
    # Last of the folder's files: it says that the folder is whole.
    write_json(folder / MANIFEST, manifest)
    _write_control_pointer(entry.name, version, paths)
    for other in paths.control_pointer(entry.name).parent.iterdir():
        if other.is_dir() and other.name != version:
            shutil.rmtree(other)
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
        base = load_tokenized(apply_overrides(resolve_model(entry.base, load_models()), dtype="float32"), paths)
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
    small = entry.architecture.parameter_count < ONE_THREAD_BELOW
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
