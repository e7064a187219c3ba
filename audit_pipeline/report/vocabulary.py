"""What answers are made of: the terms that their rules go by, and the one word for each thing.

What belongs here: a number with its interval, what documents and detectors and a pair came to, where scores and labels
come from; names of levels, verdicts, rules and tests, and what bears on all that is said. What does not: the rules and
the answers (answer.py, brief.py), reading rows (pair_answer.py), tests of whole sets and the summary (summary.py),
numbers (number_format.py), layout (sections/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from audit_pipeline.metrics.claims import AS_STATED_IN_WORDS, CLAIM_IN_WORDS, VERDICT_IN_WORDS
from audit_pipeline.report.number_format import count, cut, interval, number, things

COULD_NOT = "This comparison could not have found anything:"
"""How the headline of every answer begins that is no finding, but an inability."""
COULD_HARDLY = "This comparison could hardly have found anything:"
"""The same where only an effect that is larger than one that matters could have been found."""
NO_CONCLUSION = "No conclusion:"
"""How a headline begins where something differs, and it cannot be said what that means."""

Q_LEVEL = 0.05
P_LEVEL = 0.05
CHANCE = 0.5

SEPARABLE = "separable without a model"
STATISTICAL = "statistical evidence"
SOUND = "sound test"
OPPOSITE = "opposite"
TRAINING = "training"

SIGN_FORGOTTEN = "Was the sign of the scores forgotten?"
HIGHER_FOR_MEMBERS = (
    "Scores have to be higher for likelier members: a loss or a perplexity is multiplied by \u22121 first."
)

RULE_IN_WORDS: Mapping[str, str] = {
    "largest_accuracy": "largest accuracy",
    "marginal": "marginal: aimed at on average",
    "certified": "certified: exceeded in 5% of calibrations at most",
}

TEST_IN_WORDS: Mapping[str, str] = {
    "dataset_inference": "dataset inference",
    "canary_rank": "rank of the published canary",
    "sharded_permutation": "order of the test set (sharded permutation)",
}

TEST_RESULTS: Mapping[str, tuple[str, str]] = {
    "dataset_inference": (
        "The set stands out: its texts together score higher than held-out ones",
        "its texts together do not clearly score higher than held-out ones",
    ),
    "canary_rank": (
        "The set stands out: the published canary ranks higher than those that were never published",
        "the published canary does not clearly rank higher than those that were never published",
    ),
    "sharded_permutation": (
        "The set stands out: the model prefers the published order of the items",
        "the model does not clearly prefer the published order of the items",
    ),
}
"""By the test of a whole set what a small p-value shows, and what a large one does not."""

LABELS_IN_WORDS: Mapping[str, str] = {
    "given": "the column label of the table that was handed over",
    "temporal": "dates of publication",
    "controlled": "chance, drawn here before the model was trained",
    "found_in_corpus": "corpus: what a search of all of it found, word for word",
    "shelf": "{stated_by}, of the texts that are held out or known; nobody knows the others",
}
"""Who says which texts are members, by the benchmark's builder; of rows, whoever published them."""

STEP_IN_WORDS: Mapping[str, str] = {
    "token_statistics": "passes of the model",
    "scores": "detectors",
    "evaluations": "evaluation",
}


@dataclass(frozen=True)
class Words:
    """An answer: its kind (answer_kinds.py) by name, in one sentence, and in a few."""

    outcome: str
    headline: str
    explanation: str


def describe_claim_level(name: str, stated_by: str | None = None) -> str:
    """What a claim level allows to say, in plain sentences; the level itself where an older run wrote another one.

    ``stated_by``: whose word the level rests on (metrics/claims.py).
    """
    if name == SOUND and stated_by is not None:
        return AS_STATED_IN_WORDS.format(who=stated_by)
    return next((words for known, words in CLAIM_IN_WORDS.items() if known == name), name)


