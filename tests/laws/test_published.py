"""Do the published laws give their papers' own numbers, and refuse what they cannot know?"""

import doctest
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etastar.errors import InputError
from etastar.laws import published
from etastar.laws.published import (
    BJORCK,
    DEEPSEEK,
    FLAGS,
    KAPLAN,
    PORIAN,
    PUBLISHED_LAWS,
    STEP_LAW,
    TOKEN_HORIZON,
    ReferenceOptimum,
    compare,
    deepseek_flops_per_token,
    token_horizon_rule,
)
from etastar.scale import format_number

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "published-laws.md"
REFERENCE = ReferenceOptimum(lr=1e-3, tokens=25e9, params=1.3e9)
# The example of the reference page: the paper's largest cell (width 2048, 12 layers, 0.52M-token batch).
EXAMPLE = {"params": 707e6, "tokens": 100e9, "params_nonembedding": 604e6, "batch_tokens": 2**19}
EXAMPLE_REFERENCE = ReferenceOptimum(lr=2**-9, tokens=25e9, params=707e6)


@pytest.mark.parametrize(
    ("layers", "width", "lr", "batch_sequences", "tolerance"),
    [(30, 4096, 4.2e-4, 2304, 0.03), (95, 8192, 3.2e-4, 4608, 0.12)],
)
def test_deepseek_reproduces_its_own_models(layers, width, lr, batch_sequences, tolerance):
    """The 7B and 67B models were trained so, on 2T tokens in sequences of 4096."""
    per_token = deepseek_flops_per_token(layers=layers, width=width, sequence=4096)
    said = DEEPSEEK.lr(params=7e9, tokens=2e12, flops_per_token=per_token)
    assert said.lr == pytest.approx(lr, rel=0.03)
    assert said.batch_tokens == pytest.approx(batch_sequences * 4096, rel=tolerance)
    assert said.outside_validity
    assert said.flags == ("outside_compute_range",)


def test_deepseek_at_a_power_of_ten():
    """C = 1e20 by hand: 0.3118·10^-2.5 = 9.86e-4 and 0.2920·10^6.542 = 1.017e6."""
    said = DEEPSEEK.lr(params=2e9, tokens=1e11, flops_per_token=1e9)
    assert said.lr == pytest.approx(9.860e-4, rel=1e-3)
    assert said.batch_tokens == pytest.approx(1.017e6, rel=1e-3)


def test_deepseek_without_attention_says_so_and_is_a_little_high():
    """6·N leaves 12·layers·width·sequence out: 1/6 of the rest at width = sequence, so 1.167^(1/8) in lr."""
    per_token = deepseek_flops_per_token(layers=30, width=4096, sequence=4096)
    matrices = 12.0 * 30 * 4096**2
    short = DEEPSEEK.lr(params=7e9, tokens=2e12, params_nonembedding=matrices)
    whole = DEEPSEEK.lr(params=7e9, tokens=2e12, flops_per_token=per_token)
    assert "attention_flops_left_out" in short.flags
    assert short.lr is not None
    assert whole.lr is not None
    assert short.lr / whole.lr == pytest.approx((7 / 6) ** 0.125, rel=1e-9)


def test_step_law_against_hand_values():
    """At N = 1e9, D = 1e11: log10 lr = 0.25285 - 6.417 + 3.377 = -2.78715; log10 B = -0.23657 + 6.281."""
    said = STEP_LAW.lr(params=1.1e9, tokens=1e11, params_nonembedding=1e9, batch_tokens=1.1e6)
    assert said.lr is not None
    assert math.log10(said.lr) == pytest.approx(-2.78715, abs=1e-4)
    assert said.batch_tokens is not None
    assert math.log10(said.batch_tokens) == pytest.approx(6.04443, abs=1e-4)
    assert (said.outside_validity, said.flags) == (False, ())


def test_step_law_lies_within_its_released_bootstrap():
    """The mean of the authors' 1000 fits, exp(0.58631)·N^-0.71292·D^0.30749, differs by rounding alone."""
    for size, tokens in ((2.147e8, 4e9), (1.074e9, 1e11)):
        mean = math.exp(0.5863078) * size**-0.7129223 * tokens**0.3074910
        said = STEP_LAW.lr(params=size * 1.2, tokens=tokens, params_nonembedding=size)
        assert said.lr == pytest.approx(mean, rel=0.02)


