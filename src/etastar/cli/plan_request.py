"""What did the user of `etastar plan` type? Options → the parts of a plan request, checked one by one."""

from __future__ import annotations

import enum
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etastar.errors import InputError, SpecError
from etastar.plan.make import octaves
from etastar.plan.study_plan import Budget, Hardware
from etastar.scale import parse_number, parse_positive

if TYPE_CHECKING:
    from etastar.train.spec import TrainSpec


class PlanAxis(enum.StrEnum):
    """Along what the runs of a plan approach the target."""

    DATA = "data"
    MODEL = "model"
    BOTH = "both"


class Counts(enum.StrEnum):
    """How a budget is counted."""

    PAPER = "paper"
    TRUE = "true"


class Switch(enum.StrEnum):
    """On or off."""

    ON = "on"
    OFF = "off"


def read_hardware(gpu: str, gpus: int, mfu: float) -> Hardware:
    """What the price assumes."""
    if not 0 < mfu <= 1:
        raise InputError(f"--mfu: {mfu} is not between 0 and 1", hint="0.4 is common for a GPT in bf16")
    try:
        return Hardware(gpu=gpu, gpus=between(gpus, "--gpus", 1, 1_000_000), mfu=mfu)
    except SpecError as error:
        raise InputError(f"--{error.message}", hint=error.hint.partition(";")[0]) from None


def read_specification(
    preset: str | None,
    path: Path | None,
    width: int | None,
    layers: int,
    optimizer: str,
    corpus: str | None,
    *,
    batch: int | None,
    warmup: int | None,
    decay: int | None,
) -> dict[str, Any]:
    """The training specification of the target's model, whole and checked."""
    from etastar.train import presets
    from etastar.train.spec_file import build_spec, load_spec

    if (preset is None) == (path is None):
        raise InputError(
            "give a plan, --preset or --spec",
            hint="etastar plan --preset gpt2 --width 2048 --tokens 100B --budget 0.2",
        )
    if path is not None:
        content = load_spec(path).model_dump(mode="json")
        content["model"] |= {} if width is None else {"width": width}
    else:
        if width is None:
            raise InputError("--width is missing", hint="the width of the target's model, e.g. --width 2048")
        if optimizer not in ("adamw", "adam", "adamh", "muonh"):
            raise InputError(f"--optimizer: {optimizer[:40]!r} is not known", hint="adamw, adam, adamh or muonh")
        data = _data(corpus)
        if preset == "gpt2":
            if width not in presets.PAPER_WIDTHS:
                listed = ", ".join(map(str, presets.PAPER_WIDTHS))
                raise InputError(
                    f"--width: {width} is not a width of the preset gpt2 ({listed})",
                    hint="take one of them, or another model with --spec spec.yaml",
                )
            made: TrainSpec = presets.gpt2(width=width, optimizer=optimizer, **data)
        elif preset == "rope":
            made = presets.rope(
                width=between(width, "--width", 1, 10**6),
                layers=between(layers, "--layers", 1, 10_000),
                optimizer=optimizer,
                **data,
            )
        else:
            raise InputError(f"--preset: {str(preset)[:40]!r} is not known", hint="gpt2 or rope")
        content = made.model_dump(mode="json")
    content |= {} if batch is None else {"batch_sequences": batch}
    content["schedule"] |= {k: v for k, v in (("warmup_steps", warmup), ("decay_steps", decay)) if v is not None}
    if batch is not None or warmup is not None or decay is not None or width is not None:
        # horizons are chosen later: a long one stands in, so that the rest is checked
        content = build_spec(content | {"horizons": [10**12]}, where="plan").model_dump(mode="json")
    return content


def _data(corpus: str | None) -> dict[str, Any]:
    """The preset's data: its own vocabulary until a corpus is named."""
    from etastar.train.spec import DataSpec

    if corpus is None:
        return {}
    if corpus == "synthetic":
        data = DataSpec()
        return {"data": data, "vocab": data.synthetic_vocab, "eval_tokens": 32_768}
    data = DataSpec(corpus=corpus)
    if corpus == "default":
        return {"data": data, "vocab": math.ceil(data.default_vocab / 64) * 64}
    from etastar.train.data import Corpus

    return {"data": data, "vocab": math.ceil(Corpus.open(corpus).vocab / 64) * 64}


