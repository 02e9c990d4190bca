"""Pages are looked at of runs that the helpers of their tests make."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "runs"))
