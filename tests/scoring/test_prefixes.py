"""Prefixes: their texts, the texts that they reveal, and the number of shots that fit."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from made_files import write_rows, written
from made_rows import make_table
from tiny_models import CONTEXT, SENTENCES, Tiny, forward_of, save_model, tokenized

from audit_pipeline.detectors.recall import JOINS
from audit_pipeline.detectors.registry import get_detector, is_default, select_detectors
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.models.tokenized_model import read_position_border
from audit_pipeline.scoring.needs import prefixes
from audit_pipeline.scoring.needs.prefixes import GIVEN_AWAY
from audit_pipeline.scoring.needs.provider import UserInputs
from audit_pipeline.scoring.prefix_shots import (
    MEMBERS,
    NON_MEMBERS,
    Shots,
    Side,
    collect_benchmark_shots,
    read_known_texts,
    read_texts_of_side,
)
from audit_pipeline.scoring.session import Session, build_audit_selection
from audit_pipeline.store.files import write_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import EXAMPLES, MEMBER, NON_MEMBER, example_id
from audit_pipeline.token_statistics.tokens import encode, encode_prefix

pytestmark = pytest.mark.usefixtures("one_thread")

BOTH = ["recall", "con_recall"]
KNOWN = ["QA", "QB", "QC", "QD"]
TEXTS = [SENTENCES[0], "The sea was calm", "a b c d"]


def words(begin: int, count: int) -> str:
    return " ".join(f"w{number}" for number in range(begin, begin + count))


def build_benchmark(name: str, rows: Sequence[Mapping[str, object]]) -> Any:
    """Build the attributes of a benchmark that prefixes read."""
    ids = [example_id(name, str(row["group"]), str(row["text"])) for row in rows]
    examples = [{"example_id": one, "benchmark": name, **row} for one, row in zip(ids, rows, strict=True)]
    return SimpleNamespace(name=name, examples=make_table(EXAMPLES, examples))


def collect_shots(benchmark: Any, side: Side) -> Shots:
    """Select the shots for a model that reads each text as it is."""
    return collect_benchmark_shots(benchmark, side, benchmark.examples["text"].to_pylist())


def row(group: str, text: str, label: int | None = NON_MEMBER, split: str = "calibration") -> dict[str, object]:
    return {"group": group, "text": text, "label": label, "split": split}


@pytest.fixture
def measure(tiny: Tiny, tmp_path: Path) -> Callable[..., dict[tuple[str, str, str], dict[str, object]]]:
    model, forward = tiny("llama")

    def run(
        texts: list[str], names: list[str] = BOTH, *, nonmembers: Any = None, members: Any = None, **options: Any
    ) -> dict[tuple[str, str, str], dict[str, object]]:
        sides = {NON_MEMBERS: nonmembers, MEMBERS: members}
        known = {side: shots for side, shots in sides.items() if shots is not None}
        inputs = UserInputs(known=known, asked_for=options.pop("asked_for", ()))
        session = Session(model, select_detectors(names, **options), DataPaths(tmp_path / "data"), user_inputs=inputs)
        session.run(texts, lambda _: forward)
        rows = session.score(texts, texts).to_pylist()
        return {(one["example_id"], one["detector"], one["parameters"]): one for one in rows}

    return run


# Which texts.


def test_shots_are_one_text_per_calibration_group_of_a_side_in_hashed_order() -> None:
    rows = [row(f"g{number}", f"text {number}") for number in range(20)]
    rows += [row("g3", "text 3 again"), row("e", "evaluated", split="evaluation"), row("m", "member", MEMBER)]
    rows += [row("u", "unlabelled", None)]
    found = collect_shots(build_benchmark("b", rows), NON_MEMBERS)
    assert len(found.texts) == 20
    assert set(found.texts) <= {str(one["text"]) for one in rows[:21]}
    assert list(found.texts) != sorted(found.texts)
    # The order of rows is nothing to it, the name of the benchmark is.
    assert collect_shots(build_benchmark("b", rows[::-1]), NON_MEMBERS).texts == found.texts
    assert collect_shots(build_benchmark("c", rows), NON_MEMBERS).texts != found.texts
    assert collect_shots(build_benchmark("b", rows), MEMBERS).texts == ["member"]
    # A document more or less moves no other: prefixes of several sizes stay nested.
    fewer = collect_shots(build_benchmark("b", [one for one in rows if one["group"] != "g5"]), NON_MEMBERS).texts
    assert fewer == [text for text in found.texts if text != "text 5"]


def test_every_text_in_the_group_of_a_shot_is_revealed() -> None:
    rows = [row("g", "one text"), row("g", "quite another"), row("h", "a third", split="evaluation")]
    shots = collect_shots(build_benchmark("b", rows), NON_MEMBERS)
    assert [shots.find_revealing_shot(str(one["text"])) for one in rows] == [0, 0, None]


def test_texts_with_the_beginning_of_a_shot_are_revealed() -> None:
    """In WikiMIA, every longer text begins with the 32 words of a row of the shortest file."""
    short = [words(100 * number, 32) for number in range(4)]
    longer = [words(100 * number, 64) for number in range(4)]
    shots = Shots([short[2], short[0]], "here", {})
    assert [shots.find_revealing_shot(text) for text in longer] == [1, None, 0, None]
    # And the other way round: the shot is the longer one, and not the beginning alone decides.
    shots = Shots([longer[1], longer[3]], "here", {})
    assert [shots.find_revealing_shot(text) for text in short] == [None, 0, None, 1]
    changed = f"{short[1]} something else altogether"
    assert shots.find_revealing_shot(changed.replace(" ", "\n")) == 0


def test_a_text_within_a_shot_is_revealed() -> None:
    shots = Shots([words(0, 10)], "here", {})
    assert shots.find_revealing_shot(f"before {words(0, 10)} behind") == 0
    assert shots.find_revealing_shot(words(2, 3)) == 0
    assert shots.find_revealing_shot(f"before {words(0, 9)} behind") is None


def test_a_text_in_another_spelling_is_revealed() -> None:
    text = 'L\'été, "the first" re-read of été: 1.5 km'
    shots = Shots(["another text altogether", text], "here", {})
    for spelled in (
        unicodedata.normalize("NFD", text),
        text.upper().replace(" ", "\u00a0\n"),
        text.replace('"', "\u201d").replace("'", "\u2019"),
        text.replace("altogether", "").replace("first", "fi\u00adrst"),
        f"A preface. {text.replace('fi', chr(0xFB01))}",
    ):
        assert shots.find_revealing_shot(spelled) == 1
    assert shots.find_revealing_shot(text.replace("first", "second")) is None
    assert Shots(["!!!"], "here", {}).find_revealing_shot("Really!") is None


def test_unusable_rows_are_refused_and_repeated_texts_count_once(tmp_path: Path) -> None:
    file = written(tmp_path, "known.jsonl", '{"text": "a"}\nbroken\n{"text": ""}\n{"text": "b"}\n')
    with pytest.raises(DataError, match=r"2 row\(s\) are unusable. The first is known\.jsonl:2: "):
        read_texts_of_side(file, NON_MEMBERS, None, "label")
    rows = [{"text": text, "label": label} for text, label in (("a", 0), ("b", "perhaps"), ("c", "no"))]
    file = write_rows(tmp_path / "strange.jsonl", rows)
    with pytest.raises(
        DataError, match=r"2 label\(s\) have an unknown spelling \(the first in strange\.jsonl:2\): 'perhaps' \(1\)"
    ):
        read_texts_of_side(file, NON_MEMBERS, None, "label")
    file = write_rows(tmp_path / "twice.jsonl", [{"text": text} for text in ("b", "a", "b", "c", "a")])
    assert read_texts_of_side(file, NON_MEMBERS, None, "label") == ["b", "a", "c"]


def test_files_without_effect_and_of_both_sides_are_refused(tmp_path: Path) -> None:
    one, other = (write_rows(tmp_path / f"{name}.jsonl", [{"text": name}, {"text": "both"}]) for name in "ab")
    alone = write_rows(tmp_path / "c.jsonl", [{"text": "c"}])
    texts, both, dash = tmp_path / "t.jsonl", {NON_MEMBERS.need, MEMBERS.need}, Path("-")

    def known(files: dict[Side, Path], needs: set[object] = both, scored: Path = texts) -> dict[Side, list[str]]:  # type: ignore[assignment]
        return read_known_texts(files, needs, scored, None, "label")  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match=r"--prefix-texts has no effect, .* Select recall or con_recall with"):
        known({NON_MEMBERS: one}, set())
    with pytest.raises(ConfigError, match=r"--prefix-members has no effect, because no .* Select con_recall with"):
        known({NON_MEMBERS: one, MEMBERS: alone}, {NON_MEMBERS.need})
    with pytest.raises(ConfigError, match="--prefix-members without --prefix-texts has no effect"):
        known({MEMBERS: one})
    with pytest.raises(ConfigError, match="--texts and --prefix-texts all read standard input"):
        known({NON_MEMBERS: dash}, scored=dash)
    with pytest.raises(ConfigError, match="--prefix-texts and --prefix-members all read standard input"):
        known({NON_MEMBERS: dash, MEMBERS: dash})
    with pytest.raises(ConfigError, match=r"1 text\(s\) are in the files of both --prefix-texts and --prefix-members"):
        known({NON_MEMBERS: one, MEMBERS: other})
    assert known({NON_MEMBERS: one, MEMBERS: alone}) == {NON_MEMBERS: ["a", "both"], MEMBERS: ["c"]}


# What is scored.


def test_revealed_texts_have_a_reason_instead_of_a_score(measure: Callable[..., dict]) -> None:
    found = measure([*TEXTS, KNOWN[2]], grid=True, nonmembers=KNOWN, members=["ZA"] * 4)
    assert found[TEXTS[0], "recall", '{"shots":1}']["status"] == "ok"
    assert found[TEXTS[0], "recall", '{"shots":4}']["score"] != found[TEXTS[0], "recall", '{"shots":1}']["score"]
    assert found[KNOWN[2], "recall", '{"shots":1}']["status"] == "ok"
    assert str(found[KNOWN[2], "recall", '{"shots":4}']["reason"]).startswith(GIVEN_AWAY)
    assert "4" in str(found[TEXTS[0], "recall", '{"shots":7}']["reason"])
    assert found[TEXTS[0], "con_recall", '{"gamma":0.5,"shots":4}']["status"] == "ok"


def test_a_revealed_text_is_not_run_after_the_prefix(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    selection = [(get_detector("recall"), [{"shots": 2, "join": "none"}])]
    session = Session(model, selection, DataPaths(tmp_path), user_inputs=UserInputs(known={NON_MEMBERS: KNOWN}))
    done = session.run([*TEXTS, KNOWN[1]], lambda _: forward).extra_passes["nonmember_prefix"]
    assert done.texts_computed == len(TEXTS)


def test_the_join_changes_the_score_and_the_label(measure: Callable[..., dict]) -> None:
    plain = measure(TEXTS, ["recall"], nonmembers=KNOWN, overrides={"recall": {"shots": 2}})
    joined = measure(TEXTS, ["recall"], nonmembers=KNOWN, overrides={"recall": {"shots": 2, "join": "newline"}})
    one, other = plain[TEXTS[0], "recall", '{"shots":2}'], joined[TEXTS[0], "recall", '{"join":"newline","shots":2}']
    assert one["status"] == other["status"] == "ok"
    assert one["score"] != other["score"]


@pytest.mark.parametrize(("asked_for", "given"), [(True, None), (True, ["a"]), (False, None), (False, ["a"])])
def test_missing_shots_are_an_error_if_the_user_named_them(
    asked_for: bool, given: list[str] | None, measure: Callable[..., dict]
) -> None:
    what = "--prefix-texts" if given is None else "a prefix of 7 requires 7 known non-members"
    if asked_for or given is not None:
        with pytest.raises(ConfigError, match=what):
            measure(TEXTS, ["recall"], nonmembers=given, asked_for={NON_MEMBERS.need} if asked_for else set())
    else:
        found = measure(TEXTS, ["recall"], asked_for={MEMBERS.need})
        assert what in str(found[TEXTS[0], "recall", '{"shots":7}']["reason"])


# Room: the tiny models' context is 64 tokens.


def test_shots_are_dropped_until_they_fit_and_their_number_is_the_default(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    known = [f"{number}QZXJKVWY" for number in range(7)]
    inputs = UserInputs(known={NON_MEMBERS: known, MEMBERS: [f"{one}ZQJ" for one in known]})
    session = Session(model, select_detectors(BOTH, grid=True), DataPaths(tmp_path), user_inputs=inputs)
    left = {detector.name: [one["shots"] for one in settings] for detector, settings in session.selection}
    assert left["recall"][0] == left["con_recall"][0] == 1
    assert 1 < left["recall"][-1] < 7
    assert left["con_recall"][-1] < left["recall"][-1]
    session.run(TEXTS[1:], lambda _: forward)
    rows = session.score(TEXTS[1:], TEXTS[1:]).to_pylist()
    assert {row["status"] for row in rows} == {"ok"}
    defaults = session.limit_overrides({"infilling": {"m": 1}})
    assert defaults["infilling"] == {"m": 1}
    assert [
        one for one in left["recall"] if is_default("recall", get_detector("recall").to_json({"shots": one}), defaults)
    ] == left["recall"][-1:]


def test_other_selected_detectors_do_not_change_a_score(measure: Callable[..., dict]) -> None:
    given = {"nonmembers": [f"{number}QZXJKVWY" for number in range(7)], "members": [f"Z{one}" for one in "ABCDEFG"]}
    alone = measure(TEXTS[1:], ["recall"], **given)
    [left] = {parameters for _, _, parameters in alone}
    assert '"shots":7' not in left
    assert {one["status"] for one in alone.values()} == {"ok"}
    for join, shots in (("none", 1), ("none", 7), ("blank_line", 3)):
        overrides = {"con_recall": {"join": join, "shots": shots}}
        beside = measure(TEXTS[1:], **given, overrides=overrides)
        assert {key: one for key, one in beside.items() if key[1] == "recall"} == alone
    for overrides in ({"recall": {"join": "blank_line"}}, {}):
        swept = measure(TEXTS[1:], grid=True, **given, overrides=overrides)
        assert ({key: one for key, one in swept.items() if key in alone} == alone) is not bool(overrides)


def test_a_join_that_does_not_fit_does_not_affect_another_join(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    shot = next(
        text
        for text in (words(0, count) for count in range(30, 0, -1))
        if 3 * len(encode(model, [text])[0].token_id) + 1 <= CONTEXT
    )
    for padded in (f"{shot}{'q' * more}" for more in range(9)):
        # A text twice as long fits after the shot, but not after the shot and its join.
        tokens = 2 * len(encode(model, [padded])[0].token_id)
        plain, joined = (encode_prefix(model, padded + join) for join in ("", JOINS["blank_line"]))
        if len(plain.ids) + tokens <= CONTEXT < len(joined.ids) + tokens:
            break
    selection = [(get_detector("recall"), [{"shots": 1, "join": join} for join in ("none", "blank_line")])]
    session = Session(model, selection, DataPaths(tmp_path), user_inputs=UserInputs(known={NON_MEMBERS: [padded]}))
    session.run(["a b"], lambda _: forward)
    rows = {row["parameters"]: row for row in session.score(["a b"], ["a b"]).to_pylist()}
    assert rows['{"shots":1}']["status"] == "ok"
    assert "does not fit into" in str(rows['{"join":"blank_line","shots":1}']["reason"])


def test_the_reason_names_a_prefix_that_would_fit(measure: Callable[..., dict]) -> None:
    known = ["a known text", "one more of it"]
    text = "x y z " * 7 + "q q q q"
    shots, label = {"recall": {"shots": 2}}, '{"shots":2}'
    found = measure([text, *TEXTS], ["recall"], nonmembers=known, overrides=shots)
    reason = str(found[text, "recall", label]["reason"])
    assert "do not fit after a prefix of 2 text(s) into the context of llama (64 tokens)" in reason
    assert reason.endswith(": a prefix of 1 text(s) would fit")
    longer = "q " * 60
    reason = str(measure([longer], ["recall"], nonmembers=known, overrides=shots)[longer, "recall", label]["reason"])
    assert reason.endswith(": no shorter prefix fits")
    assert found[TEXTS[1], "recall", label]["status"] == "ok"


# Audits.


def test_an_audit_scores_the_default_alone_and_its_lineage_names_the_prefix(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def audited(rows: Sequence[Mapping[str, object]]) -> Session:
        monkeypatch.setattr(prefixes, "read_built", lambda paths, name: build_benchmark(name, rows))
        selection = [one for one in build_audit_selection({}) if one[0].name in BOTH]
        return Session(tiny("llama")[0], selection, DataPaths(tmp_path), benchmark="b")

    rows = [row(f"g{number}", f"t {number}") for number in range(9)]
    rows += [row(f"m{number}", f"u {number}", MEMBER) for number in range(9)]
    session = audited(rows)
    settings = {detector.name: own for detector, own in session.selection}
    assert settings == {
        "recall": [{"shots": 7, "join": "none"}],
        "con_recall": [{"shots": 7, "gamma": 0.5, "join": "none"}],
    }
    assert set(session.upstream) == {"prefix/non-members/7/none", "prefix/members/7/none"}
    changed = audited([row(f"g{number}", f"v {number}") for number in range(9)] + rows[9:])
    one, other = session.upstream, changed.upstream
    assert one["prefix/members/7/none"] == other["prefix/members/7/none"]
    assert one["prefix/non-members/7/none"] != other["prefix/non-members/7/none"]


def test_a_prefix_pass_is_planned_and_described(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    session = Session(
        model,
        select_detectors(["recall"]),
        DataPaths(tmp_path),
        user_inputs=UserInputs(known={NON_MEMBERS: ["QA"] * 7}),
    )
    own = Session(model, select_detectors(["loss"]), DataPaths(tmp_path))
    planned = session.plan(TEXTS)
    assert planned.tokens_to_run == 2 * own.plan(TEXTS).tokens_to_run
    [cost] = session.describe_extra_costs(TEXTS)
    assert f"after a prefix of 7 non-members: 1 pass per text, about {planned.tokens_to_run // 2:,} tokens" in cost
    done = session.run(TEXTS, lambda _: forward)
    assert sum(one.tokens_computed for one in done.all) == planned.tokens_to_run
    assert session.plan(TEXTS).tokens_to_run == 0
    assert session.describe_extra_costs(TEXTS) == []
    assert isinstance(session.score(TEXTS, TEXTS), pa.Table)


@pytest.mark.parametrize("shared", [True, False])
def test_a_prefix_that_is_rerun_with_every_text_counts_in_the_plan(shared: bool, tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    paths, asked = DataPaths(tmp_path), [{"shots": shots, "join": "none"} for shots in (1, 2)]
    session = Session(
        model, [(get_detector("recall"), asked)], paths, user_inputs=UserInputs(known={NON_MEMBERS: KNOWN})
    )
    before = session.plan(TEXTS).tokens_to_run
    found = {**asdict(forward.checked), "shared_prefix": shared}
    write_json(paths.load_check(model.identity.model_fingerprint), {"machine": {}, "found": found})
    [cost] = session.describe_extra_costs(TEXTS)
    more = sum(len(encode_prefix(model, "".join(KNOWN[:shots])).ids) - 1 for shots in (1, 2))
    assert session.plan(TEXTS).tokens_to_run - before == (0 if shared else more * len(TEXTS))
    assert ("the prefix is read again for each text: 2 passes" in cost) is not shared


def test_a_prefix_moves_no_text_across_the_border_of_longrope(tmp_path: Path) -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [3.0] * 4, "rope_theta": 10000.0}
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 22, **factors}
    folder = save_model(tmp_path / "m", "phi3", rope_parameters=rope, original_max_position_embeddings=22)
    model = tokenized(folder, tmp_path / "data")
    assert model.position_border == 22
    within, across, beyond = "a b", "x y z " * 3, "x y z " * 6
    lengths = [len(text.token_id) + 1 for text in encode(model, [within, across, beyond])]
    shot = len(encode_prefix(model, "a shot").ids) - 1
    assert lengths[0] + shot <= 22 < lengths[1] + shot
    assert lengths[1] <= 22 < lengths[2]
    assert lengths[2] + shot <= CONTEXT
    inputs = UserInputs(known={NON_MEMBERS: ["a shot"]})
    selection = [(get_detector("recall"), [{"shots": 1, "join": "none"}])]
    session = Session(model, selection, DataPaths(tmp_path / "data"), user_inputs=inputs)
    texts = [within, across, beyond]
    session.run(texts, lambda _: forward_of(model))
    statuses, reasons = (session.score(texts, texts).column(name).to_pylist() for name in ("status", "reason"))
    assert statuses == ["ok", "not_applicable", "ok"]
    assert "do not fit after a prefix of 1 text(s) into the 22 tokens up to which m encodes positions as" in reasons[1]
    assert reasons[1].endswith(": no shorter prefix fits")


@pytest.mark.parametrize(
    ("fields", "border"),
    [
        ({"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 9}}, 9),
        ({"rope_parameters": {"full_attention": {"rope_type": "longrope", "original_max_position_embeddings": 9}}}, 9),
        ({"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 9}, 9),
        ({"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 9}, 9),
        ({"text_config": {"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 9}}, 9),
        ({"rope_scaling": {"type": "longrope"}}, None),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}, "original_max_position_embeddings": 9}, None),
        ({"rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 9}}, None),
        ({"rope_scaling": None}, None),
        ([], None),
        (None, None),
    ],
)
def test_the_border_is_that_of_longrope_in_every_spelling(tmp_path: Path, fields: object, border: int | None) -> None:
    if fields is not None:
        write_json(tmp_path / "config.json", fields)
    assert read_position_border(tmp_path / "config.json") == border
