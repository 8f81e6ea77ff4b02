"""The command line in this process: what it printed, and how it ended."""

import contextlib
import io
import json
import sys
import warnings
from dataclasses import dataclass

import polars as pl
import pytest

from etastar.cli import main
from etastar.simulate import Grid, World, simulate


@dataclass(frozen=True)
class Outcome:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self):
        def refuse(constant):
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(self.stdout, parse_constant=refuse)

    def refused(self, *words):
        """One line and a hint on stderr, nothing on stdout, exit code 2."""
        assert self.code == 2, self
        assert self.stdout == "", self
        lines = self.stderr.splitlines()
        assert len(lines) == 2, self.stderr
        assert lines[0].startswith("error: ")
        assert lines[1].startswith("hint: ")
        assert len(lines[1]) > len("hint: ")
        for word in words:
            assert word in self.stderr, self.stderr
        return self


def run_cli(*arguments):
    """`etastar …`; a warning is a failure, any exception but SystemExit goes through."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["etastar", *map(str, arguments)]
    code = 0
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            warnings.simplefilter("error")
            try:
                main()
            except SystemExit as stop:
                code = stop.code or 0
    finally:
        sys.argv = before
    return Outcome(int(code), out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def cli():
    return run_cli


@pytest.fixture(scope="session")
def study():
    """A small study of three N, four D and eight learning rates."""
    grid = Grid(
        widths=(256, 512, 768),
        tokens=tuple(5e9 * 2**k for k in range(4)),
        log2_lrs=tuple(-14.0 + k for k in range(8)),
    )
    return pl.from_arrow(simulate(World(), grid, seed=1))


@pytest.fixture(scope="session")
def runs(study, tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "runs.parquet"
    study.write_parquet(path)
    return path


@pytest.fixture
def write(tmp_path):
    """Write a frame under a name; the ending picks the format."""

    def write(frame, name="runs.parquet"):
        path = tmp_path / name
        {".csv": frame.write_csv, ".parquet": frame.write_parquet, ".jsonl": frame.write_ndjson}[path.suffix](path)
        return path

    return write
