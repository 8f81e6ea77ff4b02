"""Which numbers of an answer may scripts rely on? The shape of `etastar predict --json`, and of a report's JSON."""

from __future__ import annotations

import math
from typing import Any

from etastar.laws.published import PublishedPrediction
from etastar.predict.backtest import Backtest
from etastar.predict.recommend import Answer, Recommendation
from etastar.predict.strategies import Prediction
from etastar.scale import Scale


def exp2(log2_value: float) -> float:
    """2^x; beyond what a float holds it is infinite, which JSON shows as null."""
    return 2.0**log2_value if log2_value < 1024 else math.inf


def answer_json(answers: list[Answer], target: Scale, level: float, known: list[PublishedPrediction]) -> dict[str, Any]:
    """The contract's shape: all groups' predictions, one recommendation or the reason for none."""
    single = answers[0] if len(answers) == 1 else None
    reason = single.abstained if single else f"{len(answers)} groups were trained differently; pick one with --where"
    content: dict[str, Any] = {
        "target": {"params": target.params, "tokens": target.tokens, "compute": target.compute},
        "predictions": [
            prediction_json(p, t, level)
            for found in answers
            for p, t in zip(found.predictions, found.backtests, strict=True)
        ],
        "recommended": recommendation_json(single.recommended, level) if single and single.recommended else None,
        "abstained": reason,
    }
    if known:
        content["published"] = [
            {
                "law": p.law.name,
                "lr": p.lr,
                "reason": p.reason,
                "outside_validity": p.outside_validity,
                "flags": list(p.flags),
            }
            for p in known
        ]
    return content


def prediction_json(prediction: Prediction, tested: Backtest, level: float) -> dict[str, Any]:
    """One strategy's answer; value and lr are null with a reason where it has none."""
    value, lr = prediction.log2_value, prediction.log2_lr
    return {
        "axis": prediction.axis.value,
        "quantity": prediction.quantity.value,
        "inverted": prediction.inverted,
        "source": prediction.source,
        "value": None if value is None else exp2(value),
        "lr": None if lr is None else exp2(lr),
        "log2_interval": prediction.interval(level),
        "log2_lr_interval": prediction.interval(level, of_lr=True),
        "cells": prediction.cells,
        "pearson_r": prediction.pearson_r,
        "backtest": {
            "trials": len(tested.trials),
            "rms_log2_lr_error": tested.rms_lr_error,
            "bend": tested.bend(of_lr=True) if tested.trials else None,
            "errors": [
                {"params": t.scale.params, "tokens": t.scale.tokens, "log2_lr_error": t.log2_lr_error, "sd": t.lr_sd}
                for t in tested.trials
            ],
        },
        "group": prediction.group,
        "flags": [flag.value for flag in prediction.flags],
        "reason": prediction.reason,
    }


def recommendation_json(found: Recommendation, level: float) -> dict[str, Any]:
    """The recommendation as the contract has it."""
    return {
        "lr": exp2(found.log2_lr),
        "log2_interval": list(found.log2_interval),
        "level": level,
        "axis": found.axis.value,
        "quantity": found.quantity.value,
        "inverted": found.inverted,
        "why": found.why,
        "expected_ecr": found.expected_ecr,
        "lr_min_ecr": None if found.log2_lr_min_ecr is None else exp2(found.log2_lr_min_ecr),
        "safe_range": None if found.safe_range is None else [exp2(x) for x in found.safe_range],
        "conditions": found.conditions,
        "cost": {
            "budget_ratio": found.cost.budget_ratio,
            "true_ratio": found.cost.true_ratio,
            "flop": found.cost.flop,
            "target_sweep_flop": found.cost.target_sweep_flop,
            "learning_rates": found.cost.learning_rates,
        },
        "flags": [flag.value for flag in found.flags],
    }
