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
    """Run the command of the command line, and return the exit code of the process.

    From its return on, the process ignores signals, so that they do not change the exit code.
    """
    from elites import output
    from elites.runs import signals

    code = None
    try:
        signals.end_on_signals()
        output.prepare()
        from elites import cli

        code = cli.main()
        signals.ignore_signals()  # here, because a signal may still interrupt this call
    except signals.Interrupted as error:  # before or after the command, which catches its own
        if code is None:
            output.complain("interrupted")
            code = error.code
    finally:
        signals.ignore_signals()  # also after an error
        output.finish()
    return code


if __name__ == "__main__":
    sys.exit(main())
