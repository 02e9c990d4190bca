"""Commands that list and explain tasks and algorithms."""

from __future__ import annotations

from typing import Annotated

import tyro

from elites import tasks as registry
from elites import trust
from elites.core import catalogue
from elites.words import columns


def tasks(
    task: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="[TASK]", help_behavior_hint="")
    ] = "",
    check: bool = False,
) -> None:
    """List the tasks, or explain one of them.

    Tasks of other simulators are named FAMILY:NAME[,option=value...], such as
    brax:hopper,descriptor=feet_contact.

    Args:
        task: Task to explain. Without it, all tasks are listed.
        check: Check the task instead: run whole episodes of a few random policies, and report
            what is wrong and in which step.
    """
    if check and not task:
        raise ValueError("--check needs a task: elites tasks FILE.py:FUNCTION --check")
    if task:
        registry.check(task)
        trust.record(task)
    from elites.cli import describe

    if check:
        from elites.tasks import checking

        made = registry.make(task)
        print(checking.check_episodes(made))
    elif task:
        print(describe.explain_task(registry.make(task)))
    else:
        print(describe.overview([registry.make(name) for name in registry.names()]))
        print(f"\n{describe.standard_names()}\n\n{describe.simulators()}")


def algorithms(
    algorithm: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="[ALGORITHM]", help_behavior_hint="")
    ] = "",
) -> None:
    """List the algorithms, or explain one of them.

    Args:
        algorithm: Algorithm to explain. Without it, all algorithms are listed.
    """
    if algorithm:
        catalogue.check(algorithm)
        trust.record(algorithm)
        from elites.cli import describe

        print(describe.explain_algorithm(algorithm))
    else:
        print("\n".join(columns([list(row) for row in catalogue.ALGORITHMS.items()])))
