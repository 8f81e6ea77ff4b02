"""What was trained? Sizes, rates and settings of one raw run, each with where it was found or how it was worked out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from etastar.importers import names as n
from etastar.importers.raw import RawRun
from etastar.records import RUN_COLUMNS
from etastar.scale import format_number

_TOKENS_NOT_SEQUENCES = 2**15  # "total_batch_size: 524288" counts tokens: nobody takes so many sequences
_GPT2_VOCABULARY = 50304
_SCHEDULES = {
    "warmup_stable_decay": "wsd", "wsd": "wsd", "trapezoidal": "wsd", "constant_with_warmup": "constant",
    "cosine_with_min_lr": "cosine", "cosine_with_warmup": "cosine",
}  # fmt: skip


@dataclass
class Meaning:
    """Contract columns of a run, and for each the name or the formula it came from."""

    values: dict[str, Any] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    guesses: list[str] = field(default_factory=list)  # assumptions that the user should see

    def set(self, column: str, value: Any, origin: str) -> None:
        """Take a value unless one is there already."""
        if value is not None and column not in self.values:
            self.values[column] = value
            self.origin[column] = origin


def meaning_of(run: RawRun) -> Meaning:
    """Everything about a run but its outcome."""
    asked = n.Settings(run.config)
    logged = n.Settings({name: series.last for name, series in run.metrics.items()})
    found = Meaning()
    for name, column in n.MONITORED.items():  # measured, not intended: believed before any setting
        if name in run.metrics and possible(column, run.metrics[name].last):
            found.set(column, run.metrics[name].last, name)
    for column, known in n.NUMBERS.items():
        value = asked.number(known)
        if value is not None and possible(column, value.value):
            found.set(column, value.value, value.name)
    for column, known in n.WORDS.items():
        word = asked.ask(known)
        if word is not None and isinstance(word.value, str):
            found.set(column, word.value, word.name)
    for column in ("params", "params_nonembedding", "batch_tokens"):
        if column not in found.values and (value := logged.number(n.NUMBERS[column])) is not None and value.value > 0:
            found.set(column, value.value, f"metric {value.name}")
    for step in (_optimizer, _schedule, _rate, _steps, _batch, _tokens, _params, _warmup):
        step(run, asked, found)
    for column in [c for c in found.values if c in n.NUMBERS and not possible(c, found.values[c])]:
        found.guesses.append(f"{column}: {found.values.pop(column):g}, from {found.origin.pop(column)}, cannot be")
    return found


def possible(column: str, value: float) -> bool:
    """Within the contract; and -1 and 0 are how trainers say "not set"."""
    low, high = _RANGES[column]
    return math.isfinite(value) and low <= value <= high and (value > 0 or column in _MAY_BE_ZERO)


_MAY_BE_ZERO = ("weight_decay", "beta1", "seed", "warmup_steps", "decay_steps")
_RANGES = {
    column.name: (
        -(2.0**62) if column.low is None else column.low,
        2.0**62 if column.high is None else column.high,  # whole numbers are kept in 64 bits
    )
    for column in RUN_COLUMNS
}


def _optimizer(_run: RawRun, asked: n.Settings, found: Meaning) -> None:
    name = found.values.get("optimizer")
    if name is not None:
        lower = str(name).lower()
        # adamw_torch, adamw_torch_fused, adamw_hf, …: one algorithm
        found.values["optimizer"] = "adamw" if lower.startswith("adamw_") and "8bit" not in lower else lower
    betas = asked.ask(("betas", "adam_betas"))
    if betas is not None and isinstance(betas.value, list) and betas.value and isinstance(betas.value[0], (int, float)):
        found.set("beta1", float(betas.value[0]), betas.name)


def _schedule(_run: RawRun, asked: n.Settings, found: Meaning) -> None:
    name = found.values.get("schedule")
    if name is not None:
        word = str(name).lower().rpartition(".")[2]
        found.values["schedule"] = _SCHEDULES.get(word, word)
    elif (decays := asked.ask(("decay_lr",))) is not None and isinstance(decays.value, bool):
        found.set("schedule", "cosine" if decays.value else "constant", decays.name)


def _rate(run: RawRun, _asked: n.Settings, found: Meaning) -> None:
    if "lr" in found.values:
        return
    for name, series in run.metrics.items():
        if name.lower() in n.LR_METRICS:
            rates = [value for value in series.values if math.isfinite(value) and value > 0]
            if rates:
                found.set("lr", max(rates), f"largest {name} logged")
                found.guesses.append(f"lr: the largest {name} that was logged; between logged steps it may be higher")


def _steps(run: RawRun, _asked: n.Settings, found: Meaning) -> None:
    if "steps" not in found.values and run.last_step > 0:
        found.set("steps", run.last_step, "last logged step")
        if run.status is None:
            found.guesses.append("steps: the last logged one, since none is planned: a run cut short looks finished")


def _batch(run: RawRun, asked: n.Settings, found: Meaning) -> None:
    """Sequences a step × their length, by the conventions of several trainers."""
    if "batch_tokens" in found.values:
        return
    length = asked.number(n.SEQUENCE)
    whole = asked.number(n.WHOLE_BATCH)
    if whole is not None and whole.value >= _TOKENS_NOT_SEQUENCES:
        found.set("batch_tokens", whole.value, f"{whole.name}, as tokens")
        found.guesses.append(f"batch_tokens: {whole.name} = {format_number(whole.value)} is read as tokens")
        return
    if length is None and (length := asked.number(n.POSITIONS)) is not None and "total_flos" not in run.config:
        found.guesses.append(f"batch_tokens: sequences taken to be {length.name} = {length.value:g} tokens long")
    elif "total_flos" in run.config and length is not None and length.name.lower() in n.POSITIONS:
        return  # Hugging Face counts what was really seen
    if length is None:
        return
    if whole is not None and whole.value > 0:
        found.set("batch_tokens", whole.value * length.value, f"{whole.name} × {length.name}")
        return
    device = asked.number(n.DEVICE_BATCH)
    if device is None or device.value <= 0:
        return
    factors = [device, length]
    accumulation = asked.number(n.ACCUMULATION)
    if accumulation is not None and accumulation.value >= 1:
        factors.append(accumulation)
    devices = asked.number(n.DEVICES)
    nano = asked.ask(("max_iters",)) is not None and asked.ask(("block_size",)) is not None
    if devices is not None and devices.value >= 1 and not nano:
        factors.append(devices)
    elif not nano:  # nanoGPT's accumulation counts all processes
        found.guesses.append("batch_tokens: the number of devices is not recorded, one is assumed")
    found.set("batch_tokens", math.prod(f.value for f in factors), " × ".join(f.name for f in factors))


def _tokens(run: RawRun, asked: n.Settings, found: Meaning) -> None:
    if "tokens" in found.values:
        return
    seen = asked.number(("num_input_tokens_seen",))
    if seen is not None and seen.value > 0:
        found.set("tokens", seen.value, seen.name)
    for name in n.TOKEN_METRICS:
        series = next((s for key, s in run.metrics.items() if key.lower() == name), None)
        if series is not None and series.last > 0 and math.isfinite(series.last) and series.last == max(series.values):
            found.set("tokens", series.last, f"last {name} logged")
    if "steps" in found.values and "batch_tokens" in found.values:
        found.set("tokens", found.values["steps"] * found.values["batch_tokens"], "steps × batch_tokens")
    work, bare = asked.number(("total_flos",)), found.values.get("params_nonembedding")
    done = asked.number(("global_step",)) or asked.number(n.NUMBERS["steps"])
    if work is not None and bare and done is not None and work.value > 0 and "tokens" not in found.values:
        # the Trainer adds up 6 × parameters without embeddings × tokens; a crashed run did a part of them
        found.set("batch_tokens", round(work.value / (6 * bare * done.value)), "total_flos / (6 × N × steps)")
        found.set(
            "tokens", found.values.get("steps", done.value) * found.values["batch_tokens"], "steps × batch_tokens"
        )


def _params(_run: RawRun, asked: n.Settings, found: Meaning) -> None:
    """Parameters by the shape of a GPT, where nobody counted them: the token embedding once, no position table."""
    if "params" in found.values:
        return
    layers, width = asked.number(n.LAYERS), asked.number(n.WIDTH)
    if layers is None or width is None or not (0 < layers.value < 1e4 and 0 < width.value < 1e6):
        return
    size, named = asked.number(n.VOCABULARY), [layers.name, width.name]
    if size is None:
        found.guesses.append(f"params: the vocabulary's size is not recorded, {_GPT2_VOCABULARY} is assumed")
    else:
        named.append(size.name)
    block, inner = _block(asked, width.value)
    bare = layers.value * block
    if inner:
        named.append(inner)
    found.set("params_nonembedding", bare, "counted from " + ", ".join(named))
    total = bare + (size.value if size is not None else _GPT2_VOCABULARY) * width.value
    found.set("params", total, "counted from " + ", ".join(named))


def _block(asked: n.Settings, width: float) -> tuple[float, str]:
    """Matrices of one layer: GPT-2's twelve d², or attention with fewer keys and a gated inner layer."""
    inner = asked.number(n.INNER)
    if inner is None or inner.value <= 0:
        return 12 * width**2, ""
    heads, kv, size = asked.number(n.HEADS), asked.number(n.KV_HEADS), asked.number(n.HEAD_DIM)
    keys = 1.0
    if heads is not None and kv is not None and heads.value > 0:
        keys = kv.value / heads.value
    across = width if heads is None or size is None else heads.value * size.value
    gated = asked.ask(("hidden_act", "activation", "activation_function"))
    matrices = 3 if gated is not None and str(gated.value) in ("silu", "swiglu", "geglu", "swish") else 2
    return 2 * width * across * (1 + keys) + matrices * width * inner.value, inner.name


def _warmup(_run: RawRun, asked: n.Settings, found: Meaning) -> None:
    """Warm-up and decay given as a share of the run."""
    steps = found.values.get("steps")
    for column, known in (
        ("warmup_steps", ("warmup_ratio", "warmup_fraction", "warmup_frac")),
        ("decay_steps", ("decay_ratio", "decay_fraction", "cooldown_fraction", "cooldown_frac", "warmdown_ratio")),
    ):
        share = asked.number(known)
        if share is not None and steps and 0 < share.value < 1 and not found.values.get(column):
            found.values.pop(column, None)
            found.set(column, round(share.value * steps), f"{share.name} × steps")
    if 0 < found.values.get("warmup_steps", 0) < 1 and steps:  # Hugging Face takes a share under the same name
        found.values["warmup_steps"] = round(found.values["warmup_steps"] * steps)
