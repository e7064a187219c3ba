"""What a report says, as data: the page and its JSON twin are both made from it, so that they say the same.

What belongs here: the parts of a report, what each field means, and the JSON Schema that is published of them. What
does not: reading the warehouse (report_data.py), sentences (report_words.py), pictures and HTML (report_html.py).
"""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

SchemaVersion = Literal["1"]
SCHEMA_VERSION: SchemaVersion = "1"
SCHEMA_TITLE = "Corpus Audit report"

Outcome = Literal[
    "not_evaluated",
    "not_defined",
    "separable",
    "difference_to_look_at",
    "difference_within_control",
    "no_difference",
    "reversed_difference",
    "evidence_of_training",
    "sound_evidence_of_training",
    "no_detector_named",
    "documents_stand_out",
    "documents_cannot_stand_out",
    "no_document_stands_out",
    "documents_opposite_direction",
]
TestOutcome = Literal["found", "not_found", "opposite_direction", "refused"]
Choice = Literal["default", "named", "alone"]
Sides = Literal["labelled", "audited against held-out", "none"]


class Part(BaseModel):
    """A part of a report; nothing in it changes once it is made, and nothing that is not described is in it."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Estimate(Part):
    """A number with its 95% interval."""

    value: float | None
    """The number; null where it is not defined, and method says why."""
    low: float | None = None
    """Lower end of its 95% interval."""
    high: float | None = None
    """Upper end of its 95% interval."""
    method: str | None = None
    """How number and interval were computed, or why there is none."""


class Fact(Part):
    """A name and what is known under it."""

    name: str
    value: str


class Asked(Part):
    """What was asked."""

    question: str
    """The question in one sentence."""
    models: int
    """Models that were audited."""
    benchmarks: int
    """Benchmarks that they were audited on."""
    pairs: int
    """Pairs of a model and a benchmark that were audited."""
    tests: int
    """Current results of tests of whole sets."""
    first_audited: datetime | None
    """When the oldest of the current answers was ready."""
    last_audited: datetime | None
    """When the newest of them was."""


class Documents(Part):
    """What a shelf's documents came to, by the detector that answers, or by every detector where none was named."""

    tested: int
    """Documents (groups of texts) that were tested."""
    standing_out: int
    """Of them, those with q_bh at most 0.05; where no detector was named, q_ledger by some detector."""
    detectors: int
    """Detectors that the q-values allow for: 1 where one was named."""
    tests: int
    """P-values that they allow for: documents times detectors."""
    can_stand_out: int
    """Of these, those by detectors of which it is not known that they run against training."""
    direction: str | None
    """Which of the labelled texts score higher: training (members), opposite, none; null where none are known."""
    calibration_groups: int
    """The fewest calibration documents that any was compared with: those with as many texts as are compared."""
    calibration_groups_in_all: int | None
    """Calibration documents that the thresholds were chosen on: all there are; null where there is no threshold."""
    smallest_q: float
    """The smallest such q-value that so many calibration documents allow, were all to stand out."""
    flagged: Estimate | None
    """Share of all texts at or above the threshold; null: there is no threshold."""
    corrected: Estimate | None
    """The share corrected by the detector's error rates; null: there is no threshold."""
    alpha: float | None
    """False-positive rate that the threshold aims at."""


class Counted(Part):
    """The texts of one split of a benchmark."""

    split: str
    """evaluation, or calibration."""
    texts: int
    groups: int
    members: int
    nonmembers: int
    unknown: int
    """Texts of unknown label."""


class DetectorAnswer(Part):
    """What one of several detectors came to, where none was named to answer."""

    detector: str
    parameters: str
    auroc: Estimate
    tpr_at_5_fpr: Estimate
    standing_out: int | None
    """Documents with a q_ledger of at most 0.05 by it; null where none was tested."""
    direction: str | None
    """As of Documents."""


