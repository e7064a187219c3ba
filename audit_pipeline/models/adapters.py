"""Adapters of the library peft: attaching them to a base model in memory, checking and detaching them."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit_pipeline.errors import ModelError, ModelFilesWarning, to_one_line
from audit_pipeline.models.model_files import read_adapter_config
from audit_pipeline.models.tokenized_model import TokenizedModel

if TYPE_CHECKING:
    import torch

EXTRA = "adapters"
_LONGEST_REASON = 200


class HeldBase:
    """The last loaded base model. Consecutive adapters of the same base share its weights in memory."""

    def __init__(self) -> None:
        self._key: object = None
        self._base: Any = None
        self._adapted: Any = None
        self._state: Sequence[object] = ()

    def load(
        self, model: TokenizedModel, device: str, notify: Callable[[str], None] = lambda message: None
    ) -> torch.nn.Module:
        """Return the model in evaluation mode on ``device``, with its adapter.

        The weights of the base stay in memory for the next call. A model that an earlier call returned must not run any
        more, because its adapter is detached.

        Raises:
            ModelError: If ``load_weights`` raises it, if peft is missing, or if the adapter does not fit its base.
        """
        from audit_pipeline.models.weights import load_weights  # noqa: PLC0415 - it imports torch

        if model.located.adapter is not None and find_spec("peft") is None:
            raise ModelError(
                f"{model.entry.name} is an adapter, and the package peft is not installed. Run: "
                f"pip install 'corpus-audit[{EXTRA}]'"
            )
        entry = model.entry
        identity = model.identity
        key = (identity.weights_digest, identity.config_digest, entry.dtype, entry.attention, entry.devices, device)
        self._detach_adapter()
        # Compiled layers contain the modules of the last adapter, so a compiled base cannot be used again.
        if self._base is None or self._key != key or entry.compile:
            self.free()
            self._base = load_weights(model, device, notify)
            self._key = None if entry.compile else key
        if model.located.adapter is None:
            return self._base  # type: ignore[no-any-return]
        message = f"{entry.name}: applying the adapter ({entry.adapter}) to its base model"
        if model.located.own_tokenizer is not None:
            message += ", and using the tokenizer of the adapter"
        notify(message)
        self._state = _read_state(self._base)
        try:
            self._adapted = _attach_adapter(self._base, model, model.located.adapter, device)
        except BaseException:
            self.free()
            raise
        return self._adapted.get_base_model().eval().requires_grad_(requires_grad=False)  # type: ignore[no-any-return]

    def free(self) -> None:
        """Release all weights."""
        self._key = self._base = self._adapted = None
        release_unused_memory()

    def _detach_adapter(self) -> None:
        """Detach the current adapter. Release the base if this fails, or if the adapter changed it (PiSSA)."""
        if self._adapted is None:
            return
        try:
            self._base = self._adapted.unload()
            self._adapted = None
        except (AttributeError, NotImplementedError, ValueError, RuntimeError, TypeError):
            self.free()
        if self._base is not None and _read_state(self._base) != self._state:
            self.free()


def release_unused_memory() -> None:
    """Collect garbage and release unused memory of GPUs."""
    gc.collect()
    # A process that only uses models on servers has not imported torch.
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _attach_adapter(base: Any, model: TokenizedModel, folder: Path, device: str) -> Any:
    """Attach the adapter in ``folder`` and return peft's model. The layers of ``base`` are changed in place."""
    from peft import PeftConfig, get_peft_model  # noqa: PLC0415 - an extra
    from safetensors import SafetensorError  # noqa: PLC0415

    name = model.entry.name
    misfit = f"the adapter {name} does not fit its base model {model.located.gguf or model.located.folder}"
    _require_supported_adapter(name, read_adapter_config(folder))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            config = PeftConfig.from_pretrained(str(folder))
            config.inference_mode = True
            # If the name is not set here, peft sets it and warns.
            config.base_model_name_or_path = getattr(base, "name_or_path", None)
            adapted = get_peft_model(base, config)
            loaded = adapted.load_adapter(str(folder), "default", torch_device=device)
            is_inside = _has_equal_logits(adapted.eval(), adapted.get_base_model(), model.vocab_size)
        except SafetensorError as error:
            raise ModelError(
                f"the weights of the adapter {name} cannot be read ({error}). Use another copy of the adapter."
            ) from error
        except (ImportError, RuntimeError, ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            reason = to_one_line(error)[:_LONGEST_REASON]
            raise ModelError(f"{misfit}. Check that it was trained on this model. Cause: {reason}") from error
    wrong = [*loaded.unexpected_keys, *loaded.missing_keys]
    if wrong:
        raise ModelError(
            f"{misfit}: {len(wrong)} tensor(s) of the adapter are missing or unexpected, for example {wrong[0]}. Name "
            "the base model that the adapter was trained on."
        )
    # Warnings about deprecated calls concern developers. Unknown settings have been checked before.
    advice = {to_one_line(str(warning.message)) for warning in caught if warning.category is UserWarning}
    for message in sorted(advice):
        if message.startswith("Unexpected keyword arguments"):
            continue
        warnings.warn(
            ModelFilesWarning(f"{name}: peft warns about the adapter: {message[:_LONGEST_REASON]}"), stacklevel=2
        )
    if not is_inside:
        raise ModelError(f"{name} is an adapter of the type {config.peft_type.value}, {_NOT_IN_LAYERS}")
    return adapted


def _require_supported_adapter(name: str, config: Mapping[str, Any]) -> None:
    """Raise ModelError if the installed peft lacks the adapter's type or settings, or if it is for another task.

    peft drops unknown settings with a warning. The adapter would then give wrong results.
    """
    import peft  # noqa: PLC0415 - an extra
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING  # noqa: PLC0415

    update = f"Update peft (pip install -U 'corpus-audit[{EXTRA}]'), or merge the adapter with its base model."
    kind = config.get("peft_type")
    if kind not in PEFT_TYPE_TO_CONFIG_MAPPING:
        raise ModelError(
            f"{name} is an adapter of the type {kind!r} (peft_type), which peft {peft.__version__} does not "
            f"support. {update}"
        )
    config_class = PEFT_TYPE_TO_CONFIG_MAPPING[kind]
    if issubclass(config_class, peft.PromptLearningConfig):
        raise ModelError(f"{name} is an adapter of the type {kind}, {_NOT_IN_LAYERS}")
    task = config.get("task_type")
    if task not in (None, "", "CAUSAL_LM"):
        raise ModelError(
            f"{name} is an adapter for the task {task!r} (task_type), but only CAUSAL_LM predicts next tokens. Use "
            "another adapter."
        )
    known = {field.name for field in fields(config_class)}
    unknown = sorted(key for key, value in config.items() if key not in known and not _is_unset(value))
    if unknown:
        raise ModelError(
            f"{name} has settings that peft {peft.__version__} does not support and would ignore: "
            f"{', '.join(unknown)}. {update}"
        )


def _is_unset(value: object) -> bool:
    return value is None or value is False or (isinstance(value, str | list | dict) and not value)


_NOT_IN_LAYERS = (
    "which is not supported because it acts outside the layers of the model. Merge it with its base model, or use a "
    "LoRA adapter."
)


def _has_equal_logits(adapted: Any, inner: Any, vocab_size: int) -> bool:
    """Return True if the base with its adapted layers gives the same logits as peft's wrapper model.

    Otherwise the adapter also acts outside the layers.
    """
    import torch  # noqa: PLC0415

    ids = torch.randint(vocab_size, (1, 16), generator=torch.Generator().manual_seed(0))
    ids = ids.to(inner.get_input_embeddings().weight.device)
    with torch.inference_mode():
        logits, expected = (model(input_ids=ids, use_cache=False).logits for model in (inner, adapted))
    return logits.shape == expected.shape and bool(torch.allclose(logits, expected, rtol=1e-3, atol=1e-3))


def _read_state(model: Any) -> list[object]:
    """Return a snapshot that reveals changes: the types of all modules, and each tensor's address and version."""
    state: list[object] = [(name, type(module)) for name, module in model.named_modules()]
    for tensor in (*model.parameters(), *model.buffers()):
        # Tensors that were created in inference mode have no version.
        version = 0 if tensor.is_inference() else tensor._version
        state.append((tensor.data_ptr(), version))
    return state
