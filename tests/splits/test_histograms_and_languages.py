from datetime import date

from audit_pipeline.splits.evaluation_texts import (
    bin_dates,
    compute_shares,
    group_places_by_side,
)
from audit_pipeline.splits.text_traits import detect_languages, is_same_language


def test_sides_that_are_not_there_are_left_out():
    assert group_places_by_side([1, 0, 1, 1]) == {"members": [0, 2, 3], "nonmembers": [1]}
    assert group_places_by_side([None]) == {"unlabelled": [0]}


def test_shares_by_name():
    assert compute_shares(["b", "a", "b", "b"]) == {"a": (1, 0.25), "b": (3, 0.75)}
    assert compute_shares([]) == {}


def test_dates_within_three_years_are_binned_by_month():
    assert bin_dates([date(2021, 1, 31), date(2023, 12, 1), None]) == ("month", ["2021-01", "2023-12", "undated"])
    assert bin_dates([date(2021, 1, 31), date(2024, 1, 1)]) == ("year", ["2021", "2024"])
    assert bin_dates([None]) == ("year", ["undated"])


def test_plain_sentences_are_told_by_language():
    texts = [
        "The committee met on Tuesday to discuss the budget for the coming year and adjourned early.",
        "Der Ausschuss tagte am Dienstag, um über den Haushalt des kommenden Jahres zu beraten.",
        "委员会于星期二开会讨论来年的预算，并提前休会。",
    ]
    assert detect_languages(texts) == ["en", "de", "zh"]
    assert is_same_language("zh-TW", "zh")
    assert is_same_language("EN", "en")
    assert not is_same_language("en", "de")
