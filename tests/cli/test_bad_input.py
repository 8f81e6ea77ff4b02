"""Whatever is thrown at it: one line, a hint and exit code 2, or a flagged answer; never a traceback."""

import math
import os

import polars as pl
import pytest

TARGET = ("--params", "123.6M", "--tokens", "80B")
FAST = ("--replicates", "50", "--json")
REQUIRED = ("params", "tokens", "lr", "loss")
c = pl.col
row = pl.int_range(pl.len())


def some(value, column):
    """Every seventh value of a column replaced."""
    return pl.when(row % 7 == 0).then(pl.lit(value)).otherwise(c(column)).alias(column)


@pytest.fixture
def both(cli, write):
    """fit and predict of a frame, as JSON."""

    def both(frame, *options):
        path = write(frame)
        return cli("fit", path, *FAST, *options), cli("predict", path, *TARGET, *FAST, *options)

    return both


@pytest.mark.parametrize("column", REQUIRED)
def test_a_missing_column_is_named(both, study, column):
    bare = study.drop(column, "steps")
    for said in both(bare):
        said.refused(f"no column for {column} ", "--map")


@pytest.mark.parametrize("column", REQUIRED)
@pytest.mark.parametrize(
    "value",
    [pl.lit("quick"), pl.lit(True), pl.lit([1.0]), pl.struct("lr"), pl.date(2020, 1, 1), pl.lit(None, pl.Float64)],
    ids=["text", "bool", "list", "struct", "date", "null"],
)
def test_a_column_without_numbers_is_named(both, study, column, value):
    for said in both(study.with_columns(value.alias(column))):
        said.refused(f"column {column}")


@pytest.mark.parametrize("column", ["params", "tokens", "lr"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, 1e308, 1e-308, 5e-324])
def test_sizes_and_rates_must_be_positive_and_plausible(both, study, column, value):
    for said in both(study.with_columns(some(value, column))):
        said.refused(f"column {column}", "row 0")


@pytest.mark.parametrize(
    ("column", "value"),
    [("weight_decay", -0.1), ("beta1", 2.0), ("steps", -1), ("batch_tokens", 0.0), ("mean_eff_lr", -1.0), ("seed", "a"),
     ("seed", pl.lit(2**64 - 1, pl.UInt64)), ("steps", 1e300), ("status", "exploded"), ("optimizer", pl.lit(["a"]))],
)  # fmt: skip
def test_other_columns_are_checked_too(both, study, column, value):
    value = value if isinstance(value, pl.Expr) else pl.lit(value)
    for said in both(study.with_columns(value.alias(column))):
        said.refused(f"column {column}")


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, 1e300])
def test_a_loss_that_blew_up_is_a_diverged_row(both, study, loss):
    fitted, predicted = both(study.with_columns(some(loss, "loss")))
    assert any("diverged-rows" in o["flags"] for o in fitted.json["optima"])
    assert predicted.code == 0


@pytest.mark.parametrize("rates", [1, 2])
def test_too_few_learning_rates_are_a_status(both, study, rates):
    kept = study["lr"].unique().sort().to_list()[3 : 3 + rates]
    fitted, predicted = both(study.filter(c("lr").is_in(kept)))
    assert {o["status"] for o in fitted.json["optima"]} == {"TOO_FEW_POINTS"}
    assert fitted.json["laws"] == []
    assert predicted.json["recommended"] is None
    assert predicted.json["abstained"]


def test_the_same_run_with_two_losses_is_refused_and_replicates_are_not(both, study):
    twice = pl.concat([study, study.with_columns(c("loss") + 0.01)])
    for said in both(twice):
        said.refused("2 different losses")
    for said in both(twice.drop("run", "seed", "trunk")):
        assert said.code == 0


@pytest.mark.parametrize("column", ["optimizer", "batch_tokens"])
def test_mixed_trainings_are_not_mixed(both, study, column):
    other = {"optimizer": pl.lit("muon"), "batch_tokens": pl.lit(2.0**20)}[column]
    mixed = pl.concat([study, study.with_columns(other.alias(column), c("run") + "-b")])
    fitted, predicted = both(mixed)
    assert len({o["group"] for o in fitted.json["optima"]}) == 2
    assert predicted.json["recommended"] is None


