"""Small .gguf files with metadata of a model and its tokenizer, without usable weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import Tokenizer

_TYPES = {bool: "bool", int: "uint32", str: "string", list: "array"}


def write_gguf(path: Path, *, architecture: str = "llama", **fields: Any) -> Path:
    """Write a .gguf with one tensor and the given fields. Two underscores in a field's name stand for a dot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture)
    sizes = {
        "block_count": 1,
        "context_length": 128,
        "embedding_length": 32,
        "feed_forward_length": 48,
        "attention.head_count": 4,
        "attention.head_count_kv": 4,
        "rope.dimension_count": 8,
        "vocab_size": len(fields.get("tokenizer__ggml__tokens", ())),
    }
    for name, size in sizes.items():
        writer.add_uint32(f"{architecture}.{name}", size)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    for name, value in fields.items():
        getattr(writer, f"add_{_TYPES[type(value)]}")(name.replace("__", "."), value)
    writer.add_tensor("output_norm.weight", np.ones(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_bpe_gguf(path: Path, tokenizer: Tokenizer, **fields: Any) -> Path:
    """Write the .gguf of a Llama with the vocabulary and the merges of a byte-level BPE."""
    model = json.loads(tokenizer.to_str())
    by_id = sorted((number, token) for token, number in tokenizer.get_vocab().items())
    added = {token["id"] for token in model["added_tokens"]}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["model"]["merges"]]
    return write_gguf(
        path,
        tokenizer__ggml__model="gpt2",
        tokenizer__ggml__tokens=[token for _, token in by_id],
        tokenizer__ggml__token_type=[3 if number in added else 1 for number, _ in by_id],
        tokenizer__ggml__merges=merges,
        tokenizer__ggml__bos_token_id=tokenizer.token_to_id("<s>"),
        tokenizer__ggml__eos_token_id=tokenizer.token_to_id("</s>"),
        **fields,
    )
