"""Which studies come with the package? Real runs that anyone can fit, predict and draw in seconds."""

from __future__ import annotations

from pathlib import Path

from etastar.errors import InputError

_FOLDER = Path(__file__).parent / "studies"


def shipped_names() -> tuple[str, ...]:
    """Names of the studies that are shipped."""
    return tuple(sorted(path.parent.name for path in _FOLDER.glob("*/runs")))


def shipped_path(name: str) -> Path:
    """The folder of a shipped study."""
    if name not in shipped_names():
        raise InputError(
            f"study: {name[:60]!r} is not shipped", hint=f"one of {', '.join(shipped_names())}, or the path of a study"
        )
    return _FOLDER / name


def named(source: str) -> str:
    """A source as it was typed; the name of a shipped study, where no file has it, becomes its folder."""
    return str(_FOLDER / source) if source in shipped_names() and not Path(source).exists() else source
