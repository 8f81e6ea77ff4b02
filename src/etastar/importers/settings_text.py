"""What value does a setting's text stand for? Trackers that keep text alone: "0.001", "None", "[0.9, 0.95]", "True"."""

from __future__ import annotations

import ast
from typing import Any

_WORDS = {"None": None, "null": None, "True": True, "true": True, "False": False, "false": False, "": None}
_LONGEST = 4096


def plain_value(text: Any) -> Any:
    """A number, a truth value, None or a short list where the text is one; else the text."""
    if not isinstance(text, str):
        return text
    stripped = text.strip()
    if stripped in _WORDS:
        return _WORDS[stripped]
    for read in (int, float):
        try:
            return read(stripped)
        except ValueError:
            continue
    if stripped[:1] in ("[", "(") and len(stripped) <= _LONGEST:
        try:
            found = ast.literal_eval(stripped)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return text
        return list(found) if isinstance(found, (list, tuple)) else text
    return text
