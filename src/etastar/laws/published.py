"""What would the published learning-rate laws say for this target, and may they speak at all?

Each law names its source, its N (with or without embedding), the range it was fitted on, and its optimizer,
batch and schedule. A law that lacks an input answers with no number and a reason; a target outside its range
gets a number and a flag. Nothing is converted by guesswork, and `verified` says where constants were checked.
"""

from __future__ import annotations

import math

from etastar.errors import InputError
from etastar.laws.published_law import (
    FLAGS,
    PublishedLaw,
    PublishedPrediction,
    ReferenceOptimum,
    Target,
    require_positive,
)

__all__ = [
    "BJORCK",
    "DEEPSEEK",
    "FLAGS",
    "KAPLAN",
    "PORIAN",
    "PUBLISHED_LAWS",
    "STEP_LAW",
    "TOKEN_HORIZON",
    "PublishedLaw",
    "PublishedPrediction",
    "ReferenceOptimum",
    "compare",
    "deepseek_flops_per_token",
    "token_horizon_rule",
]


def token_horizon_rule(lr_ref: float, tokens_ref: float, tokens: float) -> float:
    """lr_ref·(tokens / tokens_ref)^-0.32: a measured optimum carried to another horizon at the same N.

    >>> round(token_horizon_rule(1e-3, 25e9, 50e9) / 1e-3, 4)
    0.8011
    """
    require_positive(lr_ref, "lr_ref")
    require_positive(tokens_ref, "tokens_ref", least=1.0)
    require_positive(tokens, "tokens", least=1.0)
    return lr_ref * (tokens / tokens_ref) ** -0.32


def deepseek_flops_per_token(*, layers: int, width: int, sequence: int) -> float:
    """DeepSeek's M = 72·layers·width² + 12·layers·width·sequence: training FLOPs a token, no embedding."""
    for value, what in ((layers, "layers"), (width, "width"), (sequence, "sequence")):
        require_positive(value, what, least=1.0)
    return 72.0 * layers * width**2 + 12.0 * layers * width * sequence


def compare(
    *,
    params: float,
    tokens: float,
    params_nonembedding: float | None = None,
    batch_tokens: float | None = None,
    flops_per_token: float | None = None,
    reference: ReferenceOptimum | None = None,
) -> list[PublishedPrediction]:
    """Ask every published law about one target, in the order of `PUBLISHED_LAWS`."""
    return [
        law.lr(
            params=params,
            tokens=tokens,
            params_nonembedding=params_nonembedding,
            batch_tokens=batch_tokens,
            flops_per_token=flops_per_token,
            reference=reference,
        )
        for law in PUBLISHED_LAWS
    ]


def _horizon_rate(target: Target) -> float:
    return token_horizon_rule(target.measured.lr, target.measured.tokens, target.tokens)


def _bjorck_rate(target: Target) -> float:
    if target.measured.params is None:
        raise InputError("the reference optimum has no params", hint="give ReferenceOptimum(params=)")
    return _horizon_rate(target) * (target.params / target.measured.params) ** -0.23