class Answer(Part):
    """The answer of one model on one benchmark, by the detector that was named before anything was computed."""

    model: str
    benchmark: str
    description: str | None
    """What the benchmark is, in words."""
    design: str | None
    """How its two sides came about: temporal, exchangeable, randomised, selected or unlabelled."""
    design_stated_by: str | None
    """Who says so; null where it follows from how the texts were drawn here."""
    labels_by: str | None
    """Who says which texts are members; null where it was not kept."""
    handed_over: str | None
    """The file of scores that a user handed over; null where the model was run here."""
    sides: Sides
    """What the AUROC compares: labelled members with non-members, or audited texts with held-out ones."""
    outcome: Outcome
    headline: str
    """The answer in one line."""
    explanation: str
    """The answer in a few sentences, which say no more than the claim level allows."""
    claim_level: str | None
    """screening only, statistical evidence or sound test; null where nothing was evaluated."""
    claim_stated_by: str | None
    """Whose word the level rests on; null where it is more than somebody's word."""
    claim_in_words: str | None
    split_verdict: str | None
    """What the blind control says of the benchmark's two sides."""
    verdict_in_words: str | None
    detector: str | None
    """The detector that answers; null where none of several was named, or it has no score."""
    detector_chosen: Choice | None
    """default: one of ours; named: by whoever ran this; alone: there is no other."""
    parameters: str | None
    """Canonical JSON of its parameters."""
    every_detector: list[DetectorAnswer]
    """Where no detector was named: all there are, by name; empty else."""
    more_detectors: int
    """Of them, those that are not listed."""
    counted: list[Counted]
    """Texts that were evaluated and that calibrate; empty where the benchmark was built anew since."""
    not_scored: int
    """Labelled texts without a score by the detector that answers."""
    warning: str | None
    """What to heed when reading the AUROC; null where nothing stands against it."""
    auroc: Estimate | None
    """Its AUROC; 0.5 is chance."""
    tpr_at_5_fpr: Estimate | None
    """Members found while at most 5% of non-members are taken for members."""
    blind: Estimate | None
    """AUROC of the blind control, which never sees the model: what the texts alone give away."""
    blind_tpr_at_5_fpr: Estimate | None
    """The same as tpr_at_5_fpr of the blind control."""
    strongest_control: str | None
    """Of the four blind controls of the same build the one with the highest AUROC."""
    strongest_control_auroc: float | None
    documents: Documents | None
    """What the documents of a shelf came to; null where none was tested."""
    audited_at: datetime | None
    is_current: bool
    """Whether the benchmark is still the build that was audited."""
    section: int | None
    """Number of its section in this report; null where it has none."""
    lineage: int | None
    """Number of the lineage entry behind it, in this report."""


class InstrumentCheck(Part):
    """What a detector made of a control: a model that was trained here on texts drawn by chance."""

    control: str
    benchmark: str
    detector: str
    parameters: str
    exposed: Estimate
    """AUROC of members against held-out texts in the model that was trained on the members."""
    twin: Estimate
    """The same in its twin, which saw neither."""
    blind: Estimate
    """The same without any model."""
    answers: bool
    """Whether this is the detector that answers."""


class BlindControl(Part):
    """A classifier that never sees the model."""

    name: str
    """What it sees: words, characters, length or dates."""
    auroc: Estimate
    n: int | None
    """Texts that it read."""
    strongest: bool


class MatchedStep(Part):
    """What matching the two sides achieved, at one step."""

    name: str
    auroc: Estimate
    n: int | None


class Split(Part):
    """How far a benchmark's two sides differ without any model."""

    benchmark: str
    split_verdict: str
    verdict_in_words: str
    controls: list[BlindControl]
    matched: list[MatchedStep]
    overlap_7: float | None
    """Mean share of a non-member's sequences of 7 words that stand in some member."""
    overlap_13: float | None
    """The same of 13 words."""
    near_duplicate_pairs: int | None
    other_language_members: float | None
    other_language_nonmembers: float | None
    texts_members: int | None
    texts_nonmembers: int | None
    groups_members: int | None
    groups_nonmembers: int | None
    is_current: bool
    lineage: int | None


