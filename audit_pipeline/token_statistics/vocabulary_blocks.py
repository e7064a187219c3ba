"""The logits of positions in blocks of the vocabulary.

The module has classes that provide them, functions that combine blocks, and the transfer of results between devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from audit_pipeline.token_statistics.layer_tuning import Linear, is_wrapped

LOG_ZERO = -1e9
"""Finite substitute for a logit of minus infinity, in the moments, where its weight is exactly 0 (0 log 0 = 0)."""
# A CPU is fastest while a block stays in its caches. A GPU is fastest with large blocks.
_ROWS = {"cpu": 1024, "cuda": 4096}
_COLUMNS = {"cpu": 1024, "cuda": 8192}
# Maximum size in bytes of the values that a sweep keeps for each position and vocabulary token until its end. It limits
# the positions per sweep.
_KEPT_BYTES = {"cpu": 64 << 20, "cuda": 256 << 20}
KEPT_TYPE = torch.float16

Reduced = Mapping[str, torch.Tensor]
"""Statistics of ``n`` positions by name. Each is a tensor [n] on the device of the logits, with these exceptions:
``topk_id`` and ``topk_logprob`` are [n, TOPK_ENTRIES], statistics per temperature are [n, len(BETAS)], and ``logits``
is [n, V] in float16 in main memory."""


class Scratch:
    """Buffers that are reused between calls. On a CPU, fresh memory costs as much as the arithmetic."""

    def __init__(self, device: torch.device, rows: int | None = None, columns: int | None = None) -> None:
        self._device = device
        self.rows = rows or _ROWS[device.type]
        self.columns = columns or _COLUMNS[device.type]
        self._buffers: dict[str, torch.Tensor] = {}

    def compute_rows_per_sweep(self, width: int) -> int:
        """Return the number of positions per sweep if ``width`` values per position are kept until its end."""
        return max(1, min(self.rows, _KEPT_BYTES[self._device.type] // (KEPT_TYPE.itemsize * width)))

    def get_buffer(self, name: str, rows: int, columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return the buffer ``name`` as a tensor [rows, columns] with undefined contents."""
        size = rows * columns
        if name not in self._buffers or len(self._buffers[name]) < size:
            # The smaller buffer is released first, so that memory never holds both.
            self._buffers.pop(name, None)
            self._buffers[name] = torch.empty(size, dtype=dtype, device=self._device)
        return self._buffers[name][:size].view(rows, columns)


@dataclass(frozen=True)
class Shares:
    """The weights with which the earlier blocks and a new block are combined: [n] each.

    Attributes:
        before: Share of the earlier blocks in the probability of both.
        now: Share of the new block in the probability of both.
        before_below: Largest logit of the earlier blocks minus the largest of both, 0 or less.
        now_below: Largest logit of the new block minus the largest of both, 0 or less.
    """

    before: torch.Tensor
    now: torch.Tensor
    before_below: torch.Tensor
    now_below: torch.Tensor


@dataclass(frozen=True)
class Total:
    """The sum of exp(logit) over the blocks so far, stored as exp(``largest`` + ``log_sum``): [n] each.

    The two stay separate until the end. If one token has nearly all probability, ``log_sum`` is close to 0, and adding
    it to ``largest`` would lose its digits.
    """

    largest: torch.Tensor
    log_sum: torch.Tensor

    @classmethod
    def empty(cls, target: torch.Tensor) -> Total:
        """Return the total of no block, for the rows of ``target``."""
        largest = torch.full(target.shape, LOG_ZERO, device=target.device)
        return cls(largest, torch.full_like(largest, -torch.inf))

    def with_block(self, largest: torch.Tensor, log_sum: torch.Tensor) -> tuple[Total, Shares]:
        """Return the total with one more block, and the shares of both parts."""
        both = torch.maximum(self.largest, largest)
        before_below = self.largest - both
        now_below = largest - both
        before = self.log_sum + before_below
        now = log_sum + now_below
        together = torch.logaddexp(before, now)
        shares = Shares(torch.exp(before - together), torch.exp(now - together), before_below, now_below)
        return Total(both, together), shares

    def log_p(self, logit: torch.Tensor) -> torch.Tensor:
        """Return the log-probability of a logit [n] or [n, k]."""
        if logit.dim() == 1:
            return (logit - self.largest) - self.log_sum
        return (logit - self.largest.unsqueeze(1)) - self.log_sum.unsqueeze(1)


@dataclass(frozen=True)
class Block:
    """The logits of n positions for b consecutive tokens of the vocabulary.

    Attributes:
        begin: First token of the block.
        logits: Logits [n, b]. :func:`weigh_block` subtracts the largest logit of each row.
        largest: Largest logit of each row: [n].
        buffer: Memory [n, b]. :func:`weigh_block` fills it with the softmax of the logits: the share of each token in
            the block's probability.
    """

    begin: int
    logits: torch.Tensor
    largest: torch.Tensor
    buffer: torch.Tensor


