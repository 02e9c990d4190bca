"""The command `elites`, which is also `python -m elites`.

Signals are handled before anything else is imported, because imports take a while. The standard
streams follow.
"""

from __future__ import annotations

import os
import signal
import sys


def _leave(number: int, frame: object) -> None:
    """End this process at once with "interrupted". Handles signals until `main` replaces it."""
    del frame
    try:
        os.write(2, b"elites: interrupted\n")
    finally:  # also if standard error is closed
        os._exit(128 + number)


for _number in (signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(_number) != signal.SIG_IGN:
        signal.signal(_number, _leave)


def main() -> int:
    """Run the command of the command line, and return the exit code of the process."""
    from elites import output
    from elites.runs import signals

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
