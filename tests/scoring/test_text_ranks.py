"""The ranks of a benchmark's texts, and the reasons for missing ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import SENTENCES, Tiny

from audit_pipeline.detectors.combined import DEFAULT
from audit_pipeline.detectors.registry import select_detectors
from audit_pipeline.errors import ConfigError
from audit_pipeline.scoring.session import Session, build_audit_selection
from audit_pipeline.store.paths import DataPaths

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = [*SENTENCES[:6], SENTENCES[0], ""]
"""One of them twice, and one that nothing scores."""


def test_a_session_ranks_the_texts_of_a_benchmark(tiny: Tiny, tmp_path: Path) -> None:

    def mid_rank(score: float, scores: list[float]) -> float:
        below, as_high = (sum(test(one) for one in scores) for test in (score.__gt__, score.__eq__))
        return (below + (as_high + 1) / 2) / len(scores)

    model, forward = tiny("llama")
    session = Session(model, select_detectors([*DEFAULT, "combined"]), DataPaths(tmp_path))
    session.run(TEXTS, lambda wanted: forward)
    rows = session.score([str(place) for place in range(len(TEXTS))], TEXTS).to_pylist()
    found = {(int(row["example_id"]), row["detector"]): row for row in rows}
    distinct = range(6)
    scores = {name: [found[place, name]["score"] for place in distinct] for name in DEFAULT}
    for place in distinct:
        by_hand = [mid_rank(scores[name][place], scores[name]) for name in DEFAULT]
        assert found[place, "combined"]["score"] == pytest.approx(sum(by_hand) / len(DEFAULT), rel=1e-12)
    assert found[6, "combined"] == {**found[0, "combined"], "example_id": "6"}, "a text that stands twice counts once"
    assert found[7, "combined"]["reason"] == "the text has no scored token"


def test_a_file_and_texts_in_a_context_are_not_ranked(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    paths, selection = DataPaths(tmp_path), select_detectors(["loss", "combined"])
    of_file = Session(model, selection, paths, in_parts=True)
    of_file.run(TEXTS, lambda wanted: forward)
    for session, told in (
        (of_file, "Define a benchmark of the texts"),
        (Session(model, selection, paths, in_context=True), "after a context"),
    ):
        rows = session.score(["0"], TEXTS[:1]).to_pylist()
        assert [row["status"] for row in rows] == ["ok", "not_applicable"]
        assert told in rows[1]["reason"]


def test_a_list_with_a_detector_of_extra_passes_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    for of, told in (("loss,mink", "'mink'; did you mean min_k"), ("loss,reference", "'reference'; there are: .*zlib")):
        with pytest.raises(ConfigError, match=rf"combined\.of: there is no one-pass detector {told}"):
            Session(
                tiny("llama")[0],
                select_detectors(["combined"], overrides={"combined": {"of": of}}),
                DataPaths(tmp_path),
            )


def test_an_audit_scores_the_list_of_the_benchmark_alone() -> None:
    named = {"combined": {"of": "loss,zlib"}}
    [settings] = [found for detector, found in build_audit_selection(named) if detector.name == "combined"]
    assert settings == [{"of": "loss,zlib"}]
    [settings] = [found for detector, found in build_audit_selection({}) if detector.name == "combined"]
    assert settings == [{"of": ",".join(DEFAULT)}]
