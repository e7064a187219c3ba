"""The logits of some positions, a block of the vocabulary at a time.

What belongs here: the places that logits come from: a model's head, multiplied block by block so that no tensor
[positions, vocabulary] is ever made; a head whose weights another library holds, called for some positions at a time;
and logits that are at hand. What does not: what is made of them (reduce.py), the body of the model (forward.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn import functional

from audit_pipeline.token_statistics.placement import is_wrapped
from audit_pipeline.token_statistics.products import Linear

# Positions whose targets' logits are multiplied at once: their squares cost next to nothing beside the vocabulary.
_SQUARE = 128


class Logits(Protocol):
    """The logits of ``n`` positions over a vocabulary of ``width`` tokens."""

    @property
    def width(self) -> int: ...

    def __len__(self) -> int: ...

    def block(self, begin: int, end: int, room: torch.Tensor) -> torch.Tensor:
        """The logits of the tokens ``begin:end``: [n, end - begin], float32, the caller's to change.

        ``room`` is a tensor of that shape that may be used for them.
        """

    def of(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logit of one token [n] at each position: [n], float32; the last bit may differ from the token's block."""

    def part(self, begin: int, end: int) -> Logits:
        """The positions ``begin:end``."""


@dataclass(frozen=True)
class ComputedLogits:
    """Logits that were computed elsewhere: ``values`` [n, V] in any float dtype. They are left as they are."""

    values: torch.Tensor

    @property
    def width(self) -> int:
        return self.values.shape[1]

    def __len__(self) -> int:
        return len(self.values)

    def block(self, begin: int, end: int, room: torch.Tensor) -> torch.Tensor:
        return room.copy_(self.values[:, begin:end])

    def of(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.values.gather(1, tokens.unsqueeze(1)).squeeze(1).float()

    def part(self, begin: int, end: int) -> ComputedLogits:
        return ComputedLogits(self.values[begin:end])


@dataclass(frozen=True)
class Head:
    """The last layer of a language model: logits are ``softcap(scale * (hidden @ weight.T + bias))``.

    weight: [V, d]; bias: [V] or None. ``softcap`` c stands for c tanh(x / c) (Gemma 2), None for none. ``linear`` makes
    the products (products.py). ``called`` is the layer itself where its weights cannot be multiplied with, because
    another library holds them (placement.py).
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

    def finish(self, logits: torch.Tensor) -> torch.Tensor:
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

    def block(self, begin: int, end: int, room: torch.Tensor) -> torch.Tensor:
        product = self._product(slice(begin, end), self.hidden)
        # In a half precision the products are rounded to it before they are reduced in float32, as the model does.
        return product if product.dtype == room.dtype else room.copy_(product)

    def of(self, tokens: torch.Tensor) -> torch.Tensor:
        # A product of square blocks, of which the diagonal is wanted: it is nearly always rounded as in the block of
        # the vocabulary, where a sum of products would be rounded otherwise, and equal logits counted as larger ones.
        rows = range(0, max(len(self), 1), _SQUARE)
        squares = [
            self._product(tokens[begin : begin + _SQUARE], self.hidden[begin : begin + _SQUARE]) for begin in rows
        ]
        return torch.cat([square.diagonal() for square in squares]).float()

    def part(self, begin: int, end: int) -> HeadLogits:
        return HeadLogits(self.head, self.hidden[begin:end])

    def _product(self, tokens: Any, hidden: torch.Tensor) -> torch.Tensor:
        bias = self.head.bias
        product = self.head.linear(hidden, self.head.weight[tokens], None if bias is None else bias[tokens])
        return self.head.finish(product)


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

    def block(self, begin: int, end: int, room: torch.Tensor) -> torch.Tensor:
        return self._made().block(begin, end, room)

    def of(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._made().of(tokens)

    def part(self, begin: int, end: int) -> ComputedLogits:
        return CalledLogits(self.head, self.layer, self.hidden[begin:end])._made()

    def _made(self) -> ComputedLogits:
        return ComputedLogits(self.head.finish(self.layer(self.hidden)))


def head_of(model: torch.nn.Module, config: Any, linear: Linear) -> Head | None:
    """The head of a language model where it is a plain linear layer, else None: such a model is run whole."""
    layer: Any = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None  # type: ignore[operator]
    if type(layer) is not torch.nn.Linear:
        return None
    # Granite divides its logits, Cohere multiplies them.
    scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
    softcap = getattr(config, "final_logit_softcapping", None)
    return Head(layer.weight, layer.bias, scale, softcap, linear, layer if is_wrapped(layer) else None)
