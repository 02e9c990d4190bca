"""Write the hours of the paper's experiment on an NVIDIA H200 into docs/performance.md.

    python docs/site/hours.py             # write the table
    python docs/site/hours.py --check     # exit with 1 if the table is not current

The figures are those that `elites study paper --dry-run` prints on such a machine, for the paper's
five algorithms. Measurements of the user's own do not count.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import jax

from elites.study import expectation, loads, seconds
from elites.study.devices import Machine
from elites.study.expectation import Expectation, Expected
from elites.study.packing import Wish
from elites.study.plan import BASELINES, BUILT_IN
from elites.study.seconds import OVERHEAD, Clock

PAGE = Path(__file__).parents[1] / "performance.md"
BEGIN, END = "<!-- hours.py writes from here -->", "<!-- to here -->"
MACHINE = Machine("NVIDIA H200", ("0",), 143771 * 2**20, mps=True)
RELEASED = {"dcg_me": 0.618, "pga_me": 0.479}
"""Seconds of an iteration of one seed on ant_omni, with the code released with the paper."""


def expected() -> Expectation:
    """Return what is expected of the paper's four tasks and five algorithms, 20 seeds each."""
    plan = dataclasses.replace(BUILT_IN["paper"], algorithms=("dcg_me", *BASELINES))
    found = loads.of(plan)
    items = expectation.runs_of(plan, found, MACHINE, Wish())
    clock = Clock(MACHINE.name, seconds.read(seconds.TABLE))
    return expectation.expect(items, found, MACHINE, clock, Wish())


def released_hours(run: Expected) -> str:
    """Return the hours of the released code for the seeds of a run, one after another."""
    taken = RELEASED.get(run.item.algorithm) if run.item.task == "ant_omni" else None
    return f"{run.item.seeds * run.iterations * taken / 3600:.1f}" if taken else ""


def section() -> str:
    """Return the table of hours as Markdown, with the totals."""
    study = expected()
    lines = [
        "| task | algorithm | at once | seconds of an iteration | basis | hours | released code |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in study.runs:
        assert run.estimate is not None, run.item.name
        lines.append(
            f"| `{run.item.task}` | `{run.item.algorithm}` | {run.together} "
            f"| {run.estimate.seconds:.3f} | {run.estimate.basis} | {run.hours:.2f} "
            f"| {released_hours(run)} |"
        )
    share = 100 * study.measured_hours / study.hours
    total = (
        f"Together they take **{study.hours:.1f} hours**. Runs with {share:.0f} % of that time "
        'were measured as they are. The others are\nestimated, see the column "basis". Hours '
        f"include {100 * (OVERHEAD - 1):.0f} % for metrics, checkpoints and re-evaluations, but "
        "no\ncompiling."
    )
    return "\n".join([*lines, "", total])


def page(text: str) -> str:
    """Return the text of the page with the current table in it."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{section()}\n\n{END}{after}"


def main() -> int:
    """Write or check the page, and return the exit code."""
    jax.config.update("jax_platforms", "cpu")
    old = PAGE.read_text("utf-8")
    new = page(old)
    if "--check" in sys.argv[1:]:
        return int(old != new)
    PAGE.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
