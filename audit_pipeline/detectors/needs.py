"""What detectors can need besides a text's own forward pass.

What belongs here: the names of the needs, and whether a need is met by running a model. What does not: how a need is
met (operate/stages/ and the packages that it calls).
"""

from __future__ import annotations

from enum import StrEnum


class Need(StrEnum):
    """A declared need of a detector, so that an audit's cost is known before it starts.

    ``ONE_PASS`` is the pass over the text itself. ``LOWERCASED``, ``NEIGHBOURS`` and ``BRANCHES`` are extra passes of
    the same model: over the text in lower case, over made-up neighbours of the text, and over counterfactual branches.
    """

    ONE_PASS = "one pass"
    LOWERCASED = "extra pass (the text in lower case)"
    NEIGHBOURS = "extra passes (neighbours)"
    BRANCHES = "extra passes (branches)"
    REFERENCE_MODEL = "reference model"
    FREQUENCY_TABLE = "frequency table"
    CALIBRATION_SET = "calibration set"
