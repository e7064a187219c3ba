"""What a model gives when it is let go on behind a window's prefix: proof by doing.

What belongs here: continuations, by first choices and drawn. What does not: the probability of a suffix, which needs no
drawing (conclude.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from audit_pipeline.extraction.conclude import TOP
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.encode import EncodedText
from audit_pipeline.token_statistics.forward import ForwardPass

_DRAWS_AT_ONCE = 64
_AT_RANDOM = {"do_sample": True, "top_k": TOP, "top_p": 1.0, "temperature": 1.0}


@dataclass(frozen=True)
class Generated:
    """``greedy``: what the model goes on with when it always takes its first choice. ``hits``: how many of ``draws``
    continuations, every token drawn from the ``TOP`` likeliest, were the suffix word for word."""

    greedy: str
    hits: int
    draws: int


def generate(model: TokenizedModel, forward: ForwardPass, window: EncodedText, draws: int, seed: int) -> Generated:
    """Let the model go on behind the prefix of ``window``, once by its first choices and ``draws`` times at random.

    The same seed draws the same continuations on the same machine. Drawing is transformers' own, which shares nothing
    with the pass that the probability comes from.
    """
    suffix = window.token_id[window.first_scored :].tolist()
    start = [] if window.start_token_id is None else [window.start_token_id]
    prefix = [*start, *window.token_id[: window.first_scored].tolist()]
    with forward.running(), torch.random.fork_rng(devices=_devices(forward)):
        torch.manual_seed(seed)
        [greedy] = _continued(forward, prefix, len(suffix), 1, do_sample=False)
        hits = 0
        for begin in range(0, draws, _DRAWS_AT_ONCE):
            some = min(_DRAWS_AT_ONCE, draws - begin)
            drawn = _continued(
                forward, prefix, len(suffix), some, do_sample=True, top_k=TOP, top_p=1.0, temperature=1.0
            )
            hits += sum(one == suffix for one in drawn)
    return Generated(model.tokenizer.decode(greedy), hits, draws)


def _continued(
    forward: ForwardPass, prefix: Sequence[int], tokens: int, count: int, **how: bool | float
) -> list[list[int]]:
    ids = torch.tensor([prefix] * count, device=forward.device)
    found = forward.model.generate(  # type: ignore[operator]
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=tokens,
        repetition_penalty=1.0,
        pad_token_id=0,
        **how,
    )
    return [one[len(prefix) :].tolist() for one in found]


def _devices(forward: ForwardPass) -> list[torch.device]:
    return [forward.device] if forward.device.type == "cuda" else []
