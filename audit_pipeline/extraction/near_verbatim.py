"""How likely a model gives a suffix nearly word for word: a lower bound, by beam search (Cooper et al. 2026).

What belongs here: the beams, how far each is from the suffix, and running the model on them. What does not: the
probability of the suffix itself (conclude.py), drawing (generate.py).

Every token of a continuation is drawn from the ``BEST_TOKENS`` likeliest, as for ``log_p_top``. Continuations are as
long as the suffix. Those that can no longer end near it are dropped, and of the others the likeliest are gone on with,
the suffix itself always among them. A beam that can only end near the suffix, however it goes on, counts whole and is
not run on: the bound is larger for it than the sum over finished beams that the paper takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from transformers.cache_utils import DynamicCache

from audit_pipeline.catalogue.contracts import BEST_TOKENS
from audit_pipeline.extraction.windows import split_prefix_and_suffix
from audit_pipeline.metrics.curves import Floats
from audit_pipeline.token_statistics.batches import LocalPass
from audit_pipeline.token_statistics.encode import EncodedText
from audit_pipeline.token_statistics.forward import ForwardPass

Ints = npt.NDArray[np.int64]
_Distance = tuple[Ints, Ints, Ints]


@dataclass(frozen=True)
class Nearness:
    """What counts as near: a continuation that differs from the suffix in at most ``tokens`` tokens, place by place
    (Hamming), or where ``edits``, in so many tokens that are replaced, put in or left out (Levenshtein). ``beams`` is
    how many continuations are gone on with at a time."""

    tokens: int
    beams: int
    edits: bool


def near_verbatim(forward: LocalPass, window: EncodedText, near: Nearness) -> float:
    """The log of a lower bound of the probability that the model gives a continuation near the suffix of ``window``.

    The same bound for the same model and window: nothing is drawn. Minus infinity where no continuation that was
    followed ends near the suffix.
    """
    return forward.apply(_bound, *split_prefix_and_suffix(window), near)


def _bound(forward: ForwardPass, prefix: Sequence[int], asked: Sequence[int], near: Nearness) -> float:
    suffix = np.array(asked, dtype=np.int64)
    measure = _step_edit_distance if near.edits else _step_hamming_distance
    # What a beam's distance is computed from: its differing tokens so far, or its row of the table of edits.
    state = np.arange(len(suffix) + 1)[None] if near.edits else np.zeros(1, dtype=np.int64)
    log_p, is_text = np.zeros(1), np.ones(1, dtype=np.bool_)
    certain: list[Floats] = []
    with forward.running():
        beams = _Beams(forward, prefix)
        for step, token in enumerate(asked):
            ids, log_next = _likeliest(beams.logits(), token)
            every, on_text = log_p[:, None] + log_next, is_text[:, None] & (ids == token)
            states, least, most = measure(state, ids, suffix, step)
            certain.append(every[most <= near.tokens])
            open_ = np.flatnonzero((least <= near.tokens) & (most > near.tokens))
            # The text itself first, then the likeliest.
            order = np.lexsort((-every.flat[open_], ~on_text.flat[open_]))
            kept = open_[order[: near.beams]]
            if not len(kept):
                break
            beams.go_on(kept // ids.shape[1], ids.flat[kept])
            state = states.reshape(-1, *state.shape[1:])[kept]
            log_p, is_text = every.flat[kept], on_text.flat[kept]
    return min(0.0, float(np.logaddexp.reduce(np.concatenate(certain))))


class _Beams:
    """The model behind continuations of one prefix, all in one batch."""

    def __init__(self, forward: ForwardPass, prefix: Sequence[int]) -> None:
        self._model = forward.model
        self._ids = self._new = torch.tensor([prefix], device=forward.device)
        # Without what the check at loading found to be right with keys and values, beams are run anew.
        self._cache = DynamicCache(config=forward.model.config) if forward.packed else None

    def logits(self) -> torch.Tensor:
        """The logits of the token behind each continuation: [beams, V], float32."""
        if self._cache is None:
            found = self._model(input_ids=self._ids, use_cache=False)
        else:
            found = self._model(input_ids=self._new, past_key_values=self._cache, use_cache=True)
        logits: torch.Tensor = found.logits
        return logits[:, -1].float()

    def go_on(self, parents: Ints, tokens: Ints) -> None:
        """From now on the continuations are those of the numbers ``parents``, each with one of ``tokens`` behind it."""
        of = torch.from_numpy(parents).to(self._ids.device)
        self._new = torch.from_numpy(tokens).to(self._ids.device)[:, None]
        self._ids = torch.cat([self._ids[of], self._new], dim=1)
        if self._cache is not None:
            self._cache.reorder_cache(of)


def _likeliest(logits: torch.Tensor, token: int) -> tuple[Ints, Floats]:
    """The ``BEST_TOKENS`` likeliest tokens of each row of ``logits`` [beams, V], and the log-probability of each among
    them: [beams, BEST_TOKENS]. ``token`` is one of them where it is tied with the last."""
    best = logits.topk(min(BEST_TOKENS, logits.shape[1]), dim=1)
    tied = (logits[:, token] >= best.values[:, -1]) & ~(best.indices == token).any(dim=1)
    best.indices[tied, -1] = token
    return best.indices.cpu().numpy(), torch.log_softmax(best.values.double(), dim=1).cpu().numpy()


def _step_hamming_distance(state: Ints, ids: Ints, suffix: Ints, step: int) -> _Distance:
    """Differing tokens with each of ``ids`` [beams, k] at the place ``step``: so far, in the end at least, at most."""
    so_far = state[:, None] + (ids != suffix[step])
    return so_far, so_far, so_far + (len(suffix) - step - 1)


def _step_edit_distance(state: Ints, ids: Ints, suffix: Ints, step: int) -> _Distance:
    """As :func:`_step_hamming_distance`, in edits; ``state`` [beams, n + 1] holds the edits from a beam to each
    beginning of the suffix, and so does the first result [beams, k, n + 1]."""
    places = np.arange(len(suffix) + 1)
    before = state[:, None, :]
    rows = np.empty((*ids.shape, len(places)), dtype=np.int64)
    rows[..., 0] = step + 1
    rows[..., 1:] = np.minimum(before[..., 1:] + 1, before[..., :-1] + (ids[..., None] != suffix))
    # Tokens left out of the suffix cost one each from wherever it is cheapest.
    rows = np.minimum.accumulate(rows - places, axis=-1) + places
    left, left_of_suffix = len(suffix) - step - 1, len(suffix) - places
    least = (rows + np.abs(left_of_suffix - left)).min(axis=-1)
    most = (rows + np.maximum(left_of_suffix, left)).min(axis=-1)
    return rows, least, most
