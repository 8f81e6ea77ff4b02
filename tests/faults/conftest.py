"""Fork servers for the whole session, and the two sizes of every test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from layer import Servers

BOTH = [pytest.param(False, id="quick"), pytest.param(True, id="full", marks=pytest.mark.faults)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `full` runs twice: a quick share by default, all of it under `make faults`."""
    if "full" in metafunc.fixturenames:
        metafunc.parametrize("full", BOTH)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Fork servers that have torch loaded."""
    found = Servers(int(os.environ.get("ETASTAR_FAULTS_SERVERS", min(os.cpu_count() or 1, 4))))
    yield found
    found.close()


@pytest.fixture(scope="session")
def reference(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny stack, undisturbed."""
    study = tmp_path_factory.mktemp("reference") / "stack"
    with servers.one() as server:
        assert server.ask("one_stack", study=str(study))["code"] == 0
    return study


@pytest.fixture(scope="session")
def swept(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny sweep of two stacks, undisturbed."""
    study = tmp_path_factory.mktemp("reference") / "sweep"
    with servers.one() as server:
        assert server.ask("sweep", study=str(study))["code"] == 0
    return study
