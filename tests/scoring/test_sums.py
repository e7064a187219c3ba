"""Sums over the vocabulary: they come from the same pass, only if a setting requires them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_models import SENTENCES, Tiny, never, twin_logits

from audit_pipeline.detectors.acmia import TEMPERATURES
from audit_pipeline.detectors.max_renyi import POWER_SUMS
from audit_pipeline.detectors.registry import select_detectors
from audit_pipeline.scoring.session import Selection, Session
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import BETAS, locate_after_context
from audit_pipeline.token_statistics.tokens import encode

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = list(SENTENCES[:3])
AT_TWO = select_detectors(["max_renyi"], overrides={"max_renyi": {"alpha": "2"}})


def statuses(session: Session) -> set[tuple[str, str | None]]:
    return {(row["status"], row["reason"]) for row in session.score(TEXTS, TEXTS).to_pylist()}


def test_another_order_later_runs_no_model(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    Session(model, select_detectors(["max_renyi"]), DataPaths(tmp_path)).run(TEXTS, lambda _: forward)
    later = Session(model, AT_TWO, DataPaths(tmp_path))
    assert later.plan(TEXTS).tokens_to_run == 0
    assert later.run(TEXTS, never).text_pass.texts_computed == 0
    assert statuses(later) == {("ok", None)}


def test_cached_texts_are_run_again_only_if_a_setting_requires_it(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    paths = DataPaths(tmp_path)
    Session(model, select_detectors(["loss"]), paths).run(TEXTS, lambda _: forward)
    default = Session(model, select_detectors(["max_renyi"]), paths)
    assert default.run(TEXTS, never).text_pass.texts_from_cache == len(TEXTS)
    assert statuses(default) == {("ok", None)}

    every = Session(model, select_detectors(["max_renyi"], grid=True), paths)
    rows = every.score(TEXTS, TEXTS).to_pylist()
    for row in rows:
        reads_sums = '"alpha":"0.5"' in row["parameters"] or '"alpha":"2"' in row["parameters"]
        assert (row["status"] == "not_applicable") is reads_sums, row
    [reason] = {row["reason"] for row in rows if row["reason"] is not None}
    assert "Run the model again." in reason
    assert every.plan(TEXTS).texts_to_run == len(TEXTS)
    assert every.run(TEXTS, lambda _: forward).text_pass.texts_computed == len(TEXTS)
    assert statuses(every) == {("ok", None)}


def test_only_branches_are_run_if_only_branches_are_missing(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    paths = DataPaths(tmp_path)
    Session(model, select_detectors(["loss"]), paths).run(TEXTS, lambda _: forward)
    done = Session(model, select_detectors(["max_renyi", "infilling"]), paths).run(TEXTS, lambda _: forward)
    assert (done.text_pass.texts_computed, done.text_pass.texts_branched) == (0, len(TEXTS))
    assert not list(paths.token_statistics("renyi", model.identity.model_fingerprint).glob("part-*"))


def test_temperatures_are_run_only_if_a_detector_needs_them(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    paths = DataPaths(tmp_path)
    Session(model, select_detectors(grid=True), paths).run(TEXTS, lambda _: forward)
    assert not paths.token_statistics("temperatures", model.identity.model_fingerprint).exists()
    named = Session(model, select_detectors(["acmia_ac", "acmia_norm_ac"]), paths)
    [(status, reason)] = statuses(named)
    assert (status, "Run the model again." in str(reason)) == ("not_applicable", True)
    assert named.run(TEXTS, lambda _: forward).text_pass.texts_computed == len(TEXTS)
    assert statuses(named) == {("ok", None)}


def test_after_a_context_the_sums_are_those_of_the_text(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    context, text = SENTENCES[3] + " ", SENTENCES[0]
    selection: Selection = [*AT_TWO, *select_detectors(["acmia_ac"])]
    session = Session(model, selection, DataPaths(tmp_path), in_context=True)
    session.run([context + text], lambda _: forward)
    found = session.statistics([context + text]).find(context + text, locate_after_context(context, text))
    assert found is not None
    [encoded] = encode(model, [context + text])
    logits = twin_logits(model, forward, encoded)[-len(found) :]
    log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    sums, temperatures = found.get_extra(POWER_SUMS), found.get_extra(TEMPERATURES)
    assert len(found) < len(encoded.token_id)
    np.testing.assert_allclose(sums.log_sum_p2, np.logaddexp.reduce(2 * log_p, axis=1), atol=1e-4)
    for place, beta in enumerate(BETAS):
        np.testing.assert_allclose(
            temperatures.log_sum_p_beta[:, place], np.logaddexp.reduce(beta * log_p, axis=1), atol=5e-4
        )
    assert temperatures.vocab_size == logits.shape[1]


def test_several_parts_of_a_text_have_the_sums_of_their_tokens(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    text = f"{SENTENCES[3]} {SENTENCES[0]}"
    selection: Selection = [*AT_TWO, *select_detectors(["acmia_ac"])]
    session = Session(model, selection, DataPaths(tmp_path), in_context=True)
    session.run([text], lambda _: forward)
    statistics = session.statistics([text])
    spans = [(3, 17), (40, len(text) - 5)]
    whole, found = statistics.find(text), statistics.find(text, spans)
    assert whole is not None
    assert found is not None
    [encoded] = encode(model, [text])
    ends = encoded.char_end[encoded.first_scored :]
    is_scored = np.zeros(len(ends), bool)
    for start, end in spans:
        is_scored |= (ends > start) & (ends <= end)
    assert 0 < is_scored.sum() == len(found) < len(whole)
    np.testing.assert_array_equal(found.token_id, whole.token_id[is_scored])
    for need, names in ((POWER_SUMS, ("log_sum_p2",)), (TEMPERATURES, ("log_sum_p_beta", "mean", "std"))):
        for name in names:
            selected = getattr(whole.get_extra(need), name)[is_scored]
            np.testing.assert_array_equal(getattr(found.get_extra(need), name), selected)
