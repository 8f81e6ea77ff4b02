"""`etastar figures` writes whole files, says what is missing, and refuses bad input in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from etastar.cli.app import app
from etastar.errors import InputError
from etastar.simulate import Grid, World, simulate


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "runs.parquet"
    grid = Grid(widths=(256, 512), tokens=(5e9, 10e9, 20e9, 40e9), log2_lrs=tuple(range(-15, -6)))
    pq.write_table(simulate(World(), grid), path)
    return path


def figures(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, ["figures", *(str(a) for a in arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_files_are_written_and_gaps_are_named(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "figures"
    said = json.loads(
        figures(runs, "--out", out, "--format", "png,pdf,json", "--only", "optimal-lr,adamh,table-1", "--json")
    )
    by_name = {one["name"]: one for one in said["figures"]}
    assert list(by_name) == ["optimal-lr", "table-1", "adamh"]  # the paper's order
    assert by_name["optimal-lr"]["files"] == ["optimal-lr.json", "optimal-lr.png", "optimal-lr.pdf"]
    assert by_name["adamh"]["missing"].startswith("no run was trained by AdamH; ")
    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["optimal-lr.json", "optimal-lr.pdf", "optimal-lr.png", *(f"table-1.{x}" for x in ("csv", "json", "md", "tex"))]
    )
    assert (out / "optimal-lr.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "optimal-lr.pdf").read_bytes().startswith(b"%PDF")
    assert json.loads((out / "optimal-lr.json").read_text())["quantity"] == "lr"


def test_the_table_names_figure_and_file(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = figures(runs, "--out", tmp_path, "--format", "svg", "--only", "extrapolation,correlation")
    assert "extrapolation.svg" in said
    assert "missing: no trajectories of these runs; the runs at N = 63.5M" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "optimal-lr,fig17"], "'fig17' is no figure"),
        (["--only", ","], "nothing is no figure"),
        (["--format", "jpg"], "'jpg' is not a known format"),
        (["--format", ""], "nothing is not a known format"),
    ],
)
def test_bad_words_are_refused(arguments: list[str], message: str, runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    with pytest.raises(InputError, match=message) as refused:
        CliRunner().invoke(
            app, ["figures", str(runs), "--out", str(out), *arguments], standalone_mode=False, catch_exceptions=False
        )
    assert refused.value.hint
    assert not out.exists()


def test_a_file_is_no_folder(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="cannot be a folder"):
        figures(runs, "--out", tmp_path / "taken", "--only", "optimal-lr")


def test_a_place_that_cannot_be_written_leaves_nothing_half(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "optimal-lr.png").mkdir()  # a folder where the file should go
    with pytest.raises(InputError, match=r"cannot write 'optimal-lr\.png'"):
        figures(runs, "--out", tmp_path, "--format", "png", "--only", "optimal-lr")
    assert [path.name for path in tmp_path.iterdir()] == ["optimal-lr.png"]


def test_a_simulated_study_folder_has_all_that_the_paper_trained(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    arguments = ["simulate", "--out", str(folder), "--widths", "256,512", "--tokens", "5B,20B", "--lrs", "-14:-8:2"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert sorted(path.name for path in (folder / "runs").iterdir()) == [
        "adam.parquet",
        "adamh.parquet",
        "adamw.parquet",
    ]
    said = json.loads(figures(folder, "--out", tmp_path / "out", "--format", "json", "--json"))
    missing = {one["name"] for one in said["figures"] if one["missing"]}
    assert missing <= {"extrapolation", "r2-ood", "ecr-r2", "table-1"}  # two horizons are too few to judge strategies
