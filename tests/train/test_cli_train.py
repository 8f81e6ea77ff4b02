"""Does `etastar train` show, write and refuse what it should?"""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import typer
from toys import toy
from typer.testing import CliRunner

from etastar.cli.train import _LiveReporter, train_command
from etastar.store import read_runs, read_trajectories
from etastar.train.progress import Cell, PlainReporter, Progress, eta_text
from etastar.train.spec_file import build_spec

app = typer.Typer()
app.command("train")(train_command)


def _call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_trains_a_specification_with_plain_lines_and_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(toy(horizons=[12], lrs=[2**-8, 2.0**60]).to_yaml())
    code, output = _call(str(file), "--out", str(tmp_path / "study"))
    assert code == 0
    assert "evaluated after 12 steps" in output
    assert "diverged" in output
    assert "\x1b" not in output
    assert read_runs(tmp_path / "study").num_rows == 2
    assert read_trajectories(tmp_path / "study").num_rows > 0
    code, output = _call(str(file), "--out", str(tmp_path / "study"), "--horizons", "12,18")
    assert code == 0
    assert "1 of 2 horizons are in the store already" in output
    assert read_runs(tmp_path / "study").num_rows == 4


def test_show_prints_a_whole_specification() -> None:
    code, output = _call("--preset", "rope", "--width", "128", "--optimizer", "adamh", "--show")
    assert code == 0
    import yaml

    spec = build_spec(yaml.safe_load(output))
    assert (spec.model.width, spec.optimizer.kind, spec.model.positions) == (128, "adamh", "rope")
    code, output = _call("--preset", "gpt2", "--width", "768", "--lrs", "2^-9,2^-8", "--seed", "3", "--show")
    spec = build_spec(yaml.safe_load(output))
    assert (spec.lrs, spec.seed, spec.model.layers) == ((2**-9, 2**-8), 3, 12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either a specification or --preset"),
        (("--preset", "llama"), "--preset: 'llama' is not known"),
        (("--preset", "rope", "--width", "100"), "model.width: 100 is not a multiple"),
        (("--preset", "rope", "--lrs", "0"), "lrs: 0 is not above zero"),
        (("--preset", "rope", "--lrs", ","), "lrs: the list is empty"),
        (("--preset", "rope", "--horizons", "10"), "horizons: 10 steps are fewer"),
        (("--preset", "rope", "--horizons", "2000.5"), "horizons.0: '2000.5'"),
        (("--preset", "rope", "--optimizer", "sgd"), "--optimizer: 'sgd' is not known"),
        (("absent.yaml",), "absent.yaml: cannot be read"),
        (("--preset", "rope", "--corpus", "absent"), "absent"),
        (("--preset", "rope", "--device", "warp"), "execution.device: 'warp'"),
    ],
)
def test_bad_calls_end_with_2_and_a_hint(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    code, output = _call(*arguments, "--out", str(tmp_path / "study"))
    assert code == 2
    assert message in output
    assert "hint: " in output
    assert "Traceback" not in output
    assert not (tmp_path / "study" / "runs").exists()


PROGRESS = Progress(
    segment="trunk",
    step=10,
    stop=20,
    done=10,
    total=40,
    tokens_per_second=1234.0,
    seconds_left=3720.0,
    lrs=(2**-9, 2**-7),
    losses=(3.25, 9.0),
    alive=(True, False),
)


def test_plain_lines_carry_what_matters() -> None:
    stream = io.StringIO()
    reporter = PlainReporter(stream=stream)
    reporter.progress(PROGRESS)
    reporter.progress(PROGRESS)  # within the interval: silent
    assert stream.getvalue() == ("trunk step 10/20 (25%, 1h02m left) 1,234 tokens/s | 2^-9:3.250 2^-7:diverged\n")
    assert eta_text(PROGRESS) == "1h02m"


def test_live_display_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    drawn = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    reporter = _LiveReporter(drawn)
    with reporter:
        reporter.message("hello [bold]")
        reporter.progress(PROGRESS)
        reporter.evaluated(20, [Cell(2**-9, 3.0, 1e-3, "finished"), Cell(2**-7, 9.0, None, "diverged")])
    text = drawn.file.getvalue()  # type: ignore[attr-defined]
    for part in ("hello [bold]", "1.234k tokens/s", "1h02m left", "diverged", "1.000e-03", "lowest"):
        assert part in text
