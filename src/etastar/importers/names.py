"""What do people call things? Names of settings and metrics, in the order in which they are believed.

A name is compared without case, with `-` and blanks as `_`, and by its last dotted parts: `lr` finds
`optimizer.lr`, `seq_len` finds `training.seq_len`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from etastar.errors import InputError
from etastar.scale import parse_number

NUMBERS: dict[str, tuple[str, ...]] = {
    "params": (
        "params", "n_params", "num_params", "num_parameters", "n_parameters", "total_params", "params_total",
        "total_parameters", "model_params", "parameters", "parameter_count", "param_count", "model_size",
    ),
    "params_nonembedding": (
        "params_nonembedding", "non_embedding_params", "nonembedding_params", "params_non_embedding", "n_nonembedding",
    ),
    "tokens": (
        "tokens", "train_tokens", "training_tokens", "total_tokens", "num_tokens", "n_tokens", "num_train_tokens",
        "total_train_tokens", "token_budget",
    ),
    "lr": ("learning_rate", "peak_lr", "max_lr", "base_lr", "lr", "peak_learning_rate", "max_learning_rate", "eta"),
    "weight_decay": ("weight_decay", "wd"),
    "beta1": ("beta1", "adam_beta1", "b1"),
    "batch_tokens": (
        "batch_tokens", "tokens_per_batch", "tokens_per_step", "tokens_per_iter", "batch_size_tokens",
        "global_batch_tokens", "global_batch_size_tokens",
    ),
    "steps": (
        "steps", "max_steps", "total_steps", "num_train_steps", "max_iters", "num_iterations", "train_steps",
        "num_steps", "n_steps", "max_train_steps", "total_iters", "iterations",
    ),
    "warmup_steps": ("warmup_steps", "warmup_iters", "num_warmup_steps", "n_warmup", "warmup"),
    "decay_steps": ("decay_steps", "cooldown_steps", "n_decay", "num_decay_steps", "warmdown_iters", "decay_iters"),
    "seed": ("seed", "random_seed", "global_seed"),
    "mean_eff_lr": ("mean_eff_lr", "eff_lr", "eff_lr_mean", "effective_lr", "mean_effective_lr"),
    "plateau_eff_lr": ("plateau_eff_lr",),
}  # fmt: skip
WORDS: dict[str, tuple[str, ...]] = {
    "optimizer": ("optimizer", "optim", "optimizer_name", "optimizer.name", "optimiser", "optimizer_type"),
    "schedule": ("schedule", "lr_scheduler_type", "lr_schedule", "lr_scheduler", "scheduler", "lr_decay_style"),
    "trunk": ("trunk",),
}
# parts of a batch
WHOLE_BATCH = (
    "global_batch_size", "train_global_batch_size", "total_train_batch_size", "effective_batch_size",
    "total_batch_size",
)  # fmt: skip
DEVICE_BATCH = (
    "per_device_train_batch_size", "train_micro_batch_size_per_gpu", "micro_batch_size", "device_batch_size",
    "local_batch_size", "batch_size", "train_batch_size",
)  # fmt: skip
ACCUMULATION = (
    "gradient_accumulation_steps", "accumulate_grad_batches", "grad_accum_steps", "grad_accumulation_steps",
    "accumulation_steps", "grad_accum",
)  # fmt: skip
DEVICES = ("world_size", "ddp_world_size", "num_processes", "num_gpus", "num_devices", "devices")
SEQUENCE = (
    "seq_len", "seq_length", "sequence_length", "block_size", "context_length", "max_seq_len", "max_seq_length",
    "max_sequence_length", "train_seq_len", "context_size", "n_ctx",
)  # fmt: skip
POSITIONS = ("n_positions", "max_position_embeddings")
# parts of a GPT
LAYERS = ("n_layer", "n_layers", "num_layers", "num_hidden_layers", "depth", "layers")
WIDTH = ("n_embd", "d_model", "hidden_size", "dim", "model_dim", "width", "embed_dim", "hidden")
VOCABULARY = ("vocab_size", "padded_vocab_size", "n_vocab")
INNER = ("intermediate_size", "ffn_hidden_size", "d_ff", "hidden_dim", "n_inner")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = ("num_key_value_heads", "n_kv_heads")
HEAD_DIM = ("head_dim",)

# what our own monitor says of a run when it ends
MONITORED = {
    "etastar/params": "params", "etastar/tokens": "tokens", "etastar/steps": "steps", "etastar/peak_lr": "lr",
}  # fmt: skip
TOKEN_METRICS = (
    "tokens_seen", "num_input_tokens_seen", "n_tokens_seen", "consumed_tokens", "tokens_consumed", "total_tokens",
    "num_tokens", "train_tokens", "tokens", "train/tokens", "train/total_tokens", "train/tokens_seen",
    "train/num_input_tokens_seen", "throughput/total_tokens",
)  # fmt: skip
LR_METRICS = (
    "learning_rate", "lr", "train/learning_rate", "train/lr", "lr-adamw", "lr-adam", "optim/learning_rate", "etastar/lr",
)  # fmt: skip
VALIDATION = (
    "val_loss", "eval_loss", "eval/loss", "val/loss", "validation/loss", "validation_loss", "valid/loss",
    "valid_loss", "loss/val", "loss/eval", "loss/validation", "final_val_loss", "test_loss", "test/loss",
    "etastar/val_loss", "etastar/loss",
)  # fmt: skip
TRAINING = (
    "loss", "train/loss", "train_loss", "training_loss", "loss/train", "train/loss_step", "train_loss_step",
    "loss_metrics/global_avg_loss", "etastar/train_loss",
)  # fmt: skip
GRAD_NORM = ("grad_norm", "train/grad_norm", "gradient_norm", "train/gradient_norm", "optim/total_grad_norm")
_VALIDATION_LIKE = re.compile(r"(^|[/_.\-])(val|valid|validation|eval|evaluation|test|dev)([/_.\-]|$)")
_LOSS_LIKE = re.compile(r"(^|[/_.\-])(loss|nll|cross_entropy|ce|bpb)([/_.\-]|$)")


class Found(NamedTuple):
    """A value, and the name it was found under."""

    value: Any
    name: str


def plain(name: str) -> str:
    """How names are compared."""
    return re.sub(r"[\s-]+", "_", name.strip().lower()).replace("/", ".")


class Settings:
    """A run's settings, asked by the names people use."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._by_path: dict[str, Found] = {}
        self._by_end: dict[str, list[Found]] = {}
        for name, value in config.items():
            if value is None:
                continue
            path = plain(name)
            self._by_path.setdefault(path, Found(value, name))
            parts = path.split(".")
            for k in range(1, min(len(parts), 4)):
                self._by_end.setdefault(".".join(parts[k:]), []).append(Found(value, name))

    def ask(self, names: tuple[str, ...]) -> Found | None:
        """The value of the first name that is there; a whole path before the end of one."""
        for name in names:
            if (found := self._by_path.get(name)) is not None:
                return found
        for name in names:
            if ends := self._by_end.get(name):
                return min(ends, key=lambda found: (len(found.name), found.name))
        return None

    def number(self, names: tuple[str, ...]) -> Found | None:
        """The same as a number ("124M" is one); names that hold none are passed over."""
        for name in names:
            found = self.ask((name,))
            if found is None or isinstance(found.value, (bool, list)):
                continue
            try:
                return Found(parse_number(found.value, what=name), found.name)
            except InputError:
                continue
        return None


def validation_like(name: str) -> bool:
    """Does a metric's name say that it is a validation loss?"""
    return bool(_VALIDATION_LIKE.search(name.lower())) and bool(_LOSS_LIKE.search(name.lower()))
