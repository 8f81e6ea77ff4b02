"""`etastar report` and `etastar status --serve`, as they are typed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml

from etastar.store import write_runs
from reported import renamed, runs

SOURCE = Path(__file__).parents[2] / "src"
REPORT = ("--params", "63.5M", "--tokens", "80B", "--replicates", "60")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "runs.parquet"
    pq.write_table(runs(), path)
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study's folder with a plan and a specification, as a launch leaves it."""
    folder = tmp_path_factory.mktemp("study") / "planned"
    write_runs(folder, runs(), "a")
    plan = {
        "name": "tiny",
        "spec": {"model": {"layers": 2, "head_dim": 16, "vocab": 64, "context": 16}, "batch_sequences": 4,
                 "schedule": {"warmup_steps": 4, "decay_steps": 6}},
        "stacks": [{"name": "w32", "width": 32, "lrs": [0.001, 0.002], "horizons": [12, 18]}],
        "target": {"params": 63.5e6, "tokens": 80e9},
    }  # fmt: skip
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan), encoding="utf-8")
    (folder / "specs").mkdir()
    record = {"id": "abc", "name": "<b>w32</b>", "corpus": "corpus-identity-7", "spec": {"seed": 3}}
    (folder / "specs" / "abc.yaml").write_text(yaml.safe_dump(record), encoding="utf-8")
    (folder / "specs" / "torn.yaml").write_text(": : {", encoding="utf-8")
    return folder


def embedded(path: Path) -> dict:
    text = path.read_text(encoding="utf-8")
    found = re.search(r'id="etastar-data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_says_what_predict_says(cli, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    done = cli("report", table, *REPORT, "--out", out, "--title", "<i>mine</i>")
    assert done.code == 0, done.stderr
    said = cli("predict", table, *REPORT, "--json").json
    section = embedded(out)["sections"][0]
    assert section["predict"]["recommended"] == said["recommended"]
    assert section["predict"]["predictions"] == said["predictions"]
    assert section["study"] == "<i>mine</i>"
    assert "<i>mine" not in out.read_text(encoding="utf-8")
    assert f"{said['recommended']['lr']:.3g}" in done.stdout


def test_markdown_and_what_was_hidden(cli, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.md"
    hidden = ("--params", "63.5M", "--tokens", "40B", "--replicates", "60", "--fit-where", "tokens <= 20e9")
    done = cli("report", table, *hidden, "--format", "md", "--out", out)
    assert done.code == 0, done.stderr
    text = out.read_text(encoding="utf-8")
    assert text.startswith("# Learning rate ")
    assert "hidden from the laws" in text
    assert "off by" in done.stdout


def test_a_folder_brings_its_plan_and_specifications(cli, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    done = cli("report", study, "--replicates", "60", "--out", out)
    assert done.code == 0, done.stderr
    section = embedded(out)["sections"][0]
    assert section["predict"]["target"]["tokens"] == 80e9
    assert section["plan"]["stacks"]["rows"][0][0] == "w32"
    assert section["provenance"]["values"]["corpus"] == "corpus-identity-7"
    text = out.read_text(encoding="utf-8")
    assert "&lt;b&gt;w32&lt;/b&gt;" in text
    assert "1 more specifications" in text


def test_a_broken_plan_is_said_on_the_page(cli, study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    write_runs(folder, runs(), "a")
    (folder / "plan.yaml").write_text("version: 99\n", encoding="utf-8")
    cli("report", folder, "--replicates", "60", "--out", tmp_path / "x.html").refused("no target")
    done = cli("report", folder, *REPORT, "--out", tmp_path / "x.html")
    assert done.code == 0, done.stderr
    assert "The plan cannot be read" in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_bad_calls(cli, table: Path, tmp_path: Path) -> None:
    cli("report", table, "--out", tmp_path / "x.html").refused("no target", "--params")
    cli("report", table, *REPORT, "--out", tmp_path).refused("is a folder")
    cli("report", table, *REPORT, "--out", table / "report.html").refused("cannot be written")
    cli("report", table, *REPORT, "--format", "pdf").refused("pdf")
    cli("report", tmp_path / "nothing.csv", *REPORT).refused("nothing.csv")
    cli("report", table, *REPORT, "--where", "params > 1e15").refused("keeps no row")
    cli("status", tmp_path / "nothing", "--serve").refused("no folder")
    assert list(tmp_path.iterdir()) == []


def test_hostile_names_through_a_csv(cli, tmp_path: Path) -> None:
    names = ("<script>alert(1)</script>", "</script>", "=1+1", "\u202edlrow", '"quoted", and\nbroken', "y" * 9000)
    frame = pl.from_arrow(renamed(runs(), names))
    assert isinstance(frame, pl.DataFrame)
    frame.write_csv(tmp_path / "runs.csv")
    done = cli("report", tmp_path / "runs.csv", *REPORT, "--out", tmp_path / "r.html")
    assert done.code == 0, done.stderr
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert [row[0] for row in embedded(tmp_path / "r.html")["sections"][0]["runs"]["rows"]][4].startswith(
        '"quoted", and\nbroken'
    )


def test_serving_until_it_is_interrupted(study: Path) -> None:
    """Without the trainer's own records there is no progress, but there is a page."""
    folder = study.parent / "served"
    write_runs(folder, runs(), "a")
    command = [
        sys.executable,
        "-u",
        "-c",
        "from etastar.cli import main; main()",
        "status",
        str(folder),
        "--serve",
        "--port",
        "0",
    ]
    process = subprocess.Popen(
        [*command, "--params", "63.5M", "--tokens", "80B"], env={**os.environ, "PYTHONPATH": str(SOURCE)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        # a shell's background job ignores the interrupt, and so would its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("reading ")
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert address is not None, (line, process.stderr.read() if process.stderr else "")
        with urllib.request.urlopen(f"{address[0]}data.json", timeout=30) as answer:
            assert json.load(answer)["data"]["sections"][0]["predict"]["recommended"] is not None
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in said


def test_a_taken_port_and_an_open_host_are_said(cli, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = study.parent / "served-too"
    write_runs(folder, runs((256,), 1), "a")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        cli("status", folder, "--serve", "--port", taken.getsockname()[1]).refused("cannot serve on", "--port 0")

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("http.server.ThreadingHTTPServer.serve_forever", stop)
    done = cli("status", folder, "--serve", "--port", "0", "--host", "0.0.0.0")
    assert done.code == 130
    assert "no password" in done.stderr
