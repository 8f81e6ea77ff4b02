"""The command line in this process, as the tests of `cli` have it."""

import pytest

from cli.conftest import run_cli


@pytest.fixture(scope="session")
def cli():
    return run_cli
