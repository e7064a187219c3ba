"""A GGUF file's weights in float32, in a GGUF file with the same metadata and tokenizer: what llama.cpp then computes
with are the numbers that the project's own pass computes with.

What belongs here: reading and writing GGUF. What does not: the server that reads the file (llama_cpp_server.py).
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

ARCHITECTURE, FILE_TYPE = gguf.Keys.General.ARCHITECTURE, gguf.Keys.General.FILE_TYPE


def write_float32(source: Path, target: Path) -> None:
    """Dequantise ``source`` into ``target``; one tensor at a time is in memory."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, arch=reader.fields[ARCHITECTURE].contents())
    for field in reader.fields.values():
        if field.name != ARCHITECTURE and not field.name.startswith("GGUF."):
            kind = field.types[0]
            value = int(gguf.LlamaFileType.ALL_F32) if field.name == FILE_TYPE else field.contents()
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, value, kind, sub_type=inner)
    for tensor in reader.tensors:
        shape = tuple(int(size) for size in reversed(tensor.shape))
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), int(np.prod(shape)) * 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        writer.write_tensor_data(np.ascontiguousarray(values))
    writer.close()