STEP_LAW = PublishedLaw(
    name="Step Law",
    citation="Li et al. 2025, Predictable Scale: Part I, Step Law, arXiv:2503.04715",
    formula="lr = 1.79·N^-0.713·D^0.307, B = 0.58·D^0.571 tokens",
    counts="without embedding",
    params_range=(2.147e8, 1.074e9),
    tokens_range=(4e9, 1e11),
    optimizer="AdamW",
    batch="B tuned together with lr",
    schedule="2000 steps of warm-up, cosine to a fixed 1e-5",
    notes=(
        "The range is that of the dense runs the authors released. lr is optimal together with B, which "
        "grows with D; at another batch it need not hold."
    ),
    verified=(
        "constants and unit of B: the authors' 1000 released bootstrap fits (their mean is 1.797, "
        "-0.7129, 0.3075; 0.581, 0.5709) and web tool; N: the released table's N equals layers·(4·h² + "
        "3·h·ffn); warm-up: secondary summary"
    ),
    rate=lambda t: 1.79 * t.size_without_embedding**-0.713 * t.tokens**0.307,
    batch_rule=lambda t: 0.58 * t.tokens**0.571,
)
DEEPSEEK = PublishedLaw(
    name="DeepSeek",
    citation="DeepSeek-AI 2024, DeepSeek LLM, arXiv:2401.02954",
    formula="lr = 0.3118·C^-0.1250, B = 0.2920·C^0.3271 tokens, C = M·D",
    counts="without embedding",
    compute_range=(1e17, 2e19),
    optimizer="AdamW (0.9, 0.95), weight decay 0.1",
    batch="B tuned together with lr",
    schedule="2000 steps of warm-up, constant, 31.6 % from 80 % of the tokens, 10 % from 90 %",
    notes=(
        "M is training FLOPs a token without embedding, attention in: 72·layers·width² + "
        "12·layers·width·sequence; from params_nonembedding alone C = 6·N·D, without attention. Checked "
        "by its authors at 1e20 FLOP and used for their 7B and 67B models. Others quote the constant as "
        "0.3188."
    ),
    verified=(
        "constants, M and range: several secondary summaries, and the lr and batch of the 7B and 67B "
        "models in the authors' repository, which it meets to 3 % in lr and 10 % in B"
    ),
    rate=lambda t: 0.3118 * t.nonembedding_compute**-0.1250,
    batch_rule=lambda t: 0.2920 * t.nonembedding_compute**0.3271,
)
PORIAN = PublishedLaw(
    name="Porian",
    citation="Porian et al. 2024, Resolving Discrepancies in Compute-Optimal Scaling, arXiv:2406.19146",
    formula="lr = 3.7·N^-0.36, B = 0.7576·N^0.703 tokens",
    counts="with embedding",
    params_range=(2.5e7, 1.1e8),
    tokens_per_param=20.0,
    optimizer="AdamW, β₂ tuned in {0.95, 0.99, 0.999}",
    batch="B tuned together with lr",
    schedule="short warm-up, constant, no decay",
    notes=(
        "N counts the output head, vocabulary·width once, which is what `params` counts. The authors "
        "train with the rounded 0.0047·(N/108M)^(-1/3) and 160·(N/108M)^(2/3) sequences of 2048 tokens."
    ),
    verified=(
        "N, range, D = 20·N, schedule and the rounded fit: the authors' released code; the unrounded "
        "constants: Step Law's comparison table as quoted by secondary sources (1 % from the rounded fit "
        "at 108M)"
    ),
    rate=lambda t: 3.7 * t.params**-0.36,
    batch_rule=lambda t: 0.7576 * t.params**0.703,
)
KAPLAN = PublishedLaw(
    name="Kaplan",
    citation="Kaplan et al. 2020, Scaling Laws for Neural Language Models, arXiv:2001.08361, appendix D.6",
    formula="lr = 0.003239 - 0.0001395·ln N",
    counts="without embedding",
    params_range=(768, 1.5e9),
    optimizer="Adam (Adafactor above 1B)",
    batch="512 sequences of 1024 tokens",
    schedule="3000 steps of warm-up, cosine to zero over 250k steps",
    notes="A rule of thumb; it reaches zero at N = 1.2e10. It has no D.",
    verified=(
        "constants, natural logarithm and N: secondary code and Step Law's comparison table; range, "
        "batch, optimizer and schedule: from memory of the paper"
    ),
    rate=lambda t: 0.003239 - 0.0001395 * math.log(t.size_without_embedding),
    batch_rule=lambda t: 512.0 * 1024.0,
)
BJORCK = PublishedLaw(
    name="Bjorck",
    citation="Bjorck et al. 2025, Scaling Optimal LR Across Token Horizons, arXiv:2409.19913",
    formula="lr ∝ N^-0.23·D^-0.32, from a measured optimum",
    counts="with embedding",
    params_range=(7.6e8, 2.7e9),
    optimizer="AdamW",
    batch="0.5M tokens",
    schedule="warm-up, cosine",
    notes=(
        "The constant is quoted as 1.3192e-5 with no unit for N and D; counted in ones it gives 3e-11 at "
        "1.3B and 100B, counted in billions 3e-6. So the law is used only to carry a measured optimum. N "
        "is taken as the nominal GPT-3 sizes, embedding included."
    ),
    verified=(
        "exponents: Step Law's comparison table as quoted by secondary sources; range of N and batch: a "
        "secondary reading of version 3, table 5 and section 4; optimizer, schedule and the count of N: "
        "from memory of the paper"
    ),
    transfers="params and tokens",
    rate=_bjorck_rate,
    batch_rule=lambda t: 2.0**19,
)
TOKEN_HORIZON = PublishedLaw(
    name="T^-0.32 rule",
    citation="Bjorck et al. 2025, Scaling Optimal LR Across Token Horizons, arXiv:2409.19913",
    formula="lr = lr_ref·(D/D_ref)^-0.32 at the same N",
    counts="none",
    params_range=(7.6e8, 2.7e9),
    optimizer="AdamW",
    batch="0.5M tokens",
    schedule="warm-up, cosine",
    notes=(
        "The exponent is the joint fit's over 760M to 2.7B; the same paper's fits per size give 0.70 at "
        "50M, 0.65 at 125M, 0.38 at 350M, 0.32 at 760M and 1.3B, 0.42 at 2.7B."
    ),
    verified=("exponent: several secondary sources; exponents per size: a secondary reading of version 3, table 5"),
    transfers="tokens",
    rate=_horizon_rate,
    batch_rule=lambda t: 2.0**19,
)

PUBLISHED_LAWS: tuple[PublishedLaw, ...] = (STEP_LAW, DEEPSEEK, PORIAN, KAPLAN, BJORCK, TOKEN_HORIZON)
