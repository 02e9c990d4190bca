"""Make the helpers of the tests of runs importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "runs"))
