"""Windows, words, quotas and splits of the builders."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.benchmarks.builder_interface import (
    SplitUnit,
    assign_splits,
    compute_even_quotas,
    compute_proportional_quotas,
)
from audit_pipeline.benchmarks.builders.temporal import draw_window_starts
from audit_pipeline.benchmarks.settings import get_word_unit


@given(
    n_words=st.integers(0, 300), length=st.integers(1, 40), count=st.integers(1, 12), seed=st.integers(0, 2**256 - 1)
)
def test_windows_lie_within_the_text_and_do_not_overlap(n_words: int, length: int, count: int, seed: int) -> None:
    starts = draw_window_starts(n_words, length, count, seed)
    assert len(starts) == min(count, n_words // length)
    assert starts == draw_window_starts(n_words, length, count, seed)
    ordered = sorted(starts)
    assert all(0 <= start <= n_words - length for start in ordered)
    assert all(following - start >= length for start, following in itertools.pairwise(ordered))


def test_every_placement_and_every_order_is_equally_likely() -> None:
    # Two windows of 2 in 6 words: starts (0,2) (0,3) (0,4) (1,3) (1,4) (2,4), each in two orders.
    drawn = Counter(tuple(draw_window_starts(6, 2, 2, seed)) for seed in range(6000))
    placements = [(0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 4)]
    assert set(drawn) == {order for pair in placements for order in (pair, pair[::-1])}
    # 500 expected per cell, standard deviation 21.4; five of them either way.
    assert all(393 <= times <= 607 for times in drawn.values())


def test_whitespace_words_are_joined_by_single_spaces() -> None:
    unit = get_word_unit("whitespace")
    assert unit.split(" one\n  two\tthree four ") == ["one", "two", "three", "four"]
    assert unit.join(["one", "two"]) == "one two"


def test_jieba_words_are_joined_as_chinese_is_written() -> None:
    unit = get_word_unit("jieba")
    words = unit.split("我们使用 Hello World 测试\n软件")
    assert all(word.strip() for word in words)
    assert unit.join(words) == "我们使用Hello World测试软件"


def test_even_quotas_by_hand() -> None:
    assert compute_even_quotas({"b": 9, "a": 2, "c": 9}, 12) == {"a": 2, "b": 5, "c": 5}
    assert compute_even_quotas({"b": 9, "a": 9}, 5) == {"a": 3, "b": 2}
    assert compute_even_quotas({"a": 2, "b": 1}, 100) == {"a": 2, "b": 1}
    assert compute_even_quotas({}, 5) == {}


@given(sizes=st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(0, 30)), total=st.integers(0, 200))
def test_even_quotas_are_full_and_even(sizes: dict[str, int], total: int) -> None:
    quotas = compute_even_quotas(sizes, total)
    assert sum(quotas.values()) == min(total, sum(sizes.values()))
    assert all(0 <= quotas[name] <= sizes[name] for name in sizes)
    most = max(quotas.values(), default=0)
    assert all(quotas[name] >= most - 1 for name in sizes if quotas[name] < sizes[name])


def test_proportional_quotas_by_hand() -> None:
    # 20% of 3, 3, 4 is .6, .6, .8: two texts in all, to the largest remainder, then by name.
    assert compute_proportional_quotas({"b": 3, "a": 3, "c": 4}, 0.2) == {"a": 1, "b": 0, "c": 1}
    assert compute_proportional_quotas({"a": 10, "b": 5}, 0.2) == {"a": 2, "b": 1}


@given(
    sizes=st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(1, 50)),
    fraction=st.floats(0, 1, exclude_max=True),
)
def test_proportional_quotas_are_within_one_of_their_share(sizes: dict[str, int], fraction: float) -> None:
    quotas = compute_proportional_quotas(sizes, fraction)
    assert all(0 <= quotas[name] <= size and abs(quotas[name] - fraction * size) < 1 for name, size in sizes.items())
    assert abs(sum(quotas.values()) - fraction * sum(sizes.values())) <= 0.5 + 1e-9


PLACED = st.lists(
    st.builds(
        SplitUnit,
        group=st.text("ghijk", min_size=1, max_size=2),
        collection=st.sampled_from(["a", "b"]),
        label=st.sampled_from([0, 1, None]),
    ),
    max_size=60,
)


@given(texts=PLACED, fraction=st.floats(0, 0.9), order=st.randoms(use_true_random=False))
def test_splits_do_not_depend_on_the_order_of_texts(texts: list[SplitUnit], fraction: float, order: object) -> None:
    splits = assign_splits(texts, fraction=fraction, seed=1, family="made")
    assert set(splits) == {text.group for text in texts}
    shuffled = list(texts)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assign_splits(shuffled, fraction=fraction, seed=1, family="made") == splits
    if fraction == 0:
        assert set(splits.values()) <= {"evaluation"}


def test_calibration_has_its_share_of_every_label_and_collection() -> None:
    texts = [
        SplitUnit(f"{collection}{label}-{number}", collection, label)
        for collection, size in (("a", 50), ("b", 25))
        for label in (0, 1)
        for number in range(size)
    ]
    splits = assign_splits(texts, fraction=0.2, seed=1, family="made")
    calibrated = Counter((text.collection, text.label) for text in texts if splits[text.group] == "calibration")
    assert calibrated == {("a", 0): 10, ("a", 1): 10, ("b", 0): 5, ("b", 1): 5}


def test_whole_groups_fill_the_share() -> None:
    # 12 texts in groups of 4, 4, 3 and 1; half is 6. No order ends further from it than half the largest group.
    texts = [SplitUnit(name, "a", 1) for name, size in (("p", 4), ("q", 4), ("r", 3), ("s", 1)) for _ in range(size)]
    sizes = Counter(text.group for text in texts)
    for seed in range(30):
        splits = assign_splits(texts, fraction=0.5, seed=seed, family="made")
        calibrated = sum(sizes[group] for group, split in splits.items() if split == "calibration")
        assert 4 <= calibrated <= 8


def test_one_more_group_moves_at_most_one_other() -> None:
    texts = [SplitUnit(f"g{number}", "a", 1) for number in range(40)]
    before = assign_splits(texts, fraction=0.25, seed=1, family="made")
    moves: dict[str, int] = defaultdict(int)
    for number in range(40, 80):
        after = assign_splits([*texts, SplitUnit(f"g{number}", "a", 1)], fraction=0.25, seed=1, family="made")
        moves[f"g{number}"] = sum(after[group] != split for group, split in before.items())
    assert max(moves.values()) == 1
    assert min(moves.values()) == 0


def test_seed_and_family_change_the_split() -> None:
    texts = [SplitUnit(f"g{number}", "a", 1) for number in range(40)]
    splits = [
        assign_splits(texts, fraction=0.5, seed=seed, family=family)
        for seed, family in ((1, "made"), (2, "made"), (1, "other"))
    ]
    assert splits[0] != splits[1]
    assert splits[0] != splits[2]


def test_long_runs_of_chinese_characters_take_linear_time() -> None:
    split = get_word_unit("jieba").split
    run = "\u9f98" * 6000
    assert "".join(split(run)) == run
    assert split(run[:2000]) + split(run[2000:4000]) + split(run[4000:]) == split(run)
    sentence = "灯笼在马车下长山之前就被点亮了，没有人说一句话。"
    assert split(sentence * 200) == split(sentence) * 200