def weigh_block(block: Block) -> torch.Tensor:
    """Subtract the largest logit of each row and compute the softmax of a block, in place.

    Returns:
        The log of the sum of exp(logit - the row's largest): [n].
    """
    block.largest.clamp_(min=LOG_ZERO)
    block.logits.clamp_(min=LOG_ZERO).sub_(block.largest.unsqueeze(1))
    return apply_softmax(block)


def apply_softmax(block: Block) -> torch.Tensor:
    """Fill the buffer of a block with the softmax of its logits. The largest logit of each row must be 0.

    Returns:
        The log of the sum of exp(logit): [n].
    """
    torch.softmax(block.logits, dim=1, out=block.buffer)
    # The largest logit is 0, so its softmax is 1 over the sum.
    return block.buffer.amax(1).log_().neg_()


# Number of positions whose target logits are computed at once, as the diagonal of a square product. Such a square is
# small compared with the logits of the whole vocabulary.
_SQUARE = 128


class Logits(Protocol):
    """The logits of ``n`` positions over a vocabulary of ``width`` tokens."""

    @property
    def width(self) -> int:
        """Return the size of the vocabulary."""
        ...

    def __len__(self) -> int: ...

    def block(self, begin: int, end: int, buffer: torch.Tensor) -> torch.Tensor:
        """Return the logits of the tokens ``begin:end``: [n, end - begin], float32. The caller may change them.

        They may be written into ``buffer``, a tensor of that shape.
        """

    def of(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logit of one token per position: ``tokens`` [n], result [n] in float32.

        The last bit may differ from the logit that :meth:`block` returns.
        """

    def part(self, begin: int, end: int) -> Logits:
        """Return the logits of the positions ``begin:end``."""

    def whole(self, padded_rows: int) -> torch.Tensor:
        """Return all logits in their own dtype: [padded_rows, V].

        Rows after the positions are padding without meaning.
        """


@dataclass(frozen=True)
class ComputedLogits:
    """Logits that were computed elsewhere: ``values`` [n, V] in any float dtype. They are never changed."""

    values: torch.Tensor

    @property
    def width(self) -> int:
        """Return the size of the vocabulary."""
        return self.values.shape[1]

    def __len__(self) -> int:
        return len(self.values)

    def block(self, begin: int, end: int, buffer: torch.Tensor) -> torch.Tensor:
        """Return a block of the vocabulary. See :meth:`Logits.block`."""
        return buffer.copy_(self.values[:, begin:end])

    def of(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logit of one token per position. See :meth:`Logits.of`."""
        return self.values.gather(1, tokens.unsqueeze(1)).squeeze(1).float()

    def part(self, begin: int, end: int) -> ComputedLogits:
        """Return the logits of some positions. See :meth:`Logits.part`."""
        return ComputedLogits(self.values[begin:end])

    def whole(self, padded_rows: int) -> torch.Tensor:
        """Return all logits with padding. See :meth:`Logits.whole`."""
        return _pad_rows(self.values, padded_rows)


@dataclass(frozen=True)
class Head:
    """The last layer of a language model: logits are ``softcap(scale * (hidden @ weight.T + bias))``.

    Attributes:
        weight: [V, d].
        bias: [V] or None.
        scale: Factor of the logits.
        softcap: c in c tanh(x / c) (Gemma 2), or None.
        linear: Function for products (layer_tuning.py).
        called: The layer, if another library (accelerate) replaces its ``forward``, else None. Such a layer must be
            called as a whole, because its weights may be on another device.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    scale: float
    softcap: float | None
    linear: Linear = functional.linear
    called: torch.nn.Module | None = None

    def logits(self, hidden: torch.Tensor) -> Logits:
        """Return the logits of ``hidden`` [n, d]."""
        return HeadLogits(self, hidden) if self.called is None else CalledLogits(self, self.called, hidden)

    def scale_and_cap(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply ``scale`` and ``softcap`` to products of hidden states and weights, in place."""
        if self.scale != 1.0:
            logits.mul_(self.scale)
        if self.softcap:
            logits.div_(self.softcap).tanh_().mul_(self.softcap)
        return logits


@dataclass(frozen=True)
class HeadLogits:
    """The logits of a ``head`` for ``hidden`` [n, d]. They are computed when they are requested."""

    head: Head
    hidden: torch.Tensor

    @property
    def width(self) -> int:
        """Return the size of the vocabulary."""
        return len(self.head.weight)

    def __len__(self) -> int:
        return len(self.hidden)

    def block(self, begin: int, end: int, buffer: torch.Tensor) -> torch.Tensor:
        """Return a block of the vocabulary. See :meth:`Logits.block`."""
        product = self._compute_product(slice(begin, end), self.hidden)
        # In a half precision the products are rounded to it before they are reduced in float32, as the model does.
        return product if product.dtype == buffer.dtype else buffer.copy_(product)

    def of(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logit of one token per position. See :meth:`Logits.of`."""
        # The target's logit is compared with the logits of the vocabulary blocks, so both must be rounded in the same
        # way. The diagonals of square products nearly always are. A plain sum of products is rounded in another way, so
        # a logit that equals the target's logit could count as larger.
        rows = range(0, max(len(self), 1), _SQUARE)
        squares = [
            self._compute_product(tokens[begin : begin + _SQUARE], self.hidden[begin : begin + _SQUARE])
            for begin in rows
        ]
        return torch.cat([square.diagonal() for square in squares]).float()

    def part(self, begin: int, end: int) -> HeadLogits:
        """Return the logits of some positions. See :meth:`Logits.part`."""
        return HeadLogits(self.head, self.hidden[begin:end])

    def whole(self, padded_rows: int) -> torch.Tensor:
        """Return all logits with padding. See :meth:`Logits.whole`."""
        return self._compute_product(slice(None), _pad_rows(self.hidden, padded_rows))

    def _compute_product(self, tokens: Any, hidden: torch.Tensor) -> torch.Tensor:
        bias = self.head.bias
        product = self.head.linear(hidden, self.head.weight[tokens], None if bias is None else bias[tokens])
        return self.head.scale_and_cap(product)


@dataclass(frozen=True)
class CalledLogits:
    """The logits of a ``head`` whose ``layer`` must be called as a whole, for ``hidden`` [n, d].

    Each request computes the logits of all positions. Request a part to limit them.
    """

    head: Head
    layer: torch.nn.Module
    hidden: torch.Tensor

    @property
    def width(self) -> int:
        """Return the size of the vocabulary."""
        return len(self.head.weight)

    def __len__(self) -> int:
        return len(self.hidden)

    def block(self, begin: int, end: int, buffer: torch.Tensor) -> torch.Tensor:
        """Return a block of the vocabulary. See :meth:`Logits.block`."""
        return self._compute().block(begin, end, buffer)

    def of(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logit of one token per position. See :meth:`Logits.of`."""
        return self._compute().of(tokens)

    def part(self, begin: int, end: int) -> ComputedLogits:
        """Return the logits of some positions. See :meth:`Logits.part`."""
        return CalledLogits(self.head, self.layer, self.hidden[begin:end])._compute()

    def whole(self, padded_rows: int) -> torch.Tensor:
        """Return all logits with padding. See :meth:`Logits.whole`."""
        return self._compute().whole(padded_rows)

    def _compute(self) -> ComputedLogits:
        return ComputedLogits(self.head.scale_and_cap(self.layer(self.hidden)))


def _pad_rows(values: torch.Tensor, rows: int) -> torch.Tensor:
    return functional.pad(values, (0, 0, 0, rows - len(values)))


def find_head(model: torch.nn.Module, config: Any, linear: Linear) -> Head | None:
    """Return the head of a language model if it is a plain linear layer. Otherwise decoder and head run together."""
    layer: Any = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None  # type: ignore[operator]
    if type(layer) is not torch.nn.Linear:
        return None
    # Granite divides its logits, and Cohere multiplies them.
    scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
    softcap = getattr(config, "final_logit_softcapping", None)
    return Head(layer.weight, layer.bias, scale, softcap, linear, layer if is_wrapped(layer) else None)


_NUMPY = {torch.float32: np.float32, torch.int32: np.int32}


def join_reduced(pieces: Sequence[Reduced]) -> Reduced:
    """Return the statistics of consecutive groups of positions, joined along the positions."""
    joined = {}
    for name in pieces[0]:
        joined[name] = torch.cat([piece[name] for piece in pieces])
    return joined


def copy_to_device(values: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Copy an array to a device without waiting for the device."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def begin_fetch(reduced: Reduced) -> Callable[[], dict[str, npt.NDArray[Any]]]:
    """Start to copy the statistics from the device in one transfer.

    Returns:
        A function that waits for the transfer and returns arrays of the same names and shapes.
    """
    on_device = {name: values for name, values in reduced.items() if values.dtype.itemsize == 4}
    rows = {name: values.reshape(len(values), math.prod(values.shape[1:])) for name, values in on_device.items()}
    together = torch.cat([values.contiguous().view(torch.int32) for values in rows.values()], dim=1)
    ends = np.cumsum([values.shape[1] for values in rows.values()])[:-1]
    here = together
    arrived = None
    if together.is_cuda:
        here = torch.empty(together.shape, dtype=together.dtype, pin_memory=True)
        here.copy_(together, non_blocking=True)
        arrived = torch.cuda.current_stream(together.device).record_event()

    def fetch() -> dict[str, npt.NDArray[Any]]:
        if arrived is not None:
            arrived.synchronize()
        arrays: dict[str, npt.NDArray[Any]] = {}
        for name, columns in zip(rows, np.split(here.numpy(), ends, axis=1), strict=True):
            values = on_device[name]
            arrays[name] = np.ascontiguousarray(columns).view(_NUMPY[values.dtype]).reshape(values.shape)
        fetched = {}
        for name, values in reduced.items():
            fetched[name] = arrays[name] if name in arrays else values.numpy()
        return fetched

    return fetch
