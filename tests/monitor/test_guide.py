"""Does the guide's code run, and does it name every metric?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import etastar
from etastar.monitor import names
from etastar.train.statistics import STATISTICS

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "own-trainer.md"
_BLOCK = re.compile(r"^<!-- run -->\n```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_marked_blocks_run(tmp_path: Path) -> None:
    blocks = _BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(blocks) == 3
    (tmp_path / "etastar").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -c "from etastar.cli import main; main()" "$@"\n'
    )
    (tmp_path / "etastar").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(etastar.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
    }
    for language, code in blocks:
        command = ["bash", "-euo", "pipefail", "-c", code] if language == "bash" else [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert done.stdout


def test_every_metric_is_named() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for metric in (*names.STEP_METRICS, *names.RUN_METRICS):
        assert f"`{metric}`" in text
    for statistic in STATISTICS:
        assert f"`{statistic}`" in text
