"""Which strategy gives the answer, and which others have a say in its interval?"""

from __future__ import annotations

from etastar.estimate.flags import Flag
from etastar.predict.backtest import Backtest
from etastar.predict.strategies import Prediction

NEARLY = 1.3
RIVAL = 2.5  # times as wide as the narrowest: so wide a strategy has nothing to say
CONSISTENT = 1.5  # root mean square of back-test errors over their noise up to which nothing is held against it


def choose(predictions: list[Prediction], tests: list[Backtest]) -> tuple[list[int], str | None]:
    """The strategies with the smallest expected error (interval and back-test in one number), best first.

    Intervals as narrow as the narrowest, give or take NEARLY, are a tie. The smaller error on the
    held-out cells decides whose answer is given; all of them make its interval, and so does a wider rival
    that the held-out cells do not refute, because runs that cannot tell two strategies apart cannot say
    which of their answers is right.
    """
    possible = [k for k, p in enumerate(predictions) if p.log2_lr is not None]
    if not possible:
        return [], "no strategy has cells enough: " + "; ".join(f"{p.name}: {p.reason}" for p in predictions[:4])
    # where the target is trained otherwise, only the theory speaks of it; a twin has no second voice
    speaking = [k for k in possible if Flag.SWEEP_SETTINGS not in predictions[k].flags] or possible
    speaking = [k for k in speaking if not is_twin(predictions, k)]
    tested = [k for k in speaking if tests[k].trials] or speaking
    narrowest = min(predictions[k].lr_sd for k in tested)
    close = sorted(
        (k for k in tested if predictions[k].lr_sd <= NEARLY * narrowest), key=lambda k: tests[k].rms_lr_error or 0.0
    )
    # a somewhat wider rival on the same axis, straight and in accord with the held-out cells, has its say
    axis = predictions[close[0]].axis
    rivals = [k for k in tested if k not in close and predictions[k].axis is axis]
    return close + [k for k in rivals if _has_a_say(predictions[k], tests[k], narrowest)], None


def _has_a_say(prediction: Prediction, tested: Backtest, narrowest: float) -> bool:
    """Narrow enough to say something, and refuted neither by the back-test nor by its own bend."""
    standard = tested.standard_lr_error
    refuted = Flag.CURVED in prediction.flags or (standard is not None and standard > CONSISTENT)
    return prediction.lr_sd <= RIVAL * narrowest and not refuted


def is_twin(predictions: list[Prediction], k: int) -> bool:
    """Does an earlier strategy give the same answer on the same road? (The measured map is then the closed form.)"""
    own = predictions[k]
    return own.inverted and any(
        other.axis is own.axis and other.quantity is own.quantity and other.log2_lr == own.log2_lr
        for other in predictions[:k]
    )
