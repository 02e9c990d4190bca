"""Studies are started as runs are, by the helpers of their tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "runs"))
