r"""What a .gguf says of itself: whether it holds a whole model, and the rule that its texts are split by before merges.

The names and patterns are those that llama.cpp documents (src/llama-vocab.cpp), in the spelling of the
models' own tokenizer.json where the two mean the same. Left out, and refused, are rules that are no patterns (kimi-k2,
afmoe, superbpe), those of models that are no byte-level BPE, and those with long lists of letters (deepseek-llm).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import Regex, decoders, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.integrations.gguf import read_gguf_metadata

from audit_pipeline.errors import ModelError

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _build_cased_pattern(contractions: str, digits: str) -> str:
    cases = (f"{_UPPER}*{_LOWER}+", f"{_UPPER}+{_LOWER}*")
    words = "|".join(rf"[^\r\n\p{{L}}\p{{N}}]?{case}{contractions}" for case in cases)
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}"


@dataclass(frozen=True)
class SplitRule:
    """Patterns that a text is split by, in order: matches, and what lies between them, become pieces.

    ``ignore_merges``: a piece that is a token stays whole. ``adds_start_token``: so it is where the file does not say.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    adds_start_token: bool = False


_LLAMA3 = SplitRule((rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|{_BLANKS}",))
_QWEN2 = SplitRule((rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_SIGNS}|{_BLANKS}",))
_QWEN35 = SplitRule(
    (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BLANKS}",
    )
)
_DEEPSEEK3 = SplitRule(
    (
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_BLANKS}",
    )
)
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"

_NAMES: Mapping[SplitRule, str] = {
    SplitRule((_GPT2,)): "gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling",
    SplitRule((r"\p{N}", _GPT2)): "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    replace(_LLAMA3, ignore_merges=True, adds_start_token=True): (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2"
    ),
    _LLAMA3: "dbrx smaug-bpe glm4 chatglm-bpe",
    _QWEN2: "qwen2 deepseek-r1-qwen kormo megrez stablelm2 hunyuan solar-open grok-2",
    _QWEN35: "qwen35",
    _DEEPSEEK3: "deepseek-v3 hunyuan-dense joyai-llm",
    SplitRule((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}")): "deepseek-coder",
    SplitRule((r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]")): "falcon",
    SplitRule((_build_cased_pattern("", r"\p{N}"),), ignore_merges=True, adds_start_token=True): "tekken",
    SplitRule((_build_cased_pattern(f"{_CONTRACTIONS}?", r"\p{N}{1,3}"),)): "gpt-4o llama4 kanana2 minimax-m2",
    SplitRule((_BLOOM,)): "bloom poro-chat gpt3-finnish",
    SplitRule((_BLOOM, r"\p{N}")): "viking",
    SplitRule(
        (rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_BLANKS}",),
    ): "seed-coder",
}
SPLIT_RULES: Mapping[str, SplitRule] = {name: rule for rule, names in _NAMES.items() for name in names.split()}


def require_whole_model(file: Path, name: str) -> Mapping[str, Any]:
    """Return the fields of a .gguf, without its long lists.

    Raises ModelError where it holds no whole model (an adapter, a projector, one part of several), or splits texts by
    a rule that is not known here; and what transformers raises of a damaged file.
    """
    fields: Mapping[str, Any] = read_gguf_metadata(str(file))[0]
    kind, parts = fields.get("general.type", "model"), fields.get("split.count", 1)
    if kind != "model":
        raise ModelError(
            f"{name} is no model but {kind!r} (general.type of {file}): give the .gguf of the model itself"
        )
    if parts > 1:
        raise ModelError(
            f"{name} is part {fields.get('split.no', 0) + 1} of {parts} ({file}): join the parts with llama-gguf-split "
            "--merge, and give the path of the whole"
        )
    rule = fields.get("tokenizer.ggml.pre")
    if fields.get("tokenizer.ggml.model") == "gpt2" and rule not in SPLIT_RULES:
        stated = "names no rule" if rule is None else f"names the rule {rule!r}"
        raise ModelError(
            f"the tokenizer of {name} {stated} that texts are split by (tokenizer.ggml.pre of {file}), which is not "
            "known here: take the model as a folder with tokenizer.json and safetensors"
        )
    return fields


def read_gguf_tokenizer(file: Path, fields: Mapping[str, Any]) -> PreTrainedTokenizerBase:
    """Return the tokenizer in a .gguf (``fields``: :func:`require_whole_model`); raises as transformers does."""
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    backend = tokenizer.backend_tokenizer
    if fields["tokenizer.ggml.model"] == "gpt2":
        rule = SPLIT_RULES[fields["tokenizer.ggml.pre"]]
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        backend.model.ignore_merges = rule.ignore_merges
        if rule.adds_start_token and "tokenizer.ggml.add_bos_token" not in fields:
            tokenizer.add_bos_token = True
    elif isinstance(backend.pre_tokenizer, pre_tokenizers.Metaspace) and not fields.get(
        "tokenizer.ggml.add_space_prefix", True
    ):
        # transformers puts a blank before every text, whatever the file says.
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer
