"""Numbers as people write them, and the parameter count."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

import etastar.scale
from etastar.errors import InputError
from etastar.predict.budget import model_sets
from etastar.scale import Scale, format_number, gpt_params, parse_number, parse_positive, parse_range


@pytest.mark.parametrize(
    ("text", "value"),
    [("707M", 707e6), ("100B", 1e11), ("2^-9", 2**-9), ("2**-9.5", 2**-9.5), ("3e-4", 3e-4), ("0.52M", 520_000),
     (" 5b ", 5e9), ("1_000", 1000), (12, 12.0), ("2^(-3)", 0.125), ("1.5T", 1.5e12), ("-3", -3.0)],
)  # fmt: skip
def test_reads_what_people_write(text, value):
    assert parse_number(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("text", ["", "M", "1MM", "two", "2^", "1e999", "nan", "inf", "9^9999", "0^-1", "１B2", "1;2"])
def test_refuses_the_rest_with_a_hint(text):
    with pytest.raises(InputError) as error:
        parse_number(text, what="tokens")
    assert "tokens" in error.value.message
    assert error.value.hint


@given(st.floats(min_value=1e-3, max_value=9e14))
def test_short_form_reads_back(value):
    assert parse_number(format_number(value)) == pytest.approx(value, rel=1e-3)


def test_positive_and_ranges():
    assert parse_range("50B:100B", what="tokens") == (5e10, 1e11)
    assert parse_range("50B", what="tokens") == (5e10, 5e10)
    for bad in ("100B:50B", "0:1", "-1"):
        with pytest.raises(InputError):
            parse_range(bad, what="tokens")
    with pytest.raises(InputError):
        parse_positive("0", what="lr")


def test_compute_is_six_n_d():
    assert Scale.parse("707M", "100B").compute == pytest.approx(6 * 707e6 * 100e9)
    with pytest.raises(InputError):
        Scale(-1.0, 1.0)


def test_budgets_of_the_papers_table_follow_from_the_parameter_counts():
    sizes = [gpt_params(width) for width in (256, 512, 768, 1024, 1536, 2048)]
    budgets = [100 * beta for beta, _ in model_sets(sizes, sizes[-1])]
    for wanted in (20.64, 37.63, 55.10):
        assert min(abs(beta - wanted) for beta in budgets) <= 0.01


def test_doctests():
    assert doctest.testmod(etastar.scale).failed == 0