class OlderModel(Part):
    """The older-model control: the same detector on the same texts in a model released before they existed."""

    benchmark: str
    detector: str
    parameters: str
    model: str
    auroc: Estimate
    older_model: str
    older_released: date | None
    first_text: date | None
    """The earliest day on which any of the evaluation texts can have existed."""
    older_auroc: Estimate
    above_older: float | None
    """AUROC less that of the older model."""


class Detector(Part):
    """One detector at its default setting."""

    detector: str
    parameters: str
    answers: bool
    """Whether this is the detector that was named beforehand."""
    n_members: int
    n_nonmembers: int
    n_groups: int
    n_not_scored: int
    auroc: Estimate
    tpr_at_5_fpr: Estimate
    tpr_at_1_fpr: Estimate
    tpr_at_01_fpr: Estimate
    fpr_at_95_tpr: Estimate
    margin: Estimate
    """AUROC less the blind control's; never raises a claim level."""
    warning: str | None
    """What to heed when reading the AUROC; null where nothing stands against it."""


class Setting(Part):
    """One setting of a detector that has several: for exploration."""

    detector: str
    parameters: str
    is_default: bool
    n: int
    auroc: Estimate
    tpr_at_5_fpr: float | None
    fpr_at_95_tpr: float | None


class Comparison(Part):
    """Two detectors on the same texts."""

    detector: str
    parameters: str
    other: str
    other_parameters: str
    n_members: int
    n_nonmembers: int
    n_groups: int
    difference: Estimate
    standard_error: float | None
    p_value: float | None


class Curve(Part):
    """A detector's ROC curve, as fine as a picture shows it."""

    detector: str
    parameters: str
    auroc: float | None
    fpr: list[float]
    tpr: list[float]


class Spread(Part):
    """How a detector's scores spread: shares of each side's texts between neighbouring edges."""

    detector: str
    parameters: str
    edges: list[float]
    members: list[float]
    nonmembers: list[float]


class Decision(Part):
    """A threshold from the calibration split, and what it achieved on the evaluation split."""

    detector: str
    parameters: str
    is_default: bool
    rule: str
    """largest_accuracy, marginal or certified."""
    alpha: float | None
    threshold: float | None
    refused: str | None
    """Why there is no threshold."""
    n_calibration_groups: int
    n_calibration_nonmembers: int
    n_calibration_members: int
    n_nonmembers: int
    n_members: int
    fpr: Estimate
    tpr: Estimate
    method: str


class CalibrationCheck(Part):
    """Mean false-positive rate over random halves of the non-members, against the rate aimed at."""

    detector: str
    parameters: str
    rule: str
    alpha: float
    splits: int
    n_groups: int
    mean_fpr: float | None
    standard_error: float | None
    over_alpha: float | None
    """Share of the halves whose rate exceeds alpha."""
    refused: str | None


class DocumentResult(Part):
    """One document (book, patent, article): p- and q-values, and the rates of its texts."""

    name: str
    title: str | None
    """The title of its document; null where it has several or none."""
    detector: str | None
    """The detector of the smallest p-value, where none was named; null else."""
    stands_out: bool
    """Whether its q-value (of all detectors where none was named) is at most 0.05 and scores run with training."""
    collection: str | None
    label: int | None
    n_texts: int
    statistic: float | None
    p_value: float | None
    q_bh: float | None
    q_by: float | None
    q_ledger: float | None
    n_flagged: int | None
    flagged: Estimate | None
    corrected: Estimate | None
    refused: str | None
    """Why there is no corrected rate."""


class Rate(Part):
    """The contamination rate of a collection or of the whole benchmark."""

    unit: str
    name: str
    n_texts: int
    n_groups: int
    n_flagged: int
    flagged: Estimate
    fpr: Estimate
    """Of the threshold on calibration non-members: the corrected rate takes it off."""
    tpr: Estimate
    """Of the threshold on calibration members."""
    corrected: Estimate
    refused: str | None
    assumption: str


