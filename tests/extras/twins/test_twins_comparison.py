"""The test of a model with twins: ranks equal those of the bare model, and are cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_models import twin_statistics

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.extras.twins.model_test import TwinsTest, run_twins_test, write_twins_test
from audit_pipeline.extras.twins.publication_draw import TwinItem, Twins, make_canaries
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.statistics.twin_ranks import compute_rank_sum_p
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.forward import ForwardPass

pytestmark = pytest.mark.usefixtures("one_thread")
Tiny = Callable[[str], tuple[TokenizedModel, ForwardPass]]


def publish_by_rank(tiny: Tiny, items: Sequence[TwinItem], rank: int) -> Twins:
    """Publish the version at ``rank`` of each item, by the mean log-probability of the bare model."""
    published = []
    for item in items:
        means = [float(twin_statistics(*tiny("llama"), text)["logprob"].mean()) for text in item.versions]
        published.append(sorted(range(len(means)), key=lambda place: -means[place])[rank - 1])
    return Twins(items, published, "0" * 64, "drawn by hand")


@pytest.fixture
def run(tiny: Tiny, tmp_path: Path) -> Callable[..., TwinsTest]:
    model, forward = tiny("llama")

    def run_test(twins: Twins, **options: object) -> TwinsTest:
        paths = DataPaths(tmp_path / "data")
        given = {"backend_of": lambda wanted: forward, "name": "quiz", **options}
        return run_twins_test(model, twins, paths, **given)  # type: ignore[arg-type]

    return run_test


@pytest.mark.parametrize(("rank", "p_value"), [(1, 1 / 20), (3, 3 / 20), (20, 1.0)])
def test_a_canary_has_the_p_value_of_its_rank(
    tiny: Tiny, run: Callable[..., TwinsTest], rank: int, p_value: float
) -> None:
    done = run(publish_by_rank(tiny, make_canaries(1, 19), rank)).test
    assert (done.test, done.model, done.benchmark, done.claim_level) == ("twins", "llama", "quiz", "sound test")
    assert done.p_value == pytest.approx(p_value)
    assert done.statistic == pytest.approx((20 - rank) / 19)
    assert (done.n, done.n_held_out) == (1, 19)
    assert "by loss {}" in done.method
    assert done.method.endswith(f"drawn by hand; sha256 {'0' * 64}")


def test_rows_per_group_and_detector_come_from_the_cache(
    tiny: Tiny, run: Callable[..., TwinsTest], tmp_path: Path
) -> None:
    items = [replace(item, group=f"g{place // 2}") for place, item in enumerate(make_canaries(4, 3))]
    twins = publish_by_rank(tiny, items, 2)
    done = run(twins)
    assert done.test.p_value == pytest.approx(compute_rank_sum_p([2] * 4, [3] * 4))
    of_all, *of_groups = done.rows
    assert [(row["group"], row["items"], row["others"]) for row in of_groups] == [("g0", 2, 6), ("g1", 2, 6)]
    assert [row["p_value"] for row in of_groups] == pytest.approx([compute_rank_sum_p([2] * 2, [3] * 2)] * 2)
    assert (of_all["superiority"], of_all["p_value"]) == (pytest.approx(2 / 3), done.test.p_value)

    def never(wanted: TokenizedModel) -> ForwardPass:
        raise AssertionError("the model is loaded, though every text is in the cache")

    assert run(twins, backend_of=never) == done
    several = run(twins, backend_of=never, detectors=["loss", "min_k"])
    assert [row["detector"] for row in several.rows] == ["all"] * 3 + ["loss"] * 3 + ["min_k"] * 3
    assert several.rows[3:6] == done.rows
    mean = sum(row["superiority"] for row in several.rows[3::3]) / 2
    assert several.test.statistic == several.rows[0]["superiority"] == pytest.approx(mean)
    with pytest.raises(ConfigError, match="The detector reference needs more than one pass"):
        run(twins, backend_of=never, detectors=["loss", "reference"])
    with pytest.raises(ConfigError, match="no detector"):
        run(twins, backend_of=never, detectors=["los"])


def test_too_few_versions_give_a_refused_row(tiny: Tiny, run: Callable[..., TwinsTest], tmp_path: Path) -> None:
    done = run(publish_by_rank(tiny, make_canaries(1, 9), 1))
    assert (done.test.status, done.test.p_value, done.test.statistic) == ("refused", None, None)
    assert done.test.reason is not None
    assert "20 versions of a single item" in done.rows[0]["reason"]
    model, _ = tiny("llama")
    step = LineageStep.now("run", "twins", "1")
    write_twins_test(done, model, DataPaths(tmp_path / "data"), step, {"secret": "0"})
    barred = replace(done, test=replace(done.test, benchmark="a|b"))
    with pytest.raises(DataError, match="the file name contains"):
        write_twins_test(barred, model, DataPaths(tmp_path / "data"), step, {})
