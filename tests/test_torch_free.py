"""The analysis half, command line included, starts without torch."""

import subprocess
import sys


def test_the_command_line_does_not_import_torch():
    code = "import sys; import etastar.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command_line_waits_for_no_plotting_library():
    code = "import sys; import etastar.cli; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
