"""The two models of a control, and the control that checks the instrument.

Configuration and help read this module, so it imports nothing heavy.
"""

from __future__ import annotations

from typing import Literal

Role = Literal["exposed", "twin"]
EXPOSED: Role = "exposed"
TWIN: Role = "twin"
INSTRUMENT_CHECK = "instrument_check"
"""The control of the default configuration that shows whether detectors find what a model was trained on."""
INSTRUMENT_CHECK_TAKES = "about 3 minutes on two cores"
"""Measured on one core that was shared: 2 minutes of its time, 3 on the clock."""
