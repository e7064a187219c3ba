"""What a model's own config.json says of weights in few bits, and the packages that transformers reads them with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from audit_pipeline.errors import ModelError
from audit_pipeline.store.files import read_json

EXTRA = "quantised"

# The format's name in config.json -> the modules that transformers reads it with.
_MODULES: Mapping[str, tuple[str, ...]] = {
    "bitsandbytes": ("bitsandbytes",),
    "compressed-tensors": ("compressed_tensors",),
    "gptq": ("optimum", "gptqmodel"),
    "awq": ("gptqmodel",),
    "fp8": (),
}
# Those of pyproject.toml's extra; others are built on the machine, against the torch that is there.
_IN_EXTRA = {"bitsandbytes", "compressed_tensors"}


@dataclass(frozen=True)
class Quantisation:
    """How weights were published: the ``method`` as config.json names it, and ``bits`` where it says how many."""

    method: str
    bits: int | None

    def stays_packed(self, device: str) -> bool:
        """Return whether the weights take in memory what they take on disk; others are unpacked when they run."""
        return self.method != "compressed-tensors" and (self.method != "fp8" or device.startswith("cuda"))

    def __str__(self) -> str:
        return self.method if self.bits is None else f"{self.method}, {self.bits} bits"


def read_quantisation(config_folder: Path) -> Quantisation | None:
    """Return what the config.json in a folder says of quantised weights; None where they are plain."""
    given = read_json(config_folder / "config.json").get("quantization_config")
    if not isinstance(given, Mapping):
        return None
    if given.get("load_in_4bit") or given.get("load_in_8bit"):
        # bitsandbytes did not always name itself.
        return Quantisation("bitsandbytes", 4 if given.get("load_in_4bit") else 8)
    bits = given.get("bits")
    return Quantisation(str(given.get("quant_method")), bits if isinstance(bits, int) else None)


def require_quantisation_package(model: str, quantisation: Quantisation | None) -> None:
    """Raise ModelError, naming the package and how to get it, where the weights of ``model`` cannot be read without."""
    if quantisation is None:
        return
    if quantisation.method not in _MODULES:
        raise ModelError(
            f"the weights of {model} are quantised as {quantisation.method!r}, which is not read here: "
            f"take them in one of {', '.join(_MODULES)}, or unquantised"
        )
    absent = [module for module in _MODULES[quantisation.method] if find_spec(module) is None]
    if not absent:
        return
    packages = " ".join(module.replace("_", "-") for module in absent)
    how = f"'corpus-audit[{EXTRA}]'" if _IN_EXTRA.issuperset(absent) else f"--no-build-isolation {packages}"
    raise ModelError(
        f"the weights of {model} are quantised ({quantisation}), and {packages} is not installed: pip install {how}"
    )
