"""A model on one device and the same model on several, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_models import SENTENCES

from audit_pipeline.extras.extraction.continuations import (
    bound_near_verbatim,
    count_hits,
    generate_greedily,
)
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.tables import KINDS
from audit_pipeline.token_statistics.backend import WindowBranches, WindowResult
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.tokens import (
    EncodedText,
    IntArray,
    Window,
    cut_windows,
    encode,
    window_and_stride,
)
from audit_pipeline.token_statistics.vocabulary_blocks import KEPT_TYPE

TEXTS = [*SENTENCES, "a", " ".join(SENTENCES)]
WANTED = tuple(sorted({name for kind in KINDS.values() for name in kind.statistics}))
BEFORE = tuple(range(5, 25))


def farthest(ours: Sequence[WindowBranches], theirs: Sequence[WindowBranches]) -> float:
    """The largest difference between the log-probabilities of the same windows' branches."""
    pairs = zip(ours, theirs, strict=True)
    return max(float(np.abs(ours.logprob - theirs.logprob).max(initial=0.0)) for ours, theirs in pairs)


def assert_same(ours: Sequence[WindowResult], theirs: Sequence[WindowResult], tolerance: float) -> None:
    """Every column that two passes found of the same windows; other tokens and ranks only where logits are as good as
    equal."""
    rounding = torch.finfo(KEPT_TYPE).eps
    for one, other in zip(ours, theirs, strict=True):
        own, found = one.values, other.values
        assert found.keys() == own.keys() >= {*WANTED, "topk_id", "topk_logprob"} - {"topk"}
        for name in found.keys() - {"argmax_id", "rank", "topk_id", "logits"}:
            np.testing.assert_allclose(found[name], own[name], rtol=tolerance, atol=tolerance, err_msg=name)
        logits = own["logits"].astype(np.float32)
        apart = 2 * tolerance + 2 * rounding * np.abs(logits).max(initial=0.0)
        np.testing.assert_allclose(found["logits"].astype(np.float32), logits, rtol=0, atol=apart)
        for name in ("argmax_id", "topk_id"):
            ids = [values[name].reshape(len(logits), -1) for values in (own, found)]
            at_those = [np.take_along_axis(logits, np.maximum(chosen, 0), axis=1) for chosen in ids]
            assert (np.abs(at_those[0] - at_those[1]) < apart).all(), name
        of_target = logits.max(axis=1) + own["logprob"] - own["max_logprob"]
        as_good = (np.abs(logits - of_target[:, None]) < apart).sum(axis=1) - 1
        assert (np.abs(found["rank"] - own["rank"]) <= as_good).all()


def run_branches(
    forward: ForwardPass, encoded: Sequence[EncodedText], batch: Sequence[Window], modes: list[IntArray], *, own: bool
) -> list[WindowResult]:
    """The branches from ``modes``, with the windows' own statistics where ``own``."""
    if not own:
        return forward.run_branches(encoded, batch, modes, 4)
    return forward.run_with_branches(encoded, batch, 4, WANTED, argmax=modes)


def branches_of(found: Sequence[WindowResult]) -> list[WindowBranches]:
    return [done.branches for done in found if done.branches is not None]


def assert_alike(model: TokenizedModel, whole: ForwardPass, divided: ForwardPass, tolerance: float) -> None:
    encoded = encode(model, TEXTS)
    place = window_and_stride(model)
    batch = [window for number, text in enumerate(encoded) for window in cut_windows(number, text, *place)]
    # Windows of some texts, so that texts are renumbered on the way.
    part = [window for window in batch if window.text in {1, 3, 6}]
    assert whole.packed == divided.packed
    own, theirs = whole.begin(encoded, batch, WANTED)(), divided.begin(encoded, batch, WANTED)()
    assert [result.window for result in theirs] == batch
    assert_same(own, theirs, tolerance)
    modes = [result.values["argmax_id"] for result in own if result.window in part]
    ours, theirs_too = (run_branches(run_model, encoded, part, modes, own=True) for run_model in (whole, divided))
    assert [result.window for result in theirs_too] == part
    assert_same(ours, theirs_too, tolerance)
    assert farthest(branches_of(ours), branches_of(theirs_too)) < tolerance
    alone = run_branches(divided, encoded, part, modes, own=False)
    assert farthest(branches_of(ours), branches_of(alone)) < tolerance
    fitting = [window for window in part if window.length + len(BEFORE) < place[0]]
    assert_same(
        *(run_model.begin(encoded, fitting, WANTED, before=BEFORE)() for run_model in (whole, divided)), tolerance
    )
    whole.forget_prefix()
    divided.forget_prefix()
    assert divided.tokens_run
    assert divided.branch_tokens_run


def assert_extracts_alike(model: TokenizedModel, whole: ForwardPass, divided: ForwardPass) -> None:
    [text] = encode(model, [SENTENCES[0]])
    window = replace(text, first_scored=len(text.token_id) // 2)
    prefix = text.token_id[:6].tolist()
    assert generate_greedily(whole, prefix, 12) == generate_greedily(divided, prefix, 12)
    # One token, and the model's own first choice: draws hit it.
    likely = np.array([*prefix, *generate_greedily(whole, prefix, 1)], dtype=np.int32)
    short = replace(text, token_id=likely, start_token_id=None, first_scored=len(prefix))
    assert count_hits(divided, short, 64, 0) == count_hits(whole, short, 64, 0) > 0
    differing = len(window.token_id) - window.first_scored - 1
    assert bound_near_verbatim(whole, window, differing, 4) == pytest.approx(
        bound_near_verbatim(divided, window, differing, 4), abs=1e-3
    )