def describe_label_origin(builder: str | None, origin: str | None, stated_by: str | None) -> str | None:
    """Who says which texts are members, and which the model cannot have read; None where the benchmark does not say how
    it was built. ``stated_by``: whose statement its design is."""
    if builder is None or builder in LABELS_IN_WORDS:
        words = LABELS_IN_WORDS.get(builder or "")
        return None if words is None else words.format(stated_by=stated_by or "config/benchmarks.yaml")
    return f"whoever published the rows ({origin})" if origin else "whoever published the rows"


def describe_blind_control(blind: Mapping[str, Any] | None) -> str:
    """How well the blind control tells the two sides apart, or why it was not computed."""
    if blind is None or blind["value"] is None:
        # The method of its rows says that, too, after what is compared.
        why = f" ({blind['method'].rpartition('not computed: ')[2]})" if blind is not None and blind["method"] else ""
        return f"the blind control was not computed{why}, so it is unknown how well the words alone separate the sides"
    ends = interval((blind["low"], blind["high"]))
    return f"the blind control tells the two sides apart with an AUROC of {number(blind['value'])} {ends}".rstrip()


def describe_text_counts(split_counts: Sequence[Mapping[str, Any]]) -> str:
    """How many texts were evaluated and how many calibrate, a row a split; empty where that is not known."""
    by_split = {row["split"]: row for row in split_counts}
    audited, held_out = by_split.get("evaluation"), by_split.get("calibration")
    if audited and held_out and audited["unknown"] == audited["texts"]:
        members = f" and {things(held_out['members'], 'known member', 'known members')}" if held_out["members"] else ""
        return (
            f"{things(audited['texts'], 'text', 'texts')} of"
            f" {things(audited['groups'], 'audited document', 'audited documents')}, {count(held_out['nonmembers'])}"
            f"{members} of {count(held_out['groups'])} held-out."
        )
    parts = []
    for name, split in (("Evaluated", "evaluation"), ("calibrating", "calibration")):
        row = next((row for row in split_counts if row["split"] == split), None)
        if row is None:
            parts.append(f"{name}: none")
            continue
        sides = [
            things(texts, *what)
            for texts, what in (
                (row["members"], ("member", "members")),
                (row["nonmembers"], ("non-member", "non-members")),
                (row["unknown"], ("of unknown label",) * 2),
            )
            if texts
        ]
        parts.append(
            f"{name}: {things(row['texts'], 'text', 'texts')} in {things(row['groups'], 'group', 'groups')}"
            f" ({', '.join(sides)})"
        )
    return f"{'; '.join(parts)}." if split_counts else ""


def describe_verdict(verdict: str, stated_by: str | None = None) -> str:
    """What a split verdict means, in plain sentences; the verdict itself where an older run wrote another one.

    ``stated_by``: whose word the verdict rests on, as of :func:`describe_claim_level`.
    """
    words = next((words for known, words in VERDICT_IN_WORDS.items() if known == verdict), verdict)
    return words if stated_by is None else f"As stated by {stated_by}: {words[:1].lower()}{words[1:]}"


def format_rule(rule: str) -> str:
    """A threshold's rule in words."""
    return RULE_IN_WORDS.get(rule, rule.replace("_", " "))


def list_other_changes(
    benchmark: bool | None,
    model: bool | None,
    code: bool | None,
    inputs: Sequence[str] | None,
    packages: Sequence[str] | None,
) -> list[str]:
    """What had changed besides a finding since the run before: ``inputs`` and ``packages`` by name."""
    named = [
        words
        for changed, words in (
            (benchmark, "another build of the benchmark"),
            (model, "other files of the model"),
            (code, "another code version"),
        )
        if changed
    ]
    if not benchmark and inputs:
        named.append(f"other inputs: {cut(', '.join(inputs), 200)}")
    if packages:
        named.append(f"other versions of {cut(', '.join(packages), 200)}")
    return named


