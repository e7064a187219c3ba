import json

import pyarrow as pa
import pytest

from audit_pipeline.detectors import registry
from audit_pipeline.detectors.detector import Detector, Parameter, outcomes
from audit_pipeline.errors import ConfigError

TWO = Detector(
    name="two_parameters",
    summary="a detector with parameters of several types",
    source="made up",
    passes="1",
    compute=lambda statistics, settings: outcomes([0.0] * len(settings)),
    equation="0",
    reported="nothing",
    also_reads="nothing",
    parameters={
        "share": Parameter(0.3, (0.1, 0.1 + 0.2), "", "a number from 0 to 1", lambda value: 0 <= float(value) <= 1),
        "steps": Parameter(5, (1, 10), "", "a whole number above 0", lambda value: int(value) > 0),
        "last": Parameter(True, (True, False), "", "true or false", lambda value: True),
        "moments": Parameter("own", ("own", "original"), "", "own or original", lambda v: v in ("own", "original")),
    },
)


@pytest.fixture
def two(monkeypatch):
    monkeypatch.setattr(registry, "REGISTRY", {**registry.REGISTRY, TWO.name: TWO})
    return TWO


def test_an_unknown_detector_is_refused_with_similar_names():
    with pytest.raises(ConfigError, match=r"no detector 'mink'.*did you mean min_k"):
        registry.get_detector("mink")
    with pytest.raises(ConfigError, match=r"there are: .*loss, zlib.*min_k"):
        registry.get_detector("§")


@pytest.mark.parametrize("name", ["min_k", "min_k_plus_plus"])
def test_the_k_grid_is_spelled_canonically(name):
    detector = registry.get_detector(name)
    assert [detector.to_json(one) for one in registry.expand_settings(detector)] == ['{"k":0.2}']
    grid = [detector.to_json(one) for one in registry.expand_settings(detector, grid=True)]
    ks = ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1.0"]
    assert [one for one in grid if "window" not in one] == [f'{{"k":{k}}}' for k in ks]
    assert [one for one in grid if "window" in one] == [f'{{"k":{k},"window":3}}' for k in ks]


def test_a_grid_contains_the_default_and_every_combination(two):
    settings = registry.expand_settings(two, grid=True)
    assert len(settings) == 2 * 3 * 2 * 2  # 5 joins the steps; .1 + .2 is the default .3
    assert two.default in settings
    assert {one["steps"] for one in settings} == {1, 5, 10}
    assert {one["share"] for one in settings} == {0.1, 0.3}
    assert len({json.dumps(one) for one in settings}) == len(settings)


def test_an_override_fixes_one_parameter_and_the_grid_sweeps_the_others(two):
    settings = registry.expand_settings(two, grid=True, overrides={"last": False, "share": 0.1 + 0.6})
    assert len(settings) == 3 * 2
    assert {(one["last"], one["share"]) for one in settings} == {(False, 0.7)}
    assert registry.expand_settings(two, overrides={"steps": 7}) == [{**two.default, "steps": 7}]


