"""What detectors are handed besides a text's own pass: the right texts' statistics, from the cache as from scratch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tiny_models import SENTENCES, save_model, tokenized, twin_statistics

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.detectors.needs import Need
from audit_pipeline.detectors.registry import REGISTRY, select
from audit_pipeline.detectors.score import score_texts
from audit_pipeline.detectors.statistics import TokenFrequencies
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.scoring.neighbours.own_topk import OwnTopkProposer
from audit_pipeline.scoring.passes import Passes, Selection, Statistics, costs, in_context, passes_for, run_passes
from audit_pipeline.token_statistics.encode import encode
from audit_pipeline.token_statistics.forward import ForwardPass

pytestmark = pytest.mark.usefixtures("one_thread")
Tiny = Callable[[str], tuple[TokenizedModel, ForwardPass]]

TEXTS = [*SENTENCES[:4], "The", "a a a a a a", "😀🎉👩‍👩‍👧", "海港在早晨很安静，没有人数过灯笼。", "ÉCOLE", ""]
EVERY = select(list(REGISTRY), overrides={"neighbour": {"n": 3}, "infilling": {"m": 4}})


def never() -> ForwardPass:
    raise AssertionError("a model was loaded")


class World:
    """A model with a reference model, made-up frequencies and a proposer, over one data folder."""

    def __init__(self, model: TokenizedModel, reference: TokenizedModel, data: Path) -> None:
        self.model, self.reference = model, reference
        self.paths = DataPaths(data)
        counts = np.random.default_rng(0).integers(0, 50, size=model.vocab_size)
        self.frequencies = TokenFrequencies(counts, model.vocab_size)

    def passes(self, selection: Selection) -> Passes:
        passes = passes_for(selection, reference=self.reference, frequencies=self.frequencies)
        if not passes.n_neighbours:
            return passes
        return Passes(**{**vars(passes), "proposer": OwnTopkProposer(self.model, self.paths)})

    def scores(self, texts: Sequence[str], selection: Selection) -> pa.Table:
        statistics = Statistics(self.model, texts, self.paths, self.passes(selection))
        return score_texts(statistics.of_examples([(str(i), text) for i, text in enumerate(texts)]), selection)


@pytest.fixture
def world(tiny: Tiny, tmp_path: Path) -> Callable[[str], World]:
    def make(name: str) -> World:
        return World(tiny("llama")[0], tiny("gpt2")[0], tmp_path / name)

    return make


def run(world: World, texts: Sequence[str], selection: Selection, tiny: Tiny | None) -> list[int]:
    """Tokens that went through a model, by pass; without ``tiny`` no model may be loaded."""
    forward, reference = (never, never) if tiny is None else (lambda: tiny("llama")[1], lambda: tiny("gpt2")[1])
    summary = run_passes(world.model, texts, world.paths, forward, world.passes(selection), forward_reference=reference)
    return [one.tokens_computed + one.branch_tokens for one in summary.all]


def by_row(table: pa.Table) -> dict[tuple[str, str, str], dict[str, object]]:
    return {(row["example_id"], row["detector"], row["parameters"]): row for row in table.to_pylist()}


def assert_close(one: pa.Table, other: pa.Table) -> None:
    expected = by_row(other)
    for key, row in by_row(one).items():
        assert row["status"] == expected[key]["status"], key
        if row["score"] is not None:
            assert row["score"] == pytest.approx(expected[key]["score"], rel=1e-3, abs=2e-3), key


def test_every_detector_gives_a_number_or_says_why_not_on_odd_texts(world: Callable[[str], World], tiny: Tiny) -> None:
    one = world("one")
    assert min(run(one, TEXTS, EVERY, tiny)) > 0
    rows = by_row(one.scores(TEXTS, EVERY))
    assert {detector for _, detector, _ in rows} == set(REGISTRY)
    for key, row in rows.items():
        assert row["status"] in ("ok", "not_applicable"), (key, row["reason"])
        assert (row["score"] is None) == (row["status"] != "ok") == bool(row["reason"])
        assert row["score"] is None or np.isfinite(row["score"])
    reasons = {(TEXTS[int(index)], detector): row["reason"] for (index, detector, _), row in rows.items()}
    assert "no scored token" not in str(reasons["The", "loss"])
    assert reasons["", "loss"] == "the text has no scored token"
    assert "cased" in str(reasons["海港在早晨很安静，没有人数过灯笼。", "lowercase"])
    assert reasons["ÉCOLE", "lowercase"] is None


def test_the_cache_gives_what_a_run_from_scratch_gives(world: Callable[[str], World], tiny: Tiny) -> None:
    """Bit by bit, in another order: own passes first, then lower case, shorter branches, longer ones, the rest."""
    scratch, grown = world("scratch"), world("grown")
    run(scratch, TEXTS, EVERY, tiny)
    run(grown, TEXTS[4:], select(["loss"]), tiny)
    run(grown, TEXTS[::-1], select(["lowercase", "infilling"], overrides={"infilling": {"m": 2}}), tiny)
    run(grown, TEXTS, select(["infilling"], overrides={"infilling": {"m": 4}}), tiny)
    run(grown, TEXTS, EVERY, tiny)
    assert_close(grown.scores(TEXTS, EVERY), scratch.scores(TEXTS, EVERY))
    assert run(scratch, TEXTS, EVERY, tiny=None) == [0, 0, 0, 0], "and again: everything is cached"
    assert scratch.scores(TEXTS, EVERY).equals(scratch.scores(TEXTS, EVERY))


def test_more_settings_and_one_pass_detectors_run_no_model(world: Callable[[str], World], tiny: Tiny) -> None:
    one = world("one")
    run(one, TEXTS, select(["infilling"], overrides={"infilling": {"m": 4}}), tiny)
    one_pass = [name for name, detector in REGISTRY.items() if detector.needs == {Need.ONE_PASS}]
    assert run(one, TEXTS, select(one_pass, grid=True), tiny=None) == [0]
    assert run(one, TEXTS, select(["dc_pdd"], grid=True), tiny=None) == [0]
    for m in (0, 1, 3, 4):
        assert run(one, TEXTS, select(["infilling"], grid=True, overrides={"infilling": {"m": m}}), tiny=None) == [0]
    forward = tiny("llama")[1]
    summary = run_passes(
        one.model,
        TEXTS,
        one.paths,
        lambda: forward,
        one.passes(select(["infilling"], overrides={"infilling": {"m": 9}})),
    )
    assert summary.own.texts_computed == 0, "no text's own statistics"
    assert summary.own.branch_tokens > 0


def test_extras_are_those_of_the_right_text(world: Callable[[str], World], tiny: Tiny) -> None:
    one, texts = world("one"), list(SENTENCES[:3])
    selection = select(["lowercase", "reference"])
    run(one, texts, selection, tiny)
    scores = by_row(one.scores(texts, selection))
    for index, text in enumerate(texts):
        own, lower = (twin_statistics(*tiny("llama"), of)["logprob"].mean() for of in (text, text.lower()))
        other = twin_statistics(*tiny("gpt2"), text)["logprob"].mean()
        assert scores[str(index), "lowercase", "{}"]["score"] == pytest.approx(lower / own, rel=1e-4)
        difference = scores[str(index), "reference", '{"form":"difference"}']["score"]
        assert difference == pytest.approx(own - other, abs=1e-4)


def test_what_is_lacking_is_said(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    paths = DataPaths(tmp_path)
    selection = select(["loss", "reference", "dc_pdd", "infilling"])
    passes = passes_for(selection, absent={Need.REFERENCE_MODEL: "no reference model is named"})
    run_passes(model, TEXTS[:2], paths, lambda: forward, Passes())
    statistics = Statistics(model, TEXTS[:2], paths, passes)
    [found, _] = [one for _, one in statistics.of_examples([("a", TEXTS[0]), ("b", TEXTS[1])])]
    assert found is not None
    [loss, reference, dc_pdd, infilling] = [detector.score(found, some)[0] for detector, some in selection]
    assert loss.status == "ok"
    assert reference.reason == "no reference model is named"
    assert (dc_pdd.status, infilling.status) == ("not_applicable", "not_applicable")
    assert "branches" in str(infilling.reason)


def test_what_it_costs_is_told_before(tmp_path: Path) -> None:
    model = tokenized(save_model(tmp_path / "llama"), tmp_path)
    world = World(model, model, tmp_path / "data")
    told = costs(model, TEXTS, world.paths, world.passes(EVERY))
    assert len(told) == 2
    assert "branches of 4 tokens" in told[0]
    assert "30" in told[1], "three neighbours of ten texts"


def test_a_text_behind_a_context_is_scored_by_the_tokens_that_end_in_it(tiny: Tiny, tmp_path: Path) -> None:
    """Zhang et al. 2025, appendix C: log p(x_t | context, x_<t), against the model run on the whole and cut by hand."""
    model, forward = tiny("llama")
    paths, context, text = DataPaths(tmp_path), f"{SENTENCES[0]} ", SENTENCES[1]
    selection = select(["loss", "zlib", "min_k", "min_k_plus_plus", "infilling", "lowercase"])
    passes = in_context(passes_for(selection), [None, context])
    run_passes(model, [context + text], paths, lambda: forward, passes)
    statistics = Statistics(model, [context + text], paths, passes)

    whole, found = statistics.find(context + text), statistics.find(text, context)
    assert whole is not None
    assert found is not None
    twin = twin_statistics(model, forward, context + text)
    [encoded] = encode(model, [context + text])
    ends = encoded.char_end[encoded.first_scored :]
    kept = [place for place, end in enumerate(ends) if end > len(context)]
    assert found.text == text
    assert 0 < len(found) == len(kept) < len(whole)
    np.testing.assert_allclose(found.logprob, twin["logprob"][kept], atol=1e-4)
    own, all_branches = found.extras.branches, whole.extras.branches
    assert own is not None
    assert all_branches is not None
    assert len(own.offsets) == len(found) + 1
    np.testing.assert_array_equal(own.z, all_branches.z[len(all_branches.z) - len(own.z) :])

    rows = {row["detector"]: row for row in score_texts([("a", found)], selection).to_pylist()}
    assert rows["loss"]["score"] == pytest.approx(np.mean(twin["logprob"][kept]), abs=1e-4)
    assert rows["infilling"]["status"] == "ok"
    assert rows["lowercase"]["status"] == "not_applicable"
    assert "in the context of an input" in rows["lowercase"]["reason"]
