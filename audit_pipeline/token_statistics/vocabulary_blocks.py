"""The logits of some positions in blocks of the vocabulary: where they come from, and how several are put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn import functional

from audit_pipeline.token_statistics.layer_tuning import Linear, is_wrapped

LOG_ZERO = -1e9
"""Finite substitute for a logit of minus infinity, in the moments, where its weight is exactly 0 (0 log 0 = 0)."""
# A CPU is fastest while a block stays in its caches; a GPU wants large pieces.
_ROWS = {"cpu": 1024, "cuda": 4096}
_COLUMNS = {"cpu": 1024, "cuda": 8192}
# What is kept of every token until the whole vocabulary has been seen; fewer positions are swept at once for it.
_KEPT_BYTES = {"cpu": 64 << 20, "cuda": 256 << 20}
KEPT_TYPE = torch.float16

Reduced = Mapping[str, torch.Tensor]
"""Statistics of ``n`` positions by name, each a tensor [n] on the logits' device; ``topk_id`` and ``topk_logprob``
are [n, TOPK], those of temperatures [n, len(BETAS)], ``logits`` [n, V] in float16 and in the computer's own memory."""


class Scratch:
    """Buffers that are reused from call to call: on a CPU, fresh memory costs as much as the arithmetic."""

    def __init__(self, device: torch.device, rows: int | None = None, columns: int | None = None) -> None:
        self._device = device
        self.rows = rows or _ROWS[device.type]
        self.columns = columns or _COLUMNS[device.type]
        self._buffers: dict[str, torch.Tensor] = {}

    def compute_rows_per_sweep(self, width: int) -> int:
        """How many positions are swept at once where something is kept of each of ``width`` tokens."""
        return max(1, min(self.rows, _KEPT_BYTES[self._device.type] // (KEPT_TYPE.itemsize * width)))

    def get_buffer(self, name: str, rows: int, columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The scratch tensor [rows, columns] that is called ``name``; its contents are undefined."""
        size = rows * columns
        if name not in self._buffers or len(self._buffers[name]) < size:
            # The smaller one is given back first: both need not be in memory.
            self._buffers.pop(name, None)
            self._buffers[name] = torch.empty(size, dtype=dtype, device=self._device)
        return self._buffers[name][:size].view(rows, columns)


@dataclass(frozen=True)
class Shares:
    """How the blocks before and one more are put together: [n] each.

    ``before`` and ``now`` are what either has of the probability of both together; ``before_below`` and ``now_below``
    how far its largest logit is below the largest of both (0 or less).
    """

    before: torch.Tensor
    now: torch.Tensor
    before_below: torch.Tensor
    now_below: torch.Tensor


@dataclass(frozen=True)
class Total:
    """The sum of exp(logit) over some blocks as exp(``largest`` + ``log_sum``): [n] each.

    The two stay apart until the end: where one token has nearly all of the probability, the second is next to nothing,
    and would be lost in the first.
    """

    largest: torch.Tensor
    log_sum: torch.Tensor

    @classmethod
    def empty(cls, target: torch.Tensor) -> Total:
        """Of no block, for as many rows as ``target`` has."""
        largest = torch.full(target.shape, LOG_ZERO, device=target.device)
        return cls(largest, torch.full_like(largest, -torch.inf))

    def with_block(self, largest: torch.Tensor, log_sum: torch.Tensor) -> tuple[Total, Shares]:
        """The total with one more block in it, and both parts' shares."""
        both = torch.maximum(self.largest, largest)
        before_below, now_below = self.largest - both, largest - both
        before, now = self.log_sum + before_below, log_sum + now_below
        together = torch.logaddexp(before, now)
        shares = Shares(torch.exp(before - together), torch.exp(now - together), before_below, now_below)
        return Total(both, together), shares

    def log_p(self, logit: torch.Tensor) -> torch.Tensor:
        """The log-probability of a logit [n] or [n, k]."""
        if logit.dim() == 1:
            return (logit - self.largest) - self.log_sum
        return (logit - self.largest.unsqueeze(1)) - self.log_sum.unsqueeze(1)


@dataclass(frozen=True)
class Block:
    """The logits [n, b] of the tokens from ``begin`` on, the largest of each row [n], and room for as many [n, b].

    Once weighed, ``logits`` are less the row's largest, and ``buffer`` holds their softmax: what each token has of the
    block's probability.
    """

    begin: int
    logits: torch.Tensor
    largest: torch.Tensor
    buffer: torch.Tensor


def weigh_block(block: Block) -> torch.Tensor:
    """Weigh a block, in place, and return the log of the sum of exp(logit - the row's largest): [n]."""
    block.largest.clamp_(min=LOG_ZERO)
    block.logits.clamp_(min=LOG_ZERO).sub_(block.largest.unsqueeze(1))
    return apply_softmax(block)


def apply_softmax(block: Block) -> torch.Tensor:
    """Fill the room of a block whose rows have 0 as their largest logit; the log of the sum of exp(logit): [n]."""
    torch.softmax(block.logits, dim=1, out=block.buffer)
    # The largest logit is 0, so its softmax is 1 over the sum.
    return block.buffer.amax(1).log_().neg_()


# Positions whose targets' logits are multiplied at once: their squares cost nothing compared with the vocabulary.
_SQUARE = 128


class Logits(Protocol):
    """The logits of ``n`` positions over a vocabulary of ``width`` tokens."""

    @property
    def width(self) -> int: ...

    def __len__(self) -> int: ...

    def block(self, begin: int, end: int, buffer: torch.Tensor) -> torch.Tensor:
        """The logits of the tokens ``begin:end``: [n, end - begin], float32, the caller's to change.

        ``buffer`` is a tensor of that shape that may be used for them.
        """

    def of(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logit of one token [n] at each position: [n], float32; the last bit may differ from the token's block."""

    def part(self, begin: int, end: int) -> Logits:
        """The positions ``begin:end``."""

    def whole(self, rows: int) -> torch.Tensor:
        """All of them in their own dtype, padded to so many ``rows`` by rows without meaning: [rows, V]."""


@dataclass(frozen=True)
class ComputedLogits:
    """Logits that were computed elsewhere: ``values`` [n, V] in any float dtype. They are left as they are."""

    values: torch.Tensor

    @property
    def width(self) -> int:
        return self.values.shape[1]

    def __len__(self) -> int:
        return len(self.values)

    def block(self, begin: int, end: int, buffer: torch.Tensor) -> torch.Tensor:
        return buffer.copy_(self.values[:, begin:end])

    def of(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.values.gather(1, tokens.unsqueeze(1)).squeeze(1).float()

    def part(self, begin: int, end: int) -> ComputedLogits:
        return ComputedLogits(self.values[begin:end])

    def whole(self, rows: int) -> torch.Tensor:
        return _pad_rows(self.values, rows)


@dataclass(frozen=True)
class Head:
    """The last layer of a language model: logits are ``softcap(scale * (hidden @ weight.T + bias))``.

    weight: [V, d]; bias: [V] or None. ``softcap`` c means c tanh(x / c) (Gemma 2), None for none. ``linear`` makes
    the products (layer_tuning.py). ``called`` is the layer itself where its weights cannot be multiplied with,
    because another library holds them (layer_tuning.py).
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    scale: float
    softcap: float | None
    linear: Linear = functional.linear
    called: torch.nn.Module | None = None

    def logits(self, hidden: torch.Tensor) -> Logits:
        """The logits of ``hidden`` [n, d]."""
        return HeadLogits(self, hidden) if self.called is None else CalledLogits(self, self.called, hidden)

    def scale_and_cap(self, logits: torch.Tensor) -> torch.Tensor:
        """Scale and cap products of the weights, in place."""
        if self.scale != 1.0:
            logits.mul_(self.scale)
        if self.softcap:
            logits.div_(self.softcap).tanh_().mul_(self.softcap)
        return logits


@dataclass(frozen=True)
class HeadLogits:
    """The logits that a ``head`` gives for ``hidden`` [n, d], computed as they are asked for."""

    head: Head
    hidden: torch.Tensor

    @property
    def width(self) -> int:
        return len(self.head.weight)

    def __len__(self) -> int:
        return len(self.hidden)

    def block(self, begin: int, end: int, buffer: torch.Tensor) -> torch.Tensor:
        product = self._compute_product(slice(begin, end), self.hidden)
        # In a half precision the products are rounded to it before they are reduced in float32, as the model does.
        return product if product.dtype == buffer.dtype else buffer.copy_(product)

    def of(self, tokens: torch.Tensor) -> torch.Tensor:
        # A product of square blocks, of which the diagonal is wanted: it is nearly always rounded as in the block of
        # the vocabulary, where a sum of products would be rounded otherwise, and equal logits counted as larger ones.
        rows = range(0, max(len(self), 1), _SQUARE)
        squares = [
            self._compute_product(tokens[begin : begin + _SQUARE], self.hidden[begin : begin + _SQUARE])
            for begin in rows
        ]
        return torch.cat([square.diagonal() for square in squares]).float()

    def part(self, begin: int, end: int) -> HeadLogits:
        return HeadLogits(self.head, self.hidden[begin:end])

    def whole(self, rows: int) -> torch.Tensor:
        return self._compute_product(slice(None), _pad_rows(self.hidden, rows))

    def _compute_product(self, tokens: Any, hidden: torch.Tensor) -> torch.Tensor:
        bias = self.head.bias
        product = self.head.linear(hidden, self.head.weight[tokens], None if bias is None else bias[tokens])
        return self.head.scale_and_cap(product)


@dataclass(frozen=True)
class CalledLogits:
    """The logits [n, V] that the ``layer`` of a ``head`` gives for ``hidden`` [n, d] where it is called as a whole.

    All that are asked for at once are made at once: ask for a part.
    """

    head: Head
    layer: torch.nn.Module
    hidden: torch.Tensor

    @property
    def width(self) -> int:
        return len(self.head.weight)

    def __len__(self) -> int:
        return len(self.hidden)

    def block(self, begin: int, end: int, buffer: torch.Tensor) -> torch.Tensor:
        return self._made().block(begin, end, buffer)

    def of(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._made().of(tokens)

    def part(self, begin: int, end: int) -> ComputedLogits:
        return CalledLogits(self.head, self.layer, self.hidden[begin:end])._made()

    def whole(self, rows: int) -> torch.Tensor:
        return self._made().whole(rows)

    def _made(self) -> ComputedLogits:
        return ComputedLogits(self.head.scale_and_cap(self.layer(self.hidden)))


def _pad_rows(values: torch.Tensor, rows: int) -> torch.Tensor:
    return functional.pad(values, (0, 0, 0, rows - len(values)))


def find_head(model: torch.nn.Module, config: Any, linear: Linear) -> Head | None:
    """The head of a language model where it is a plain linear layer, else None: such a model is run whole."""
    layer: Any = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None  # type: ignore[operator]
    if type(layer) is not torch.nn.Linear:
        return None
    # Granite divides its logits, Cohere multiplies them.
    scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
    softcap = getattr(config, "final_logit_softcapping", None)
    return Head(layer.weight, layer.bias, scale, softcap, linear, layer if is_wrapped(layer) else None)
