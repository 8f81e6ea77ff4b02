"""`etastar figures` writes whole files, says what is missing, and refuses bad input in one line."""

from __future__ import annotations

import json

import pytest


def test_files_are_written_and_gaps_are_named(cli, runs, tmp_path):
    out = tmp_path / "deep" / "figures"
    done = cli(
        "figures", runs, "--out", out, "--format", "png,pdf,json", "--only", "optimal-lr,adamh,table-1", "--json"
    )
    by_name = {one["name"]: one for one in done.json["figures"]}
    assert list(by_name) == ["optimal-lr", "table-1", "adamh"]  # the paper's order
    assert by_name["optimal-lr"]["files"] == ["optimal-lr.json", "optimal-lr.png", "optimal-lr.pdf"]
    assert by_name["adamh"]["missing"].startswith("no run was trained by AdamH; ")
    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["optimal-lr.json", "optimal-lr.pdf", "optimal-lr.png", *(f"table-1.{x}" for x in ("csv", "json", "md", "tex"))]
    )
    assert (out / "optimal-lr.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "optimal-lr.pdf").read_bytes().startswith(b"%PDF")
    assert json.loads((out / "optimal-lr.json").read_text())["quantity"] == "lr"


def test_the_table_names_figure_and_file(cli, runs, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "220")
    said = cli("figures", runs, "--out", tmp_path, "--format", "svg", "--only", "extrapolation,correlation").stdout
    assert "extrapolation.svg" in said
    assert "missing: no trajectories of these runs; the runs at N = 123.6M" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "optimal-lr,fig17"], "'fig17' is no figure"),
        (["--only", ","], "nothing is no figure"),
        (["--format", "jpg"], "'jpg' is not a known format"),
        (["--format", ""], "nothing is not a known format"),
        (["--trajectories", "nowhere.parquet"], "nowhere.parquet"),
    ],
)
def test_bad_words_are_refused(arguments, message, cli, runs, tmp_path):
    out = tmp_path / "figures"
    cli("figures", runs, "--out", out, *arguments).refused(message)
    assert not out.exists()


def test_a_file_is_no_folder(cli, runs, tmp_path):
    (tmp_path / "taken").write_text("")
    cli("figures", runs, "--out", tmp_path / "taken", "--only", "optimal-lr").refused("cannot be a folder")


def test_a_place_that_cannot_be_written_leaves_nothing_half(cli, runs, tmp_path):
    (tmp_path / "optimal-lr.png").mkdir()  # a folder where the file should go
    cli("figures", runs, "--out", tmp_path, "--format", "png", "--only", "optimal-lr").refused("'optimal-lr.png'")
    assert [path.name for path in tmp_path.iterdir()] == ["optimal-lr.png"]


def test_a_simulated_study_folder_has_all_that_the_paper_trained(cli, tmp_path):
    folder = tmp_path / "study"
    grid = ("--widths", "256,512", "--tokens", "5B,20B", "--lrs", "-14:-8:2")
    assert cli("simulate", "--out", folder, *grid).code == 0
    assert {path.name for path in (folder / "runs").iterdir()} == {"adam.parquet", "adamh.parquet", "adamw.parquet"}
    found = cli("figures", folder, "--out", tmp_path / "out", "--format", "json", "--json").json["figures"]
    missing = {one["name"] for one in found if one["missing"]}
    assert missing <= {"extrapolation", "r2-ood", "ecr-r2", "table-1"}  # two horizons are too few to judge strategies
