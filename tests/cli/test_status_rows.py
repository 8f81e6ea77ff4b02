"""What does `status` say of a folder that no plan made?"""

from cli.conftest import run_cli
from etastar.simulate import Grid, World, simulate
from etastar.store import write_runs


def test_a_folder_without_a_plan(tmp_path):
    world = World(diverges_above=2.0)
    runs = simulate(world, Grid(widths=(256, 512), tokens=(5e9, 1e10)))
    write_runs(tmp_path / "study", runs, "part")
    said = run_cli("status", str(tmp_path / "study"))
    assert said.code == 0
    assert "40 runs, no plan" in said.stdout
    found = run_cli("status", str(tmp_path / "study"), "--json").json
    assert found["plan"] is None
    assert [(row["runs"], row["lrs"], row["tokens"]) for row in found["rows"]] == [(20, 10, [5e9, 1e10])] * 2
    diverged = runs["status"].to_pylist().count("diverged")
    assert sum(row["diverged"] for row in found["rows"]) == diverged > 0


def test_a_folder_without_anything(tmp_path):
    run_cli("status", str(tmp_path)).refused("no plan.yaml")
