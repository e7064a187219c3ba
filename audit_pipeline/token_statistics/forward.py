"""The forward pass: batches of token ids in, statistics of every scored token out.

What belongs here: tensors, devices, the split of a model into body and head. What does not: texts, files, progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from audit_pipeline.errors import ModelError
from audit_pipeline.token_statistics.encode import TOPK, EncodedText, IntArray
from audit_pipeline.token_statistics.reduce import Reduced, Workspace, joined, reduce_logits
from audit_pipeline.token_statistics.windows import Window

FloatArray = npt.NDArray[np.float32]

# Matrix products of fewer rows take other kernels. Where a model has massive activations (at a start token, say), their
# rounding moved log-probabilities by 2e-4: a text of one token alone must take the path that it takes among others.
_MIN_LENGTH = 16
_HEAD_ROWS_CPU = 256
_HEAD_BYTES_CUDA = 1 << 30
# Largest relative deviation (root mean square) between two ways to the same logits that rounding explains.
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 5e-3}


@dataclass(frozen=True)
class WindowStatistics:
    """What one window leaves behind: one value a scored token, in order."""

    window: Window
    logprob: FloatArray
    mean: FloatArray
    std: FloatArray
    max_logprob: FloatArray
    argmax_id: IntArray
    rank: IntArray
    topk_id: IntArray | None
    topk_logprob: FloatArray | None
    logits: npt.NDArray[np.float16] | None


class ForwardPass:
    """A model ready to score windows.

    Sequences are padded on the right and no mask is passed: in a causal model no real token can see what stands
    behind it, and the fast attention kernels stay in use. Where a model is not so (or takes its positions from
    padding), the check at construction finds it out and ``equal_lengths`` says that only windows of one length share
    a batch. ``length_step`` is the length beyond which a model encodes positions otherwise (LongRoPE): windows on
    either side of it do not share a batch, since the padded length decides. Raises ModelError where the model's
    logits are not numbers.
    """

    def __init__(self, model: torch.nn.Module, vocab_size: int) -> None:
        self.model = model
        self.device = next(model.parameters()).device
        self.dtype = next(model.parameters()).dtype
        self.vocab_size = vocab_size
        self.tokens_run = 0
        config: Any = model.config.get_text_config()  # type: ignore[union-attr,operator]
        self.length_step = _length_step(config)
        self._softcap = getattr(config, "final_logit_softcapping", None)
        self._split = False
        self._workspace: Workspace | None = None
        self._split, self.equal_lengths = self._check()

    @torch.inference_mode()
    def _check(self) -> tuple[bool, bool]:
        """Whether body and head apart give the model's own logits, and whether padding disturbs them."""
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(self.vocab_size, (1, 12), generator=generator).to(self.device)
        other = torch.randint(self.vocab_size, (1, 12), generator=generator).to(self.device)
        whole = self.model(input_ids=ids, use_cache=False).logits[0].float()
        if whole.isnan().any():
            raise ModelError(
                f"the model's logits are not numbers in {str(self.dtype).removeprefix('torch.')}: "
                "its weights are damaged, or it needs another dtype (bfloat16 or float32)"
            )
        tolerance = _TOLERANCE[self.dtype]
        try:
            split = _same(self._head(self._body(ids)[0]).float(), whole, tolerance)
        except (AttributeError, TypeError, RuntimeError):
            # A model without the usual parts is run whole.
            split = False
        padded = torch.cat([torch.cat([ids[:, :7], torch.zeros_like(ids[:, 7:])], dim=1), other])
        alone = self.model(input_ids=ids[:, :7], use_cache=False).logits[0].float()
        among = self.model(input_ids=padded, use_cache=False).logits[0, :7].float()
        return split, not _same(among, alone, tolerance)

    def _body(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model.get_decoder()(input_ids=input_ids, use_cache=False).last_hidden_state  # type: ignore[operator,no-any-return]

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model.get_output_embeddings()(hidden)  # type: ignore[operator]
        return torch.tanh(logits / self._softcap) * self._softcap if self._softcap else logits

    @torch.inference_mode()
    def run(
        self, encoded: Sequence[EncodedText], batch: Sequence[Window], *, topk: bool = False, logits: bool = False
    ) -> list[WindowStatistics]:
        """Score one batch of windows; ``encoded`` is the list that the windows' text numbers point into.

        ``topk`` and ``logits`` (float16, [scored tokens, V]) are kept where asked for.
        """
        length = max(window.length for window in batch)
        if not self.equal_lengths:
            length = max(length, _MIN_LENGTH)
        ids = np.zeros((len(batch), length), dtype=np.int64)
        rows: list[npt.NDArray[np.int64]] = []
        targets: list[IntArray] = []
        for index, window in enumerate(batch):
            text = encoded[window.text]
            shift = int(window.has_start_token)
            if text.start_token_id is not None:
                ids[index, 0] = text.start_token_id
            ids[index, shift : window.length] = text.token_id[window.begin : window.end]
            scored = np.arange(window.score_from, window.end)
            # The logits that predict a token stand at the position before it.
            rows.append(index * length + (scored - window.begin) + shift - 1)
            targets.append(text.token_id[window.score_from : window.end])
        self.tokens_run += ids.size
        reduced, kept = self._statistics(
            torch.from_numpy(ids).to(self.device),
            torch.from_numpy(np.concatenate(rows)).to(self.device),
            torch.from_numpy(np.concatenate(targets).astype(np.int64)).to(self.device),
            TOPK if topk else 0,
            logits,
        )
        return _by_window(batch, [len(target) for target in targets], reduced, kept)

    def _statistics(
        self, ids: torch.Tensor, rows: torch.Tensor, targets: torch.Tensor, topk: int, keep_logits: bool
    ) -> tuple[Reduced, torch.Tensor | None]:
        if self._split:
            hidden = self._body(ids).flatten(0, 1)[rows]
            step = self._head_rows()
            chunks: Iterable[torch.Tensor] = (
                self._head(hidden[begin : begin + step]) for begin in range(0, len(hidden), step)
            )
        else:
            step = len(rows)
            chunks = [self.model(input_ids=ids, use_cache=False).logits.flatten(0, 1)[rows]]
        reduced, kept = [], []
        for number, chunk in enumerate(chunks):
            if self._workspace is None:
                self._workspace = Workspace(self.device, chunk.shape[-1])
            reduced.append(reduce_logits(chunk, targets[number * step : (number + 1) * step], self._workspace, topk))
            if keep_logits:
                kept.append(chunk.half().cpu())
        return joined(reduced), torch.cat(kept) if kept else None

    def _head_rows(self) -> int:
        if self.device.type == "cpu":
            return _HEAD_ROWS_CPU
        return max(256, _HEAD_BYTES_CUDA // (4 * self.vocab_size))


def _same(logits: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    # Logits of -inf (tokens that a model rules out) would make every difference NaN.
    finite = expected.isfinite()
    difference = torch.where(finite, logits - expected, 0.0).norm()
    same = difference <= tolerance * torch.where(finite, expected, 0.0).norm()
    return bool(same) and torch.equal(logits.isfinite(), finite)


def _length_step(config: Any) -> int | None:
    """The length up to which LongRoPE takes its short factors; None for other position encodings."""
    parameters = getattr(config, "rope_parameters", None) or {}
    layers = [parameters, *(value for value in parameters.values() if isinstance(value, dict))]
    for layer in layers:
        if layer.get("rope_type") == "longrope":
            step = layer.get("original_max_position_embeddings") or config.original_max_position_embeddings
            return int(step)
    return None


def _by_window(
    batch: Sequence[Window], lengths: Sequence[int], reduced: Reduced, logits: torch.Tensor | None
) -> list[WindowStatistics]:
    columns = {
        name: None if tensor is None else np.split(tensor.cpu().numpy(), np.cumsum(lengths)[:-1])
        for name, tensor in {**vars(reduced), "logits": logits}.items()
    }
    return [
        WindowStatistics(window, **{name: None if parts is None else parts[i] for name, parts in columns.items()})  # type: ignore[arg-type]
        for i, window in enumerate(batch)
    ]
