"""Training a causal language model on known texts, and the tokenizer of one that is trained from nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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

from audit_pipeline.extras.controls.config import Architecture, ControlEntry
from audit_pipeline.tables import digest

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