@pytest.mark.parametrize(
    "change",
    {
        "constant eff_lr": pl.lit(1e-3).alias("mean_eff_lr"),
        "falling eff_lr": (1e-6 / c("mean_eff_lr")).alias("mean_eff_lr"),
        "two values of eff_lr": pl.when(c("lr") > 1e-3).then(1e-3).otherwise(1e-4).alias("mean_eff_lr"),
        "some eff_lr": pl.when(row % 3 > 0).then(c("mean_eff_lr")).alias("mean_eff_lr"),
        "NaN eff_lr": some(math.nan, "mean_eff_lr"),
        "flat loss": pl.lit(3.0).alias("loss"),
        "tiny loss": pl.lit(5e-324).alias("loss"),
        "huge loss": (c("loss") * 1e20).alias("loss"),
        "negative loss": (-c("loss")).alias("loss"),
        "falling loss": (-c("lr").log()).alias("loss"),
        "concave loss": (-((c("lr").log() + 7) ** 2)).alias("loss"),
        "jump": ((c("lr").log(2) + 7 + 3 * (c("tokens") > 6e9).cast(pl.Float64)) ** 2).alias("loss"),
        "close lr": (1e-3 * (1 + 1e-12 * c("lr").log())).alias("lr"),
        "wide lr": c("lr").pow(5).alias("lr"),
        "one N": pl.lit(123.6e6).alias("params"),
        "one D": pl.lit(5e9).alias("tokens"),
        "close D": (1e10 + c("tokens") * 1e-9).alias("tokens"),
        "wide D": (c("tokens") / 1e10).pow(20).alias("tokens"),
        "no decay": pl.lit(0.0).alias("weight_decay"),
        "tiny batch": pl.lit(1e-20).alias("batch_tokens"),
        "huge batch": pl.lit(1e20).alias("batch_tokens"),
        "no steps": pl.lit(0).alias("steps"),
        "all diverged": pl.lit("diverged").alias("status"),
        "capitals": pl.lit("Finished").alias("status"),
        "a trunk for all": pl.lit("t").alias("trunk"),
    }.items(),
    ids=lambda item: item[0],
)
def test_odd_studies_get_an_answer_or_a_reason(cli, write, study, change):
    small = study.filter((c("tokens") < 30e9) & (c("params") > 3e7)).drop("run")
    path = write(small.with_columns(change[1]))
    found = cli("predict", path, *TARGET, *FAST).json
    assert (found["recommended"] is None) != (found["abstained"] is None)
    assert all(p["lr"] is not None or p["reason"] for p in found["predictions"])
    assert "Optima" in cli("fit", path, "--replicates", "50").stdout
    if change[0] in ("constant eff_lr", "jump", "wide lr", "flat loss"):
        assert cli("evaluate", path, "--params", "123.6M", "--tokens", "20B", "--budgets", "0.05:1").code in (0, 2)


def test_all_crashed_is_refused(both, study):
    for said in both(study.with_columns(pl.lit("crashed").alias("status"))):
        said.refused("no run finished")


def test_tables_that_are_no_sweep_are_refused(both):
    n = 20_000
    scattered = pl.DataFrame({"params": [1e8] * n, "tokens": [1e9 + k for k in range(n)], "loss": [3.0] * n})
    for said in both(scattered.with_columns((1e-3 * 1.001**row).alias("lr").cast(pl.Float64)).filter(c("lr") < 1e20)):
        said.refused("different learning rates")
    for said in both(scattered.with_columns(c("tokens").alias("params"), pl.lit(1e-3).alias("lr"))):
        said.refused("20000 different N")


