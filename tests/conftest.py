"""Tests import the helpers beside them by name; hypothesis draws the same examples on every machine.

`make test` must say the same of the same commit. `make test-all` draws fresh ones (HYPOTHESIS_PROFILE=default).
"""

import os
import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
settings.register_profile("fixed", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
