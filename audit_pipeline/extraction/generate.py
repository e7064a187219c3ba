"""What a model gives when it is let go on behind a window's prefix: proof by doing.

What belongs here: continuations, by first choices and drawn. What does not: the probability of a suffix, which needs no
drawing (conclude.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig

from audit_pipeline.catalogue.contracts import BEST_TOKENS
from audit_pipeline.extraction.windows import split_prefix_and_suffix
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.batches import LocalPass
from audit_pipeline.token_statistics.encode import EncodedText
from audit_pipeline.token_statistics.forward import ForwardPass

_DRAWS_AT_ONCE = 64


@dataclass(frozen=True)
class Generated:
    """``greedy``: what the model goes on with when it always takes its first choice. ``hits``: how many of ``draws``
    continuations, every token drawn from the ``BEST_TOKENS`` likeliest, were the suffix word for word."""

    greedy: str
    hits: int
    draws: int


def generate(model: TokenizedModel, forward: LocalPass, window: EncodedText, draws: int, seed: int) -> Generated:
    """Let the model go on behind the prefix of ``window``, once by its first choices and ``draws`` times at random.

    The same seed draws the same continuations on the same machine. Drawing is transformers' own, which shares nothing
    with the pass that the probability comes from.
    """
    prefix, suffix = split_prefix_and_suffix(window)
    greedy = generate_greedily(forward, prefix, len(suffix))
    return Generated(model.tokenizer.decode(greedy), forward.apply(_hits, prefix, suffix, draws, seed), draws)


def generate_greedily(forward: LocalPass, prefix: Sequence[int], tokens: int) -> list[int]:
    """The ``tokens`` that the model goes on with behind ``prefix`` when it always takes its first choice."""
    return forward.apply(_generate_greedily, prefix, tokens)


def _generate_greedily(forward: ForwardPass, prefix: Sequence[int], tokens: int) -> list[int]:
    with forward.running():
        [found] = _continued(forward, prefix, tokens, 1, do_sample=False)
    return found


def _hits(forward: ForwardPass, prefix: Sequence[int], suffix: Sequence[int], draws: int, seed: int) -> int:
    """How many of ``draws`` continuations of ``prefix`` are ``suffix``."""
    hits = 0
    with forward.running(), torch.random.fork_rng(devices=_devices(forward)):
        torch.manual_seed(seed)
        for begin in range(0, draws, _DRAWS_AT_ONCE):
            some = min(_DRAWS_AT_ONCE, draws - begin)
            drawn = _continued(forward, prefix, len(suffix), some, do_sample=True, top_k=BEST_TOKENS)
            hits += sum(one == suffix for one in drawn)
    return hits


def _continued(forward: ForwardPass, prefix: Sequence[int], tokens: int, count: int, **how: Any) -> list[list[int]]:
    ids, network = torch.tensor([prefix] * count, device=forward.device), forward.model
    settings = GenerationConfig(pad_token_id=0, max_new_tokens=tokens, **how)
    # transformers takes what is not set from the model's own configuration: its penalties and suppressed tokens would
    # give other draws than those whose probability is told.
    of_model = network.generation_config
    network.generation_config = settings
    try:
        found = network.generate(  # type: ignore[operator]
            input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=settings
        )
    finally:
        network.generation_config = of_model
    return [one[len(prefix) :].tolist() for one in found]


def _devices(forward: ForwardPass) -> list[torch.device]:
    return [forward.device] if forward.device.type == "cuda" else []