def test_values_of_set_are_converted_to_the_parameters_type(two):
    parsed = registry.parse_overrides(
        ["two_parameters.last=false", "two_parameters.steps=7", "two_parameters.share=1", "min_k.k=3e-1"]
    )
    assert parsed == {"two_parameters": {"last": False, "steps": 7, "share": 1.0}, "min_k": {"k": 0.3}}
    assert type(parsed["two_parameters"]["share"]) is float
    assert registry.parse_overrides(["two_parameters.moments=original"]) == {"two_parameters": {"moments": "original"}}
    assert registry.parse_overrides([]) == {}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("min_k", "not have the form DETECTOR.PARAMETER=VALUE"),
        ("min_k=0.3", "not have the form"),
        ("min_k.k", "not have the form"),
        (".k=0.3", "not have the form"),
        ("mink.k=0.3", "did you mean min_k"),
        ("min_k.m=0.3", "no parameter 'm'; there are: k, window"),
        ("loss.k=0.3", "'loss' has no parameters"),
        ("min_k.k=0", "min_k.k: '0' is not a number above 0 and at most 1"),
        ("min_k.k=1.01", "at most 1"),
        ("min_k.k=nan", "at most 1"),
        ("min_k.k=a fifth", "min_k.k: 'a fifth' is not a number"),
        ("min_k.k=", "min_k.k: '' is not a number"),
        ("two_parameters.steps=1.5", "'1.5' is not a whole number above 0"),
        ("two_parameters.last=maybe", "'maybe' is not true or false"),
        ("two_parameters.moments=both", "'both' is not own or original"),
    ],
)
def test_an_unusable_set_is_refused_with_the_reason(two, assignment, message):
    with pytest.raises(ConfigError) as caught:
        registry.parse_overrides([assignment])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_parameter_cannot_be_set_twice():
    with pytest.raises(ConfigError, match="set twice"):
        registry.parse_overrides(["min_k.k=0.3", "min_k.k=0.4"])


@pytest.mark.parametrize("value", [True, "0.3", 0.0, 2])
def test_overrides_are_checked_as_well(value):
    with pytest.raises(ConfigError, match=r"min_k\.k"):
        registry.expand_settings(registry.get_detector("min_k"), overrides={"k": value})


def test_a_selection_has_the_given_order_without_duplicates():
    chosen = registry.select_detectors(["min_k", "loss", "min_k"], overrides={"min_k": {"k": 0.4}})
    assert [(detector.name, settings) for detector, settings in chosen] == [
        ("min_k", [{"k": 0.4, "window": 1}]),
        ("loss", [{}]),
    ]
    ordinary = [name for name, one in registry.REGISTRY.items() if not one.on_request]
    assert [detector.name for detector, _ in registry.select_detectors()] == ordinary
    asked_for = registry.select_detectors(overrides={"neighbour": {"n": 5}})
    assert [detector.name for detector, _ in asked_for] == [
        n for n in registry.REGISTRY if n in {*ordinary, "neighbour"}
    ]
    counted = {detector.name: len(settings) for detector, settings in registry.select_detectors(grid=True)}
    # k with window, and for infilling k and m; switches and choices of an ablation are not swept.
    assert {n: counted[n] for n in ("loss", "min_k", "min_k_plus_plus", "infilling")} == {
        "loss": 1,
        "min_k": 20,
        "min_k_plus_plus": 20,
        "infilling": 80,
    }


def test_a_parameter_of_an_unselected_detector_is_refused():
    with pytest.raises(ConfigError, match="this detector is not selected"):
        registry.select_detectors(["loss"], overrides={"min_k": {"k": 0.4}})
    with pytest.raises(ConfigError, match="no detector is selected"):
        registry.select_detectors([])


def test_which_setting_is_the_default():
    assert registry.is_default("min_k", '{"k":0.2}')
    assert not registry.is_default("min_k", '{"k":0.3}')
    assert registry.is_default("loss", "{}")
    # Somebody else's detector, whose scores are handed over.
    assert registry.is_default("no such", "{}")
    assert not registry.is_default("no such", '{"k":0.2}')


def test_scores_are_marked_where_their_setting_is_the_default():
    settings = [("min_k", '{"k":0.2}'), ("min_k", '{"k":0.4}'), ("a\nname", "{}"), ("min_k", '{"k":0.2}')]
    columns = {name: [one[place] for one in settings] for place, name in enumerate(("detector", "parameters"))}
    table = pa.table(columns)
    assert registry.mark_defaults(table)["is_default"].to_pylist() == [True, False, True, True]
    of_benchmark = registry.mark_defaults(table, {"min_k": {"k": 0.4}})
    assert of_benchmark["is_default"].to_pylist() == [False, True, True, False]
    assert registry.mark_defaults(table.slice(0, 0))["is_default"].to_pylist() == []
