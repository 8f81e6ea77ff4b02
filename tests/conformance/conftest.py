"""Real executors for one suite; what cannot start here is skipped aloud."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "launch"))

from studies import LocalSlurm, Make, two_widths, undisturbed

from etastar.launch.choose import make_executor
from etastar.launch.executor import Executor
from etastar.launch.study import Study

# every worker of these imports torch anew, and a cluster has to start: not for the quick tests
STARTED = [pytest.param(name, marks=pytest.mark.cluster) for name in ("local", "ray", "slurm")]


@pytest.fixture(scope="module")
def _ray() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="the ray suite did not run: ray is not installed")
    ray.init(num_cpus=2, num_gpus=0, include_dashboard=False, logging_level="error", log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def _slurm() -> Iterator[None]:
    pytest.importorskip("submitit", reason="the slurm suite did not run: submitit is not installed")
    slurm = LocalSlurm(Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp")))
    if not slurm.start():
        pytest.skip(f"the slurm suite did not run: {slurm.reason}")
    yield
    slurm.stop()


@pytest.fixture(params=["inline", *STARTED])
def make(request: pytest.FixtureRequest) -> Make:
    """Executors of one kind, for any study."""
    if request.param in ("ray", "slurm"):
        request.getfixturevalue(f"_{request.param}")
    options = {"local": {"workers": "2"}, "slurm": {"timeout_min": "10"}}.get(request.param, {})

    def build(study: Study) -> Executor:
        executor = make_executor(request.param, study.path, study.stacks, options)
        assert executor.name == request.param
        return executor

    return build


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2 widths × 6 learning rates × 4 horizons, trained without any launcher."""
    return undisturbed(two_widths(), tmp_path_factory.mktemp("reference") / "study")