class Shelf(Part):
    """The documents of a benchmark, by the detector that answers; by every detector where none was named."""

    detector: str | None
    """Null where none was named."""
    parameters: str | None
    direction: str | None
    """As of Documents."""
    rule: str | None
    """The threshold's rule; null where no rate was computed."""
    alpha: float | None
    n_calibration_groups: int | None
    """The fewest calibration documents that a document was compared with: those with as many texts as are compared."""
    n_calibration_groups_in_all: int | None
    """Calibration documents that the thresholds were chosen on: all there are."""
    n_tests: int | None
    n_ledger: int | None
    method: str | None
    """How the p-values were computed."""
    assumption: str | None
    """What must be true for the corrected rates of collections and of the benchmark to hold."""
    document_assumption: str | None
    """What must be true for the corrected rates of single documents to hold: more, for one may differ from others."""
    documents: list[DocumentResult]
    """The most suspicious first."""
    more: int
    """Documents that are not listed."""
    rates: list[Rate]
    more_rates: int
    """Collections that are not listed."""


class CorpusTest(Part):
    """A test of a whole corpus, set of canaries or test set: its latest result."""

    model: str
    benchmark: str
    """The benchmark, set of canaries or test set."""
    design: str | None
    """How the sides of the benchmark came about; null where the set is no benchmark."""
    test: str
    outcome: TestOutcome
    headline: str
    """The result in one line, which says no more than the claim level allows."""
    refused: str | None
    p_value: float | None
    statistic: float | None
    n: int
    n_held_out: int
    assumption: str
    direction: str | None
    """Which texts score higher where a difference is found: training (audited), opposite (held-out), none; null: the
    test knows one direction only, or was refused."""
    claim_level: str
    claim_stated_by: str | None
    """Whose word the level rests on; null where it is more than somebody's word."""
    claim_in_words: str
    method: str
    p_values_so_far: int
    """P-values of tests of this whole set and model by all runs there were: only the latest of each test is shown."""
    finished_at: datetime | None
    lineage: int | None
    """Number of the lineage entry behind it, in this report."""


class Token(Part):
    """A token of a quoted text."""

    text: str
    score: float | None
    counted: bool
    """Whether the text's score averages it."""


class Highlight(Part):
    """One of the highest scores, with at most 50 words of the text, token by token."""

    place: int
    example_id: str
    score: float
    label: int | None
    published: date | None
    group: str | None
    collection: str | None
    language: str | None
    n_tokens: int
    tokens: list[Token]


class Excerpt(Part):
    """One of the highest scores, with at most 50 words of the text."""

    example_id: str
    score: float
    label: int | None
    published: date | None
    group: str | None
    collection: str | None
    language: str | None
    text: str | None


class Unscored(Part):
    """Texts that a detector gave no score, and why."""

    detector: str
    status: str
    reason: str | None
    texts: int


class GroupScore(Part):
    """A group of unlabelled texts by the mean of their scores: no error rate goes with it."""

    name: str
    place: int
    n_texts: int
    mean: float
    median: float
    lowest: float
    highest: float


class Ledger(Part):
    """How much was tried on one model and benchmark: who looks often enough finds something by chance."""

    detectors: int
    """Detectors of the latest run."""
    settings: int
    """Detectors with their parameters, of the latest run."""
    settings_so_far: int
    """The same of all runs, each setting once."""
    groups_tested: int
    """Documents with a p-value."""
    group_p_values: int
    """P-values of documents by all detectors."""
    comparison_p_values: int
    """P-values of comparisons of detectors."""
    corpus_p_values: int
    """P-values of tests of the whole set."""
    p_values_so_far: int
    """P-values of every sort by all runs there were."""
    runs_so_far: int
    """Runs that scored this model on this benchmark."""
    models_on_benchmark: int
    """Models that were tried on this benchmark."""


