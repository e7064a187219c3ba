"""Quantised weights: their description in config.json, and the packages with which transformers reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from audit_pipeline.errors import ModelError
from audit_pipeline.store.files import read_json

EXTRA = "quantised"

# Names of formats in config.json, with the modules that transformers needs to read them.
_MODULES: Mapping[str, tuple[str, ...]] = {
    "bitsandbytes": ("bitsandbytes",),
    "compressed-tensors": ("compressed_tensors",),
    "gptq": ("optimum", "gptqmodel"),
    "awq": ("gptqmodel",),
    "fp8": (),
}
# Modules that the extra 'quantised' installs. The other modules must be compiled against the installed torch.
_IN_EXTRA = {"bitsandbytes", "compressed_tensors"}


@dataclass(frozen=True)
class Quantisation:
    """The number format of published weights.

    Attributes:
        method: Name of the format in config.json.
        bits: Bits per weight, or None if config.json does not contain them.
    """

    method: str
    bits: int | None

    def stays_packed(self, device: str) -> bool:
        """Return True if the weights stay quantised in the memory of ``device``. Other formats are unpacked there."""
        return self.method != "compressed-tensors" and (self.method != "fp8" or device.startswith("cuda"))

    def __str__(self) -> str:
        if self.bits is None:
            return self.method
        return f"{self.method}, {self.bits} bits"


def read_quantisation(config_folder: Path) -> Quantisation | None:
    """Return the quantisation that the config.json in a folder describes, or None for plain weights."""
    fields = read_json(config_folder / "config.json").get("quantization_config")
    if not isinstance(fields, Mapping):
        return None
    # Early files of bitsandbytes have no quant_method.
    if fields.get("load_in_4bit"):
        return Quantisation("bitsandbytes", 4)
    if fields.get("load_in_8bit"):
        return Quantisation("bitsandbytes", 8)
    bits = fields.get("bits")
    return Quantisation(str(fields.get("quant_method")), bits if isinstance(bits, int) else None)


def require_quantisation_package(model: str, quantisation: Quantisation | None) -> None:
    """Raise ModelError with a remedy if the package that reads the weights of ``model`` is missing."""
    if quantisation is None:
        return
    if quantisation.method not in _MODULES:
        raise ModelError(
            f"the weights of {model} are quantised as {quantisation.method!r}, which is not supported: "
            f"use weights in one of {', '.join(_MODULES)}, or unquantised weights"
        )
    absent = [module for module in _MODULES[quantisation.method] if find_spec(module) is None]
    if not absent:
        return
    packages = " ".join(module.replace("_", "-") for module in absent)
    arguments = f"--no-build-isolation {packages}"
    if _IN_EXTRA.issuperset(absent):
        arguments = f"'corpus-audit[{EXTRA}]'"
    raise ModelError(
        f"the weights of {model} are quantised ({quantisation}), and {packages} is not installed: "
        f"pip install {arguments}"
    )