def test_porian_agrees_with_the_fit_its_authors_rounded():
    """0.0047·(N/108M)^(-1/3) and 160 sequences of 2048 tokens at the anchor of the rounding."""
    said = PORIAN.lr(params=108e6, tokens=20 * 108e6)
    assert said.lr == pytest.approx(0.0047, rel=0.015)
    assert said.batch_tokens == pytest.approx(160 * 2048, rel=0.04)
    assert not said.outside_validity
    # By hand at N = 1e8: log10 lr = 0.56820 - 2.88, log10 B = -0.12056 + 5.624.
    round_size = PORIAN.lr(params=1e8, tokens=2e9)
    assert round_size.lr == pytest.approx(10**-2.31180, rel=1e-4)
    assert round_size.batch_tokens == pytest.approx(10**5.50344, rel=1e-4)


def test_kaplan_is_a_natural_logarithm_that_ends_near_1e10():
    said = KAPLAN.lr(params=124e6, tokens=1e11, params_nonembedding=85e6)
    assert said.lr == pytest.approx(0.003239 - 0.0001395 * 18.2582, rel=1e-4)
    assert said.lr == pytest.approx(6.92e-4, rel=1e-3)
    inside = KAPLAN.lr(params=1.2e10, tokens=1e11, params_nonembedding=1.2e10)
    assert inside.lr is not None
    assert inside.flags == ("outside_params_range",)
    beyond = KAPLAN.lr(params=1.3e10, tokens=1e11, params_nonembedding=1.3e10)
    assert beyond.lr is None
    assert beyond.reason is not None
    assert "no learning rate" in beyond.reason


def test_token_horizon_rule_by_hand():
    """Ten times the tokens: 10^-0.32 = 0.47863; the same tokens: the same rate."""
    assert token_horizon_rule(2e-3, 1e10, 1e11) == pytest.approx(2e-3 * 0.47863, rel=1e-5)
    assert token_horizon_rule(2e-3, 1e10, 1e10) == 2e-3
    said = TOKEN_HORIZON.lr(params=1.3e9, tokens=250e9, reference=REFERENCE)
    assert said.lr == pytest.approx(0.47863e-3, rel=1e-5)
    assert said.flags == ()
    elsewhere = TOKEN_HORIZON.lr(params=2.6e9, tokens=250e9, reference=REFERENCE)
    assert elsewhere.lr == said.lr
    assert elsewhere.flags == ("other_params",)


def test_bjorck_carries_an_optimum_along_both_axes():
    """Twice the parameters at ten times the tokens: 2^-0.23·10^-0.32 = 0.85263·0.47863."""
    said = BJORCK.lr(params=2.6e9, tokens=250e9, reference=REFERENCE)
    assert said.lr == pytest.approx(1e-3 * 0.852635 * 0.478630, rel=1e-5)
    assert not said.outside_validity


@pytest.mark.parametrize("law", [STEP_LAW, DEEPSEEK, KAPLAN])
def test_a_law_without_embedding_refuses_where_that_count_is_unknown(law):
    said = law.lr(params=707e6, tokens=1e11, batch_tokens=2**19, reference=REFERENCE)
    assert said.lr is None
    assert "params_nonembedding" in said.reason
    assert law.lr(params=707e6, tokens=1e11, params_nonembedding=604e6).lr is not None


def test_a_law_that_transfers_refuses_without_what_it_transfers():
    for law in (BJORCK, TOKEN_HORIZON):
        said = law.lr(params=1.3e9, tokens=1e11, params_nonembedding=1.2e9)
        assert said.lr is None
        assert said.reason is not None
        assert "reference" in said.reason
    bare = ReferenceOptimum(lr=1e-3, tokens=25e9)
    assert BJORCK.lr(params=1.3e9, tokens=1e11, reference=bare).lr is None
    assert TOKEN_HORIZON.lr(params=1.3e9, tokens=1e11, reference=bare).lr is not None


def test_outside_the_range_is_predicted_and_flagged():
    inside = STEP_LAW.lr(params=5e8, tokens=2e10, params_nonembedding=4e8)
    assert (inside.outside_validity, inside.flags) == (False, ())
    far = STEP_LAW.lr(params=8e10, tokens=2e12, params_nonembedding=7e10, batch_tokens=2**19)
    assert far.lr is not None
    assert far.outside_validity
    assert far.flags == ("outside_params_range", "outside_tokens_range", "other_batch")
    # Another batch alone is a doubt about the comparison, not about the range.
    batch = STEP_LAW.lr(params=5e8, tokens=2e10, params_nonembedding=4e8, batch_tokens=2**17)
    assert (batch.outside_validity, batch.flags) == (False, ("other_batch",))
    horizon = PORIAN.lr(params=1e8, tokens=1e11)
    assert (horizon.outside_validity, horizon.flags) == (True, ("other_tokens_per_param",))


