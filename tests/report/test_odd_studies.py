"""Does every table that can be read make a page, whatever is missing, diverged or absurd in it?"""

from __future__ import annotations

import json
import math
import re
import warnings

import polars as pl
import pytest

from etastar.records import conform_runs
from etastar.report.markdown import build_markdown
from etastar.report.page import build_page
from etastar.report.section import study_section
from etastar.scale import Scale
from reported import TARGET, runs, view_of


def frame() -> pl.DataFrame:
    found = pl.from_arrow(runs())
    assert isinstance(found, pl.DataFrame)
    return found


BEST = 2.0**-11
ODD = {
    "one run": lambda f: f.head(1),
    "two runs": lambda f: f.head(2),
    "one learning rate": lambda f: f.filter(pl.col("lr") == BEST),
    "one cell": lambda f: f.filter((pl.col("params") == f["params"][0]) & (pl.col("tokens") == 5e9)),
    "one N": lambda f: f.filter(pl.col("params") == f["params"][0]),
    "one D": lambda f: f.filter(pl.col("tokens") == 5e9),
    "everything diverged": lambda f: f.with_columns(pl.lit(math.nan).alias("loss"), pl.lit("diverged").alias("status")),
    "a whole cell diverged": lambda f: f.with_columns(
        pl.when(pl.col("tokens") == 10e9).then(pl.lit("diverged")).otherwise("status").alias("status"),
        pl.when(pl.col("tokens") == 10e9).then(None).otherwise("loss").alias("loss"),
    ),
    "large rates diverged": lambda f: f.with_columns(
        pl.when(pl.col("lr") > BEST).then(math.inf).otherwise("loss").alias("loss")
    ),
    "no minimum": lambda f: f.with_columns(pl.col("lr").log().alias("loss")),
    "flat": lambda f: f.with_columns(pl.lit(3.0).alias("loss")),
    "losses below zero": lambda f: f.with_columns((pl.col("loss") - 100).alias("loss")),
    "nothing but four columns": lambda f: f.select("params", "tokens", "lr", "loss"),
    "no names": lambda f: f.drop("run", "trunk", "seed"),
    "unknown optimizer": lambda f: f.with_columns(pl.lit("<b>lion</b>").alias("optimizer")),
    "one eff_lr for all": lambda f: f.with_columns(pl.lit(0.001).alias("mean_eff_lr")),
    "replicates": lambda f: pl.concat(
        [f, f.with_columns(pl.col("loss") + 0.001, seed=pl.lit(9, dtype=pl.Int64), run=pl.col("run") + "b")]
    ),
    "many groups": lambda f: f.with_columns(weight_decay=pl.int_range(pl.len()) % 6 / 10),
    "absurd scale": lambda f: f.with_columns(pl.col("params") * 1e12, pl.col("tokens") * 1e10),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_study_makes_a_page(name: str) -> None:
    table = conform_runs(ODD[name](frame()).to_arrow()).table
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        section = study_section(view_of(table, name=name), TARGET)
        text = build_page([section])
        told = build_markdown([section])
    head = section.headline
    assert head is not None
    assert (head.log2_lr is None) == (head.abstained is not None)
    assert head.abstained is None or head.would_help
    found = re.search(r'id="etastar-data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    assert json.loads(found[1])["sections"][0]["runs"]["total"] == table.num_rows
    assert "<b>lion" not in text
    for word in ("nan", "NaN", "None", "Undefined"):
        assert not re.search(rf"[>\s|]{word}[<\s|]", re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)), (
            word
        )
        assert f"| {word} |" not in told


@pytest.mark.parametrize("target", [Scale(1.0, 1.0), Scale(1e24, 1e24), Scale(63.5e6, 5e9), Scale(22.3e6, 1e3)])
def test_any_target_makes_a_page(target: Scale) -> None:
    section = study_section(view_of(runs()), target)
    assert section.headline is not None
    assert len(build_page([section])) > 1_000_000