@dataclass(frozen=True)
class ScoreOrigin:
    """Where scores and labels come from, as far as it bears on what may be said.

    ``handed_over``: the scores are a user's own, so their sign may have been forgotten. ``stated_by``: whose word the
    claim level rests on; None where it is more than that.
    """

    handed_over: bool = False
    stated_by: str | None = None

    @property
    def opposite(self) -> str:
        """The headline where members score lower than non-members."""
        forgotten = f" {SIGN_FORGOTTEN}" if self.handed_over else ""
        return f"{NO_CONCLUSION} the scores point away from training.{forgotten}"

    @property
    def why_lower(self) -> str:
        """What is to be said of members that score lower than non-members, behind :attr:`opposite`."""
        return HIGHER_FOR_MEMBERS if self.handed_over else "The two sides differ in something else."

    @property
    def asked_in_passing(self) -> str:
        """The same where the headline is another one."""
        return f"{SIGN_FORGOTTEN} {HIGHER_FOR_MEMBERS}" if self.handed_over else self.why_lower

    def state_random_choice(self, decision: str) -> str:
        """That chance decided something, and whose word that is."""
        return f"Chance decided {decision}" + (f", as stated by {self.stated_by}" if self.stated_by else "")


Sides = Literal["labelled", "audited against held-out", "none"]
"""What an AUROC compares: labelled members with non-members, or audited texts with held-out ones."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval; where it is not defined, ``method`` says why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    method: str | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any] | None) -> Estimate | None:
        return None if row is None else cls(**row)


@dataclass(frozen=True)
class ShelfDocuments:
    """What a shelf's documents came to, by the headline detector, or by every detector where none was named.

    ``tested`` documents, of which ``standing_out`` do; ``tests`` p-values by ``detectors``, of which ``can_stand_out``
    are by detectors that are not known to run against training. ``direction``: which of the labelled texts score
    higher, training (members), opposite, none; None where none are known. ``calibration_groups``: the fewest that any
    was compared with; ``smallest_q``: the smallest q-value that so many allow; ``above_all``: documents that score
    higher than every one they were compared with, by the detector by which most do.
    """

    tested: int
    standing_out: int
    detectors: int
    tests: int
    can_stand_out: int
    direction: str | None
    calibration_groups: int
    smallest_q: float
    above_all: int


@dataclass(frozen=True)
class DetectorFindings:
    """What one of several detectors came to, where none was named to answer; ``direction`` as of ShelfDocuments."""

    detector: str
    auroc: Estimate
    direction: str | None


@dataclass(frozen=True, kw_only=True)
class PairFindings:
    """What the findings of a model on a benchmark came to: what its answer and the sentences around it go by.

    ``auroc`` and ``margin`` (over the blind control) are of the detector that answers; where nobody named one of
    several there are none, but ``every`` one of them. ``blind``: the AUROC of the blind control. ``audited``: documents
    of unknown membership. ``whole_set``: the direction that dataset inference found. ``flagged``: the share of audited
    texts at or above the threshold that is quoted, which aims at a share of ``flagged_alpha`` by accident. ``warning``:
    what to heed when reading the AUROC. ``fewest_groups``: of the compared side that has fewer. ``member_before`` and
    ``nonmember_from``: the dates that labels by date go by.
    """

    sides: Sides
    claim_level: str | None
    split_verdict: str | None
    auroc: Estimate | None
    margin: Estimate | None = None
    blind: Estimate | None = None
    every: Sequence[DetectorFindings] = ()
    documents: ShelfDocuments | None = None
    audited: int = 0
    whole_set: str | None = None
    flagged: Estimate | None = None
    flagged_alpha: float | None = None
    warning: str | None = None
    fewest_groups: int | None = None
    origin: ScoreOrigin = field(default_factory=ScoreOrigin)
    design: str | None = None
    member_before: str | None = None
    nonmember_from: str | None = None
