"""Studies written by hand: the files of finished runs, with numbers that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from elites.runs import directory, evaluation
from elites.study.plan import Plan
from elites.study.study import Item, Study, open_study

EVALUATIONS, ITERATIONS = 32, 9  # of an iteration; of the smoke preset's budget
FACTS = {
    "task": "point_omni",
    "iterations": ITERATIONS,
    "descriptor": "final position",
    "episode_length": 10,
    "observation_size": 3,
    "action_size": 2,
    "deterministic": True,
    "actor_conditioned": False,
    "origins": ["initial", "ga"],
    "initial_evaluations": EVALUATIONS,
    "evaluations_per_iteration": EVALUATIONS,
    "descriptor_low": [-1.0, -1.0],
    "descriptor_high": [1.0, 1.0],
}

Score = Callable[[Item, int, int], float]
"""QD-score of an item's seed at an iteration."""


def study(path: Path, plan: Plan, score: Score, items: Sequence[Item] = ()) -> Study:
    """Write a finished study whose QD-scores are given by a function.

    `items` are its runs, one for each task and algorithm if not given.
    """
    path.mkdir()
    made = open_study(path, plan)
    if items:
        made.write_items(items)
    for item in made.items():
        _run(made, item, score)
    return made


def _run(made: Study, item: Item, score: Score) -> None:
    run = made.run(item)
    run.evaluation.mkdir(parents=True)
    directory.write_json(run / directory.CONFIG, made.config(item).to_json())
    directory.write_json(run / directory.FACTS, {**FACTS, "algorithm": item.algorithm})
    lines = ["iteration,seed,qd_score,coverage,max_fitness,evaluations,env_steps,seconds"]
    for i in range(1, ITERATIONS + 1):
        spent = EVALUATIONS * (i + 1)
        for seed in item.seed_numbers:
            value = score(item, seed, i)
            lines.append(f"{i},{seed},{value},0.5,{value},{spent},{10 * spent},{i}.0")
    directory.write_text(run / directory.METRICS, "\n".join(lines) + "\n")
    names = [name for name, _ in evaluation.COLUMNS]
    lines = [",".join(["seed", "iteration", *names])]
    for seed in item.seed_numbers:
        values = dict.fromkeys(names, "nan")
        final = str(score(item, seed, ITERATIONS))
        values |= {"qd_score": final, "coverage": "0.5", "max_fitness": final}
        lines.append(",".join([str(seed), str(ITERATIONS), *values.values()]))
    directory.write_text(run.evaluation / "metrics.csv", "\n".join(lines) + "\n")
    directory.write_text(run / directory.SUMMARY, "written by hand\n")