@given(
    size=st.floats(1e6, 1e10),
    share=st.floats(0.1, 1.0),
    tokens=st.floats(1e8, 1e14),
    factor=st.floats(1.01, 100.0),
)
def test_every_law_is_monotone_as_its_formula_says(size, share, tokens, factor):
    """Only Step Law rises with D; none rises with N; the N that matters is the one a law counts."""
    rises_with_tokens = {STEP_LAW.name}
    flat_in_tokens = {PORIAN.name, KAPLAN.name}
    known = {"reference": REFERENCE}
    base = compare(params=size, params_nonembedding=size * share, tokens=tokens, **known)
    longer = compare(params=size, params_nonembedding=size * share, tokens=tokens * factor, **known)
    larger = compare(params=size * factor, params_nonembedding=size * share * factor, tokens=tokens, **known)
    for first, second, third in zip(base, longer, larger, strict=True):
        name = first.law.name
        assert first.lr is not None
        assert second.lr is not None
        assert set(first.flags) <= set(FLAGS)
        if name in flat_in_tokens:
            assert second.lr == first.lr
        else:
            assert (second.lr > first.lr) == (name in rises_with_tokens)
        if name == TOKEN_HORIZON.name:
            assert third.lr == first.lr
        else:  # Kaplan's ends altogether near 1.2e10
            assert third.lr is None or third.lr < first.lr


@given(
    params=st.floats(1.0, 1e300),
    tokens=st.floats(1.0, 1e300),
    share=st.none() | st.floats(1e-3, 1.0),
    batch=st.none() | st.floats(1.0, 1e12),
)
def test_an_answer_is_a_positive_rate_or_a_reason(params, tokens, share, batch):
    size = None if share is None else max(1.0, params * share)
    for said in compare(params=params, tokens=tokens, params_nonembedding=size, batch_tokens=batch):
        assert (said.lr is None) == (said.reason is not None)
        assert said.lr is None or 0 < said.lr < math.inf


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "707M"])
def test_bad_targets_are_refused_by_name(bad):
    with pytest.raises(InputError, match="tokens"):
        STEP_LAW.lr(params=1e9, tokens=bad)
    with pytest.raises(InputError, match="lr_ref"):
        token_horizon_rule(bad, 1e9, 1e10)
    with pytest.raises(InputError, match="reference lr"):
        ReferenceOptimum(lr=bad, tokens=1e9)
    with pytest.raises(InputError, match="width"):
        deepseek_flops_per_token(layers=12, width=bad, sequence=1024)


def test_more_parameters_without_embedding_than_with_it_is_a_mistake():
    with pytest.raises(InputError, match="above params"):
        compare(params=6e8, tokens=1e11, params_nonembedding=7e8)


def _cell(bounds):
    return "not given" if bounds is None else f"{format_number(bounds[0])} to {format_number(bounds[1])}"


def _scientific(bounds):
    return f"{bounds[0]:.0e} to {bounds[1]:.0e} FLOP".replace("e+", "e")


def test_the_reference_page_says_what_the_code_says():
    page = PAGE.read_text(encoding="utf-8")
    for law in PUBLISHED_LAWS:
        compute = f"; C {_scientific(law.compute_range)}" if law.compute_range else ""
        ratio = f"; D = {law.tokens_per_param:g}·N" if law.tokens_per_param else ""
        ranges = f"N {_cell(law.params_range)}; D {_cell(law.tokens_range)}{compute}{ratio}"
        assert f"| {law.name} | `{law.formula}` | {law.counts} | {ranges} |" in page
        assert f"| {law.name} | {law.optimizer} | {law.batch} | {law.schedule} | {law.citation} |" in page
        assert f"- **{law.name}.** {law.notes} *Checked:* {law.verified}." in page
    for code, meaning in FLAGS.items():
        assert f"| `{code}` | {meaning} |" in page


def test_the_example_of_the_reference_page_is_what_the_code_answers():
    page = PAGE.read_text(encoding="utf-8")
    for said in compare(**EXAMPLE, reference=EXAMPLE_REFERENCE):
        flags = ", ".join(f"`{flag}`" for flag in said.flags) or "none"
        assert f"| {said.law.name} | {said.lr:.3g} | {flags} |" in page


def test_doctests():
    failed, tried = doctest.testmod(published)
    assert (failed, tried) == (0, 1)
