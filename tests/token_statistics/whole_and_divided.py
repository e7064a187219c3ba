"""A model on one device and the same model on several, side by side.

What belongs here: running both over the same windows in every way that there is, and comparing what they find. What
does not: tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tiny_models import SENTENCES

from audit_pipeline.extraction.generate import by_first_choices, generate
from audit_pipeline.extraction.near_verbatim import Nearness, near_verbatim
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.encode import encode, window_and_stride
from audit_pipeline.token_statistics.forward import ForwardPass, WindowBranches, WindowStatistics
from audit_pipeline.token_statistics.windows import windows_of

TEXTS = [*SENTENCES, "a", " ".join(SENTENCES)]
WANTED = ("logprob", "mean", "std", "max_logprob", "argmax_id")
BEFORE = tuple(range(5, 25))


def farthest(ours: Sequence[object], theirs: Sequence[object]) -> float:
    """The largest difference between what two passes found of the same windows."""

    def values(one: object) -> list[np.ndarray]:
        if isinstance(one, WindowStatistics):
            return [one.values[name] for name in WANTED[:-1]]
        assert isinstance(one, WindowBranches)
        return [one.logprob]

    pairs = [
        pair for one, other in zip(ours, theirs, strict=True) for pair in zip(values(one), values(other), strict=True)
    ]
    return max(float(np.abs(one - other).max(initial=0.0)) for one, other in pairs)


def assert_alike(model: TokenizedModel, whole: ForwardPass, divided: ForwardPass, tolerance: float) -> None:
    encoded = encode(model, TEXTS)
    place = window_and_stride(model)
    batch = [one for number, text in enumerate(encoded) for one in windows_of(number, text, *place)]
    # Windows of some texts, so that texts are renumbered on the way.
    some = [one for one in batch if one.text in {1, 3, 6}]
    assert whole.packed == divided.packed
    own, theirs = whole.run(encoded, batch, WANTED), divided.run(encoded, batch, WANTED)
    assert [one.window for one in theirs] == batch
    assert farthest(own, theirs) < tolerance
    modes = [one.values["argmax_id"] for one in own if one.window in some]
    ours = whole.run_with_branches(encoded, some, 4, WANTED, argmax=modes)
    theirs_too = divided.run_with_branches(encoded, some, 4, WANTED, argmax=modes)
    assert [one.window for one in theirs_too[1]] == some
    assert farthest(ours[0], theirs_too[0]) < tolerance
    assert farthest(ours[1], theirs_too[1]) < tolerance
    assert farthest(ours[1], divided.run_branches(encoded, some, modes, 4)) < tolerance
    behind = [one for one in some if one.length + len(BEFORE) < place[0]]
    with_prefix = [one.run(encoded, behind, WANTED, before=BEFORE) for one in (whole, divided)]
    assert farthest(*with_prefix) < tolerance
    whole.forget_prefix()
    divided.forget_prefix()
    assert divided.tokens_run
    assert divided.branch_tokens_run


def assert_extracts_alike(model: TokenizedModel, whole: ForwardPass, divided: ForwardPass) -> None:
    [text] = encode(model, [SENTENCES[0]])
    window = replace(text, first_scored=len(text.token_id) // 2)
    prefix = text.token_id[:6].tolist()
    assert by_first_choices(whole, prefix, 12) == by_first_choices(divided, prefix, 12)
    assert generate(model, whole, window, 4, 0) == generate(model, divided, window, 4, 0)
    near = Nearness(tokens=len(window.token_id) - window.first_scored - 1, beams=4, edits=False)
    assert near_verbatim(whole, window, near) == pytest.approx(near_verbatim(divided, window, near), abs=1e-3)