class Section(Part):
    """The evidence on one model and one benchmark."""

    number: int
    model: str
    benchmark: str
    sides: Sides
    without_texts: str | None
    """Why there are no curves, spreads, texts and highlights; null where nothing stands against them."""
    blind: Detector | None
    """The blind control, in the form of a detector."""
    detectors: list[Detector]
    settings: list[Setting]
    more_settings: int
    """Settings that are not listed."""
    comparisons: list[Comparison]
    more_comparisons: int
    """Comparisons that are not listed."""
    curves: list[Curve]
    smallest_fpr: float | None
    """The smallest false-positive rate that so many groups of non-members can tell from 0."""
    spreads: list[Spread]
    decisions: list[Decision]
    calibration_checks: list[CalibrationCheck]
    shelf: Shelf | None
    group_scores: list[GroupScore]
    highlighted_by: str | None
    """The detector whose highest scores are quoted."""
    highlighted_parameters: str | None
    highlights: list[Highlight]
    excerpts: list[Excerpt]
    unscored: list[Unscored]
    more_unscored: int
    """Detectors and reasons that are not listed."""
    ledger: Ledger | None
    methods: list[str]


class NotDone(Part):
    """A pair that is not done."""

    model: str
    benchmark: str
    status: str
    reason: str | None
    stage: str | None
    last_audited_at: datetime | None
    outcome_at: datetime | None
    run_id: str | None
    is_configured: bool


class StatusCount(Part):
    """How many pairs have a status."""

    status: str
    meaning: str | None
    pairs: int


class GridRow(Part):
    """A model's status on every benchmark of the grid; null where nobody asked for the pair."""

    model: str
    statuses: list[str | None]


class Coverage(Part):
    """What became of every pair that was asked for."""

    pairs: int
    models: int
    benchmarks: int
    config_is_known: bool
    only_given: bool
    """Whether every benchmark is a table of scores that was handed over: no configuration names such a one."""
    counts: list[StatusCount]
    grid_benchmarks: list[str]
    grid: list[GridRow]
    not_done: list[NotDone]
    more: int
    """Pairs not done that are not listed."""


class Change(Part):
    """A finding beside that of the run before on the same model and benchmark."""

    model: str
    benchmark: str
    detector: str
    parameters: str
    change: str
    """first audit, new detector, no longer there, or changed."""
    now: Estimate
    before: Estimate
    left_interval: bool | None
    """Whether the AUROC now lies outside of the interval of then."""
    claim_level: str | None
    previous_claim_level: str | None
    finished_at: datetime | None
    previous_finished_at: datetime | None
    because: list[str]
    """What else had changed by then: benchmark, model, code, inputs, packages."""


class DocumentsChange(Part):
    """The documents of a pair that stand out now, beside those of the evaluation before; the answering detector's."""

    model: str
    benchmark: str
    detector: str
    parameters: str
    tested: int
    standing_out: int
    previous_tested: int
    previous_standing_out: int
    newly: list[str]
    """Documents that stand out now and did not then: the first by name."""
    more_newly: int
    no_longer: list[str]
    """Documents that stood out then and do not now: the first by name."""
    more_no_longer: int
    same_build: bool | None
    """Whether both were of the same build of the benchmark; null where one is not known."""
    finished_at: datetime | None
    previous_finished_at: datetime | None


class Timepoint(Part):
    """One model on a benchmark, in the order of releases."""

    benchmark: str
    detector: str
    parameters: str
    model: str
    released: date | None
    auroc: Estimate
    blind: float | None
    change: float | None
    """AUROC less that of the model released before it."""
    same_build: bool | None
    """Whether both were audited on the same build of the benchmark."""


class StudyPoint(Part):
    """AUROC of a detector in a control that was trained with one setting changed."""

    value: str
    auroc: Estimate


class StudyLine(Part):
    """A detector over the values of a setting."""

    detector: str
    points: list[StudyPoint]


class StudyPanel(Part):
    """One setting that a study varied."""

    setting: str
    values: list[str]
    lines: list[StudyLine]


class Study(Part):
    """A study of a control: what makes members easier to tell."""

    name: str
    panels: list[StudyPanel]


class Model(Part):
    """A model as it was loaded."""

    name: str | None
    fingerprint: str
    facts: list[Fact]
    benchmarks: int


