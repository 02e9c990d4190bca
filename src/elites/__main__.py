"""The command `elites`, which is also `python -m elites`.

Signals and standard streams are taken care of first, because the imports of a command take a while.
"""

from __future__ import annotations

import sys

from elites import output
from elites.runs import signals


def main() -> int:
    """Run the command of the command line, and return the exit code of the process."""
    signals.end_on_signals()
    output.prepare()
    from elites import cli

    try:
        code = cli.main()
    finally:
        output.finish()
    signals.exit_on_signals(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
