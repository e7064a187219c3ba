"""The rules by which a text counts as contaminated by a corpus, with their publications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from audit_pipeline.errors import ConfigError

MIN_WORDS = 4
"""Minimum number of words in a run that ``--words`` requests, and in a text that the rule of evidence can judge."""
Measure = Literal["evidence", "any", "runs", "words"]


@dataclass(frozen=True)
class OverlapRule:
    """A rule by which a text counts as contaminated.

    A run is a sequence of n consecutive words. The published rules measure the share of a text that is found as runs in
    the corpus. The rule ``evidence`` (evidence_rule.py) differs: runs are the seeds of an alignment, and ``share`` is
    the minimum share of equal words in the alignment.

    Attributes:
        n: Length of a run, in words.
        measure: The share that is measured. ``runs`` is the share of the text's runs that were found. ``words`` is the
            share of its words inside found runs. With ``any``, a single found run is enough.
        share: Minimum found share at which a text counts as contaminated.
        source: The publication of the rule.
    """

    name: str
    n: int
    measure: Measure
    share: float
    source: str

    @property
    def shortest(self) -> int:
        """Return the minimum number of words in a searchable text."""
        if self.measure == "evidence":
            return min(self.n, MIN_WORDS)
        return self.n

    def is_contaminated(self, share_of_runs: float, share_of_words: float) -> bool:
        """Return True if a text with these found shares of runs and words is contaminated by a published rule."""
        if self.measure == "any":
            return share_of_runs > 0
        if self.measure == "runs":
            return share_of_runs >= self.share
        return share_of_words >= self.share


RULES: Mapping[str, OverlapRule] = {
    rule.name: rule
    for rule in (
        OverlapRule("evidence", 5, "evidence", 0.8, "docs/overlap.md: more than chance explains"),
        OverlapRule("gpt-3", 13, "any", 0.0, "Brown et al. 2020, appendix C: a run of 13 words in common"),
        OverlapRule("palm", 8, "runs", 0.7, "Chowdhery et al. 2022, section 8: 70% of the 8-grams in common"),
        OverlapRule(
            "llama-2", 11, "words", 0.8, "Touvron et al. 2023, A.6: 80% of it in runs longer than 10, here words"
        ),
        OverlapRule("tulu-3", 8, "words", 0.5, "Lambert et al. 2024, section 3.2: half of it in 8-grams in common"),
    )
}
DEFAULT_RULE = "evidence"


def choose_rule(name: str = DEFAULT_RULE, n: int | None = None) -> OverlapRule:
    """Return the rule with this name.

    Args:
        name: Name of the rule.
        n: Length of a searched run in words, if it differs from the rule's length.

    Raises:
        ConfigError: If the name is unknown or ``n`` is too small.
    """
    if name not in RULES:
        raise ConfigError(f"there is no rule {name}: use one of {', '.join(RULES)}")
    rule = RULES[name]
    if n is None or n == rule.n:
        return rule
    if n < MIN_WORDS:
        raise ConfigError(f"runs of {n} words occur in every corpus: search for runs of at least {MIN_WORDS} words")
    return OverlapRule(f"{name}, {n} words", n, rule.measure, rule.share, rule.source)