def read_budget(text: str | None, cost: Counts, axis: PlanAxis) -> Budget | None:
    """ "0.2" or "20%"."""
    if text is None:
        return None
    stripped = text.strip()
    ratio = parse_positive(stripped.removesuffix("%"), what="--budget") / (100 if stripped.endswith("%") else 1)
    if not 1e-9 <= ratio <= 1e6:
        raise InputError(f"--budget: {text} is not between 1e-9 and 1e6", hint="0.2 is a fifth")
    return Budget(ratio=ratio, counts=cost.value, axis=axis.value)


def smaller_widths(text: str | None, preset: str | None, axis: PlanAxis, content: dict[str, Any]) -> tuple[int, ...]:
    """The smaller models that a plan may use: typed, the preset's, or multiples of the head dimension."""
    own, head = int(content["model"]["width"]), int(content["model"]["head_dim"])
    if text is not None:
        chosen = read_whole_numbers(text, "--widths")
    elif axis is PlanAxis.MODEL and preset == "gpt2":
        from etastar.train.presets import PAPER_WIDTHS

        chosen = tuple(w for w in PAPER_WIDTHS if w < own)
    elif axis is PlanAxis.MODEL:
        scales = {max(round(own / 2 ** (k / 2) / head), 1) * head for k in range(1, 7)}
        chosen = tuple(sorted(w for w in scales if w < own))
    else:
        return ()
    for width in chosen:
        if width % head:
            raise InputError(
                f"--widths: {width} is not a multiple of head_dim {head}", hint=f"take {-(-width // head) * head}"
            )
    return chosen


def read_learning_rates(text: str) -> tuple[float, ...]:
    """ "2^-10,2^-9" or "2^-15:2^-7:0.5", ends included."""
    parts = text.split(":")
    if len(parts) == 1:
        found = tuple(parse_positive(part, what="--lrs") for part in text.split(",") if part.strip())
    elif len(parts) == 3:
        low, high = (math.log2(parse_positive(part, what="--lrs")) for part in parts[:2])
        step = parse_positive(parts[2], what="--lrs")
        if not 0 <= (high - low) / step < 1000:
            raise InputError(f"--lrs: {text[:40]!r} holds no or too many values", hint="write 2^-15:2^-7:0.5")
        found = octaves(low, high, step)
    else:
        raise InputError(f"--lrs: {text[:40]!r} is neither a list nor FROM:TO:OCTAVES", hint="write 2^-15:2^-7:0.5")
    if len(set(found)) < 3:
        raise InputError(f"--lrs: {len(set(found))} learning rates make no curve", hint="at least three, better nine")
    return tuple(sorted(set(found)))


def read_whole_numbers(text: str, what: str) -> tuple[int, ...]:
    """ "10000,20k", each once, ascending."""
    values = [parse_positive(part, what=what) for part in text.split(",") if part.strip()]
    broken = [v for v in values if not v.is_integer() or v > 10**15]
    if broken or not values:
        raise InputError(f"{what}: {text[:40]!r} is not a list of whole numbers", hint="e.g. 10000,20000,40000")
    return tuple(sorted({int(v) for v in values}))


def read_tokens(text: str | None) -> float:
    """D of the target."""
    hint = "the target's D, e.g. --tokens 100B"
    if text is None:
        raise InputError("--tokens is missing", hint=hint)
    value = parse_number(text, what="--tokens")
    if not 1 <= value <= 1e18:
        raise InputError(f"--tokens: {text} is not between 1 and 1e18", hint=hint)
    return value


def between(value: int, what: str, low: int, high: int) -> int:
    """The value, if it is in range."""
    if not low <= value <= high:
        raise InputError(f"{what}: {value} is not between {low} and {high}", hint="see etastar plan --help")
    return value