FILES = {
    "empty.csv": b"",
    "empty.parquet": b"",
    "empty.jsonl": b"",
    "header.csv": b"params,tokens,lr,loss\n",
    "blank.csv": b"\n\n\n",
    "blank.jsonl": b"\n\n\n",
    "magic.parquet": b"PAR1",
    "garbage.csv": bytes(range(256)) * 9,
    "garbage.parquet": bytes(range(256)) * 9,
    "garbage.jsonl": bytes(range(256)) * 9,
    "nul.csv": b"params,tokens,lr,loss\n1,2,\x00,3\n",
    "latin.csv": "params,tokens,lr,loss,café\n1,2,3,4,é\n".encode("latin1"),
    "semicolons.csv": b"params;tokens;lr;loss\n1;2;3;4\n",
    "ragged.csv": b"params,tokens,lr,loss\n1,2,3\n1,2,3,4,5\n",
    "array.jsonl": b'[{"params":1,"tokens":1,"lr":1,"loss":3}]',
    "halved.jsonl": b'{"params":1,"tokens":1,"lr":1,"loss":3}\n{"params":1,"tok',
    "mixed.jsonl": b'{"params":1,"tokens":1,"lr":1,"loss":3}\n{"params":"a","tokens":[1],"lr":{},"loss":null}\n',
    "deep.jsonl": b"[" * 100_000,
    "numbers.jsonl": b"1\n2\n",
    "noending": b"params,tokens,lr,loss\n1,2,3,4\n",
    "sheet.xlsx": b"PK",
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_hold_no_runs(cli, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(FILES[name])
    cli("fit", path, "--json").refused()


def test_a_truncated_parquet_file(cli, runs, tmp_path):
    whole = runs.read_bytes()
    for keep in (4, 100, len(whole) // 2, len(whole) - 1):
        path = tmp_path / "runs.parquet"
        path.write_bytes(whole[:keep])
        cli("fit", path, "--json").refused("runs.parquet")
    folder = tmp_path / "study"
    (folder / "runs").mkdir(parents=True)
    cli("fit", folder).refused("study folder")
    (folder / "runs" / "a.parquet").write_bytes(whole[:500])
    cli("fit", folder).refused("a.parquet")


@pytest.mark.parametrize(
    "path", ["nothere.csv", "a\x00b.csv", "a" * 5000 + ".csv", "[red]x[/red].csv", "a\nb.csv", "/dev/null"]
)
def test_paths_that_lead_nowhere(cli, path):
    cli("fit", path, "--json").refused()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(cli, runs, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_bytes(b"params\n1\n")
    path.chmod(0)
    cli("fit", path).refused("permission")


EXPRESSIONS = [
    "1=1; DROP TABLE x", "read_csv('/etc/passwd')", "SELECT * FROM read_csv('/etc/passwd')", "lr > (SELECT 1)",
    "x" * 100_000, "lr > 1" + " AND lr > 0" * 20_000, "(" * 5000 + "lr>0" + ")" * 5000, "NOT " * 3000 + "true",
    "lr > \x00", "'unbalanced", '"unb', "lr", "'text'", "NULL", "max(lr)", "lr > 'a'", "nothere = 1", "optimizer > 3",
    "optimizer ~ '('", "lr IN ()", "lr IN (1, 'a')", "🦊 = 1", "optimizer = '🦊'", "", "  ", "*", "false", "lr AS foo",
    "strptime(optimizer,'%Q') > 0", "coalesce()", "greatest()", "abs()", "[red]lr[/red]", "lr::foo", "lr = ANY(1)",
    "cast(lr as decimal(99,99)) > 0", "CASE WHEN lr>0 THEN 'a' END", "optimizer IN (SELECT optimizer FROM self)",
]  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda text: text[:30])
def test_hostile_expressions(cli, runs, capfd, expression):
    cli("fit", runs, "--where", expression, "--json").refused()
    if len(expression) < 12:
        cli("predict", runs, *TARGET, "--fit-where", expression, "--json").refused()
    assert capfd.readouterr().err == "", "something wrote past Python"


@pytest.mark.parametrize(
    "option",
    [
        ("--map", "="), ("--map", "params"), ("--map", "foo=N"), ("--map", "params=nothere"),
        ("--map", "lr=loss,lr=lr"), ("--map", "loss=optimizer"), ("--map", "params=N\x00"), ("--map", "a=b" * 5000),
        ("--group", "nothere"), ("--group", "🦊"),
        ("--group", "[red]"), ("--level", "0.4"), ("--level", "1"), ("--level", "nan"),
        ("--level", "x"), ("--replicates", "0"), ("--replicates", "-5"), ("--replicates", "9" * 30), ("--seed", "-1"),
        ("--seed", "9" * 30), ("--seed", "1.5"), ("--degree", "1"), ("--degree", "9" * 30), ("--window", "0"),
        ("--window", "nan"), ("--window", "wide"), ("--eff-lr", "x"), ("--nonsense",), ("surplus",),
    ],
    ids=lambda option: " ".join(option)[:30],
)  # fmt: skip
def test_options_out_of_range(cli, runs, option):
    cli("fit", runs, "--json", *option).refused()


@pytest.mark.parametrize(
    "option", [("--level", "0.5"), ("--level", "0.999"), ("--seed", str(2**63 - 1)), ("--group", "")]
)
def test_options_at_the_edge_of_their_range(cli, runs, option):
    assert cli("fit", runs, *FAST, *option).json["optima"]


@pytest.mark.parametrize(
    ("params", "tokens"),
    [("0", "80B"), ("-5M", "80B"), ("202M", "5X"), ("202M", "0"), ("nan", "1B"), ("inf", "1B"), ("1e400", "1B"),
     ("202M", "1e308"), ("", "1B"), ("2^9999", "1B"), ("[red]", "1B"), ("202M", "1:2"), ("202M", "80B" * 3000)],
)  # fmt: skip
def test_targets_that_are_no_scale(cli, runs, params, tokens):
    cli("predict", runs, "--params", params, "--tokens", tokens, "--json").refused()


@pytest.mark.parametrize(
    ("params", "tokens"),
    [("202M", "1"), ("22.3M", "7B"), ("63.5M", "10B"), ("123.6M", "1000T"), ("1e24", "1e24"), ("1e-20", "1e-20")],
)
def test_targets_below_inside_and_far_beyond_the_range(cli, runs, params, tokens):
    found = cli("predict", runs, "--params", params, "--tokens", tokens, *FAST).json
    assert (found["recommended"] is None) != (found["abstained"] is None)


@pytest.mark.parametrize(
    "budgets", ["0.6:0.05", "0:0.5", "-1:1", "a:b", "", ":", "1e-9:1", "0.05:3", "nan:nan", "0.1:0.2:0.3"]
)
def test_budgets_that_are_no_range(cli, runs, budgets):
    cli("evaluate", runs, "--params", "123.6M", "--tokens", "20B:40B", "--budgets", budgets, "--json").refused()


@pytest.mark.parametrize(
    ("params", "tokens"),
    [("123.6M", "40B:20B"), ("123.6M", "1B:2B"), ("999M", "20B:40B"), ("0", "5B"), ("123.6M", "x:y")],
)
def test_test_cells_that_were_not_measured(cli, runs, params, tokens):
    cli("evaluate", runs, "--params", params, "--tokens", tokens, "--json").refused()


@pytest.mark.parametrize(
    "option",
    [
        ("--widths", ""), ("--widths", "a"), ("--widths", "0"), ("--widths", "1e300"), ("--tokens", ""),
        ("--tokens", "5B:1B:1B"), ("--tokens", "1B:1e20:1"), ("--tokens", "1k"), ("--tokens", "5B:6B"),
        ("--tokens", "5B:6B:1e-300"), ("--tokens", "1e300"), ("--lrs", ""), ("--lrs", "nan"), ("--lrs", "2000"),
        ("--lrs", "-5:-10:1"), ("--seeds", "0"), ("--seeds", "9" * 30), ("--seed", "-1"), ("--missing", "1"),
        ("--missing", "nan"), ("--branch-noise", "-1"), ("--branch-noise", "1e308"), ("--bend", "nan"),
        ("--noise-growth", "1e5"), ("--diverges-above", "nan"), ("--shape", "x"), ("--asymmetry", "500"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_worlds_that_cannot_be(cli, tmp_path, option):
    grid = ("--widths", "256", "--tokens", "5B:20B:5B", "--lrs", "-12:-8:1")
    cli("simulate", "--out", tmp_path / "runs.csv", *grid, *option).refused()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("out", ["runs.txt", "nothere/runs.csv", ".", "a" * 300 + ".csv", "runs.csv/"])
def test_places_that_cannot_be_written(cli, tmp_path, out):
    (tmp_path / "runs.csv").mkdir()
    cli("simulate", "--out", f"{tmp_path}/{out}", "--widths", "256", "--tokens", "5B").refused("--out")
    assert [p.name for p in tmp_path.iterdir()] == ["runs.csv"]
