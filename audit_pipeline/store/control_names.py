"""The two models of a control, and the control that checks the instrument.

Configuration and help read this module, so it imports nothing heavy.
"""

from __future__ import annotations

from typing import Literal

Role = Literal["exposed", "twin"]
EXPOSED: Role = "exposed"
TWIN: Role = "twin"
INSTRUMENT_CHECK = "instrument_check"
"""The control of the default configuration that checks whether detectors find known training texts."""
INSTRUMENT_CHECK_TAKES = "about 3 minutes on two cores"
"""The duration of training ``INSTRUMENT_CHECK``. Measured on one shared core: 2 minutes of CPU time, 3 in total."""
