"""Sides, shares and dates of the texts of an evaluation split."""

from datetime import date

from audit_pipeline.splits.evaluation_texts import bin_dates, compute_shares, group_places_by_side


def test_sides_without_texts_are_omitted():
    assert group_places_by_side([1, 0, 1, 1]) == {"members": [0, 2, 3], "nonmembers": [1]}
    assert group_places_by_side([None]) == {"unlabelled": [0]}


def test_shares_by_name():
    assert compute_shares(["b", "a", "b", "b"]) == {"a": (1, 0.25), "b": (3, 0.75)}
    assert compute_shares([]) == {}


def test_dates_within_three_years_are_binned_by_month():
    assert bin_dates([date(2021, 1, 31), date(2023, 12, 1), None]) == ("month", ["2021-01", "2023-12", "undated"])
    assert bin_dates([date(2021, 1, 31), date(2024, 1, 1)]) == ("year", ["2021", "2024"])
    assert bin_dates([None]) == ("year", ["undated"])
