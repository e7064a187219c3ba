"""The one model that is in memory.

What belongs here: keeping the model that was made ready last until another one is wanted. What does not: making one
ready (backends.py), and when it is wanted (scoring, extraction, a Dagster run).
"""

from __future__ import annotations

import gc
import sys

from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.backend import Backend, BackendOf


class HeldModel:
    """Gives the model that was made ready last again, and frees it before another one is made ready.

    Another division of the same weights over devices, another endpoint's settings and another start token are another
    model here: a back end keeps the entry that it was made from.
    """

    def __init__(self) -> None:
        self._held: tuple[object, Backend] | None = None

    def ready(self, model: TokenizedModel, load: BackendOf) -> Backend:
        """The model, ready to be run; ``load`` makes it so where it is not the one that is held.

        What ``load`` raises goes on to the caller, and no model is held then.
        """
        key = (model.identity.model_fingerprint, model.entry.division, model.entry.endpoint, model.start_token_id)
        if self._held is None or self._held[0] != key:
            self.free()
            self._held = (key, load(model))
        return self._held[1]

    def free(self) -> None:
        """Hold no model any more, and give its memory back."""
        if self._held is None:
            return
        self._held = None
        gc.collect()
        # Loaded where a model was run in this process; one behind an interface needs no torch.
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()
