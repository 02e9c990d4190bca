"""`python -m elites` is the command `elites`."""

import sys

from elites.cli import main

sys.exit(main())