class Check(Part):
    """A check of a benchmark."""

    name: str
    passed: bool
    what: str
    counts: list[Fact]


class Side(Part):
    """The texts of one side and split."""

    label: int | None
    split: str
    fewest_words: int
    most_words: int
    language: str
    texts: int
    groups: int
    earliest: date | None
    latest: date | None


class Source(Part):
    """Where documents of a benchmark come from."""

    source: str
    collection: str
    licence: str
    documents: int
    earliest: date | None
    latest: date | None
    retrieved: datetime | None


class Benchmark(Part):
    """A benchmark as it was built."""

    name: str
    description: str | None
    design: str | None
    digest: str | None
    sides: list[Side]
    checks: list[Check]
    sources: list[Source]
    more_sources: int
    """Sources and collections that are not listed."""
    manifest: list[Fact]


class Cost(Part):
    """What a stage of one pair took when it was last run."""

    model: str
    benchmark: str
    stage: str
    seconds: float | None
    """From its start to its last rows; what was in the cache already took no time."""
    texts: int | None
    tokens: int | None
    """Tokens that the model has run on; extra passes are not counted."""
    finished_at: datetime | None


class LineageEntry(Part):
    """What wrote the rows behind numbers of the report, from what, with which code and versions."""

    number: int
    table: str
    partition: str
    run_id: str
    asset_key: str
    code_version: str
    data_version: str
    model_fingerprint: str | None
    tokenizer_fingerprint: str | None
    benchmark_digest: str | None
    started_at: datetime | None
    finished_at: datetime | None
    inputs: list[Fact]
    """Data versions of what it was made from."""
    environment: int
    """Number of the environment, in the manifest, that it ran in."""


class Gap(Part):
    """Rows that do not join to exactly one lineage entry: their numbers cannot be traced."""

    table: str
    partition: str
    run_id: str
    rows: int
    entries: int


class Environment(Part):
    """Versions of the packages that steps ran with."""

    number: int
    packages: list[Fact]


class Manifest(Part):
    """What it takes to run the same again."""

    commands: list[str]
    more_commands: int
    """Pairs whose command is not listed."""
    written_with: str
    """Version of Corpus Audit that wrote the report."""
    layout: str
    """Digest of the code that lays the report out: a page of another layout is written again."""
    environments: list[Environment]


class Limit(Part):
    """A limit of what the report can say."""

    title: str
    text: str


class Left(Part):
    """How much there is that the report does not show; all of it is in the warehouse."""

    answers: int
    sections: int
    lineage: int
    gaps: int
    changes: int
    documents_changes: int
    corpus_tests: int
    timeline: int
    older_models: int
    costs: int
    benchmarks: int


class Report(Part):
    """A report of one model, or across models."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    kind: Literal["model", "across"]
    title: str
    written_at: datetime
    includes_text: bool
    """Whether excerpts of audited texts are quoted."""
    asked: Asked
    summary: str
    """All answers in one sentence."""
    answers: list[Answer]
    """The current answers: those that matter most, where there are more."""
    instrument_words: str
    """What the instrument check says, in a sentence."""
    instrument: list[InstrumentCheck]
    studies: list[Study]
    splits: list[Split]
    older_models: list[OlderModel]
    timeline: list[Timepoint]
    corpus_tests: list[CorpusTest]
    sections: list[Section]
    changes: list[Change]
    documents_changes: list[DocumentsChange]
    coverage: Coverage
    costs: list[Cost]
    cost_seconds: float | None
    """What all stages of all pairs of the report took together, listed or not."""
    limits: list[Limit]
    models: list[Model]
    benchmarks: list[Benchmark]
    manifest: Manifest
    lineage: list[LineageEntry]
    gaps: list[Gap]
    left_out: Left


def report_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that every JSON twin is valid by."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Report.model_json_schema(mode="serialization"),
        "title": SCHEMA_TITLE,
    }


def schema_text() -> str:
    """The schema as it is published in docs/report.schema.json."""
    return json.dumps(report_schema(), indent=2, ensure_ascii=False) + "\n"
