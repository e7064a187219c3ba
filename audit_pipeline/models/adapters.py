"""Adapters of peft on a base model in memory: put on, checked, and taken off again without a change to the base."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit_pipeline.errors import ModelError, to_one_line
from audit_pipeline.models.tokenized_model import TokenizedModel

if TYPE_CHECKING:
    import torch

EXTRA = "adapters"
_LONGEST_REASON = 200


class HeldBase:
    """The base that was loaded last, with the adapter that is on it: models of the same base share its weights."""

    def __init__(self) -> None:
        self._key: object = None
        self._base: Any = None
        self._adapted: Any = None
        self._state: Sequence[object] = ()

    def load(
        self, model: TokenizedModel, device: str, notify: Callable[[str], None] = lambda words: None
    ) -> torch.nn.Module:
        """Return the model in evaluation mode on ``device``, with its adapter, of whose base the weights may be here.

        What was returned before must not be run any more. Raises ModelError as ``load_weights`` does, and where peft is
        not installed, or base and adapter do not belong together.
        """
        from audit_pipeline.models.weights import load_weights  # noqa: PLC0415 - it imports torch

        if model.located.adapter is not None and find_spec("peft") is None:
            words = f"{model.entry.name} is an adapter, and peft is not installed: pip install 'corpus-audit[{EXTRA}]'"
            raise ModelError(words)
        entry, identity = model.entry, model.identity
        key = (identity.weights_digest, identity.config_digest, entry.dtype, entry.attention, entry.devices, device)
        self._detach_adapter()
        # Compiled layers are made for the modules that were in them.
        if self._base is None or self._key != key or entry.compile:
            self.free()
            self._base, self._key = load_weights(model, device, notify), None if entry.compile else key
        if model.located.adapter is None:
            return self._base  # type: ignore[no-any-return]
        notify(f"{entry.name}: putting the adapter {entry.adapter} on its base")
        self._state = _read_state(self._base)
        try:
            self._adapted = _attach_adapter(self._base, model, model.located.adapter, device)
        except BaseException:
            self.free()
            raise
        return self._adapted.get_base_model().eval().requires_grad_(requires_grad=False)  # type: ignore[no-any-return]

    def free(self) -> None:
        """Hold no weights any more."""
        self._key = self._base = self._adapted = None
        give_back_memory()

    def _detach_adapter(self) -> None:
        """Leave the base as it was loaded, or none where a type cannot be taken off or changed the base (PiSSA)."""
        if self._adapted is None:
            return
        try:
            self._base, self._adapted = self._adapted.unload(), None
        except (AttributeError, NotImplementedError, ValueError, RuntimeError, TypeError):
            self.free()
        if self._base is not None and _read_state(self._base) != self._state:
            self.free()


def give_back_memory() -> None:
    """Collect what nothing refers to any more, and give the memory of GPUs back."""
    gc.collect()
    # Loaded where a model was run in this process; a model on a server needs no torch.
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _attach_adapter(base: Any, model: TokenizedModel, folder: Path, device: str) -> Any:
    """Return peft's model of ``base``, whose layers it changes, with the adapter in ``folder``."""
    from peft import PeftConfig, get_peft_model  # noqa: PLC0415 - an extra
    from safetensors import SafetensorError  # noqa: PLC0415

    name = model.entry.name
    misfit = f"the adapter {name} does not fit its base, {model.located.gguf or model.located.folder}"
    with warnings.catch_warnings():
        # Advice for training. What does not fit is reported below.
        warnings.simplefilter("ignore")
        try:
            config = PeftConfig.from_pretrained(str(folder))
            config.inference_mode = True
            if config.is_prompt_learning:
                raise ModelError(f"{name} is an adapter of the type {config.peft_type.value}, {_NOT_IN_LAYERS}")
            adapted = get_peft_model(base, config)
            loaded = adapted.load_adapter(str(folder), "default", torch_device=device)
            is_inside = _has_equal_logits(adapted.eval(), adapted.get_base_model(), model.vocab_size)
        except SafetensorError as error:
            raise ModelError(f"the weights of the adapter {name} cannot be read; fetch it again: {error}") from error
        except (ImportError, RuntimeError, ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            reason = to_one_line(error)[:_LONGEST_REASON]
            raise ModelError(f"{misfit}: {reason}") from error
    if wrong := [*loaded.unexpected_keys, *loaded.missing_keys]:
        raise ModelError(f"{misfit}: {len(wrong)} tensors are missing or too many, {wrong[0]} first")
    if not is_inside:
        raise ModelError(f"{name} is an adapter of the type {config.peft_type.value}, {_NOT_IN_LAYERS}")
    return adapted


_NOT_IN_LAYERS = "which works around the model rather than in its layers, and is not read: merge it, or take LoRA"


def _has_equal_logits(adapted: Any, inner: Any, vocab_size: int) -> bool:
    """Return whether the base with its changed layers computes all that peft's model around it does."""
    import torch  # noqa: PLC0415

    ids = torch.randint(vocab_size, (1, 16), generator=torch.Generator().manual_seed(0))
    ids = ids.to(inner.get_input_embeddings().weight.device)
    with torch.inference_mode():
        logits, expected = (model(input_ids=ids, use_cache=False).logits for model in (inner, adapted))
    return logits.shape == expected.shape and bool(torch.allclose(logits, expected, rtol=1e-3, atol=1e-3))


def _read_state(model: Any) -> list[object]:
    """Return the modules with their types, and of each tensor its place in memory and how often it was written to."""
    tensors = [*model.parameters(), *model.buffers()]
    return [
        *((name, type(module)) for name, module in model.named_modules()),
        *((tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors),
    ]
