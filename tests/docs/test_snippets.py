"""Do the commands that the documentation shows run as shown?

Fenced `bash` and `python` blocks marked with `<!-- run -->` on the line before are run in order, one
folder a page; a page with a block marked `<!-- run slow -->` is run by `make docs` and `make test-all` alone.
`etastar` and `python` mean this interpreter and this checkout.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import etastar

ROOT = Path(__file__).parents[2]
GUIDE = "docs/guides/predict.md"
PAGES = (
    GUIDE,
    "README.md",
    "docs/guides/plan.md",
    "docs/guides/own-runs.md",
    "docs/guides/own-trainer.md",
    "docs/guides/report.md",
    "docs/guides/first-study.md",
    "docs/concepts/effective-lr.md",
    "docs/concepts/regimes.md",
    "docs/concepts/theory.md",
    "docs/concepts/inversion.md",
    "docs/guides/cluster.md",
    "docs/reference/api.md",
)
_SLOW = "<!-- run slow -->\n"
_BLOCK = re.compile(r"^<!-- run(?: slow)? -->\n```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]+)")


def marked(page: str) -> list[tuple[str, str]]:
    path = ROOT / page
    return _BLOCK.findall(path.read_text(encoding="utf-8")) if path.exists() else []


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment whose `etastar` and `python` are the tested ones."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in (("etastar", "-c 'from etastar.cli import main; main()'"), ("python", "")):
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    source = str(Path(etastar.__file__).parents[1])
    search = os.pathsep.join([str(programs), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": search, "PYTHONPATH": source, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}


def is_slow(page: str) -> bool:
    return (ROOT / page).exists() and _SLOW in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] if is_slow(page) else []) for page in PAGES if marked(page)]
)
def test_marked_blocks_run(page: str, shell: dict[str, str], tmp_path: Path) -> None:
    for language, code in marked(page):
        command = ["bash", "-euo", "pipefail", "-c", code] if language == "bash" else [sys.executable, "-c", code]
        done = subprocess.run(
            command, cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=900 if is_slow(page) else 120
        )
        assert done.returncode == 0, f"{page}:\n{code}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert done.stdout or ">" in code, f"{page}: nothing was printed by\n{code}"


def test_the_guide_shows_every_verb() -> None:
    code = "\n".join(block for _, block in marked(GUIDE))
    for verb in ("simulate", "fit", "predict", "evaluate"):
        assert f"etastar {verb} " in code


@pytest.mark.parametrize("page", [GUIDE, *(f"docs/concepts/{x}.md" for x in ("estimation", "laws-and-budgets"))])
def test_options_named_exist(page: str) -> None:
    from typer.main import get_command

    from etastar.cli.app import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    verbs = ("fit", "predict", "evaluate", "simulate", "figures")
    known = {option for verb in verbs for parameter in commands[verb].params for option in parameter.opts}
    assert set(_OPTION.findall((ROOT / page).read_text(encoding="utf-8"))) <= known
