"""Sentences of the results page on what differs from the paper, with numbers from the tables."""

from __future__ import annotations

import textwrap

import numpy as np

from elites.study.groups import Group
from elites.study.markup import p_text
from elites.study.significance import LEVEL, Test, corrected
from elites.words import listed
from results_data import (
    ANTS,
    FULL,
    TITLES,
    Data,
    against,
    check_sentence,
    evaluated,
    existing_pair,
    published,
    reevaluated,
    seed_columns,
)

PASSIVE = ("dcg_me_no_actor_evaluation", "dcg_me_sampled_negatives")
"""Ablations that have a distilled policy but no rollouts of it."""
WALKING = 0.2
"""Coverage that standing, falling and stumbling do not reach on the tasks of the ants."""
BEHIND, WIDTH = 12.5, 3.5
"""Edges of the walls of AntTrap-Omni, in m: the largest x, and the largest distance from the axis.

They are in `src/elites/tasks/models/anttrap.json`, with a radius of 0.5 m.
"""


def differences(data: Data) -> str:
    """Return what differs from the paper, as a list."""
    texts = [
        _archive_error(),
        _scores(data),
        _late_walking(data),
        _policy_error(data),
        _hexapod(data),
        _hexapod_policy(data),
        _walker(data),
        _plain_search(data),
        _ablations(data),
    ]
    return "\n".join(_item(text) for text in texts)


def _item(text: str) -> str:
    """Return an entry of a list, in lines of at most 110 columns."""
    return textwrap.fill(f"- {text}", 110, subsequent_indent="  ", break_on_hyphens=False)


def _found(data: Data, task: str, name: str = "dcg_me") -> Group:
    """Return the results of an algorithm on a task up to a million evaluations."""
    group = data.full.find(task, name)
    if group is None or not group.curves:
        raise ValueError(f"there are no recorded tables of {name} on {task}")
    return group


def _archive_error() -> str:
    """Return how the descriptor error of our archives compares with the paper's."""
    *metres, share = (f"{published(task, 2):.3g}" for task in TITLES)
    return (
        f"**The archive's descriptor error is 0.** The paper's is {listed(metres)} m on the "
        f"omnidirectional tasks, and {share} on Walker-Uni. On the same device, our engine repeats "
        "an episode to the bit, and one program computes all rollouts of a run. The paper names "
        "the simulator as its reason."
    )


def _scores(data: Data) -> str:
    """Return how our QD-scores after a million evaluations compare with the paper's."""
    texts, most = [], 0.0
    for task in ANTS:
        scores = _found(data, task).curves["qd_score"][-1]
        off = 100 * (np.median(scores) / published(task, 0) - 1)
        most = max(most, abs(off))
        texts.append(
            f"{abs(off):.0f} % {'above' if off > 0 else 'below'} the paper's on {TITLES[task]} "
            f"(seeds from {scores.min() / 1e5:.1f}e5 to {scores.max() / 1e5:.1f}e5)"
        )
    return (
        f"**Medians on the ants are within {most:.0f} % of the paper's**, with seeds that differ "
        f"more than that. After a million evaluations, the median of `dcg_me` is "
        f"{' and '.join(texts)}. The paper's table gives no spread."
    )


def _late_walking(data: Data) -> str:
    """Return when the seeds of `dcg_me` begin to walk on the tasks of the ants."""
    begun: list[float] = []
    never: list[float] = []  # evaluations of the runs of the other seeds
    for task in ANTS:
        own = [r for r in data.recordings if r.task == task and r.label == "dcg_me"]
        for recording, column in seed_columns(own).values():
            rows = np.flatnonzero(recording.metrics["coverage"][:, column] > WALKING)
            if len(rows):
                begun.append(recording.metrics["evaluations"][rows[0], 0])
            else:
                never.append(recording.last)
    text = (
        "**Seeds of the ants differ in when they begin to walk.** Coverage stays at about 15 % "
        f"until then. It passes {100 * WALKING:.0f} % after {min(begun):,.0f} to "
        f"{max(begun):,.0f} evaluations."
    )
    if never:
        text += (
            f" In {len(never)} of {len(begun) + len(never)} seeds it never did. Their runs ended "
            f"after at most {max(never):,.0f} evaluations."
        )
    return text


def _policy_error(data: Data) -> str:
    """Return how the error of the distilled policy on AntTrap-Omni compares with the paper's."""
    task = "anttrap_omni"
    group = _found(data, task)
    errors = reevaluated(data, group, "actor_descriptor_error", FULL)
    early = reevaluated(data, group, "actor_descriptor_error", 256_256)
    return (
        f"**The distilled policy of AntTrap-Omni misses by {np.median(errors):.1f} m**, the "
        f"paper's by {published(task, 3):.1f} m. After 256,000 evaluations it was "
        f"{np.median(early):.1f} m. Our {len(errors)} seeds range from {errors.min():.1f} to "
        f"{errors.max():.1f} m, so the difference may be chance."
    )


def _hexapod(data: Data) -> str:
    """Return how `dcg_me` compares with `pga_me` on Hexapod-Omni, and what the paper says."""
    score, cover = (
        existing_pair(data.planned, "hexapod_omni", "dcg_me", "pga_me", metric)
        for metric in ("qd_score", "coverage")
    )
    scores = " and ".join(f"{np.median(v) / 1e5:.2f}" for v in (score.first, score.second))
    covers = " and ".join(f"{100 * np.median(v):.0f}" for v in (cover.first, cover.second))
    return (
        "**`dcg_me` is not shown to be above `pga_me` on Hexapod-Omni** after "
        f"{score.evaluations:,.0f} evaluations: {scores}e5, p = {p_text(score.comparison.p)} "
        f"before the correction. Neither is its coverage, {covers} %, p = "
        f"{p_text(cover.comparison.p)}. The paper's results call the QD-scores similar and the "
        "coverage significantly better, and its conclusion speaks of a significant margin on "
        "omnidirectional tasks."
    )


def _hexapod_policy(data: Data) -> str:
    """Return how the distilled policy on Hexapod-Omni compares with the paper's."""
    group = _found(data, "hexapod_omni")
    scores = reevaluated(data, group, "actor_qd_score", FULL) / 1e5
    return (
        f"**The distilled policy of Hexapod-Omni has {np.median(scores):.2f}e5**, the paper's "
        f"{published('hexapod_omni', 1) / 1e5:.2f}e5. Our {len(scores)} seeds range from "
        f"{scores.min():.2f} to {scores.max():.2f}e5. Both are small parts of the archive's score."
    )


def _plain_search(data: Data) -> str:
    """Return how `me` compares with `pga_me` on the ants."""
    texts = []
    for task in ANTS:
        one = existing_pair(data.planned, task, "me", "pga_me", "qd_score")
        first, second = (np.median(v) / 1e5 for v in (one.first, one.second))
        check_sentence(bool(first > second), "me has a higher median than pga_me on both ants")
        texts.append(
            f"{first:.2f} and {second:.2f}e5 on {TITLES[task]} after {one.evaluations:,.0f} "
            f"evaluations, p = {p_text(one.comparison.p)}"
        )
    return (
        "**`me` has a higher median than `pga_me` on both ants**: "
        f"{', and '.join(texts)}, without a correction. The paper says that PGA-MAP-Elites "
        "struggles in such tasks, where standing still is the fittest behaviour."
    )


def _ablations(data: Data) -> str:
    """Return how the ablations on Ant-Omni compare with `dcg_me` and with the paper's."""
    task = "ant_omni"
    tests = {
        name: existing_pair(data.planned, task, "dcg_me", name, "qd_score")
        for name in (*PASSIVE, "dcg_me_unconditioned_actor")
    }
    errors = [
        np.median(reevaluated(data, _found(data, task, name), "actor_descriptor_error", 256_256))
        for name in ("dcg_me", *PASSIVE)
    ]
    scores = {name: np.median(one.second) / 1e5 for name, one in tests.items()}
    full = np.median(next(iter(tests.values())).first) / 1e5
    family = corrected(against(data.planned, "dcg_me", "qd_score"), data.intended)
    entries = {test.comparison.second: e for test, e in family if test.task == task}
    significant = [str(number) for number, name in enumerate(tests, start=1)
                   if entries[name].bonferroni < LEVEL]  # fmt: skip
    check_sentence(
        len(significant) < len(tests), "not all ablations differ significantly from dcg_me"
    )
    verdict = {
        0: "no difference is significant",
        1: f"only the difference to ablation {listed(significant)} is significant",
    }.get(len(significant), f"only those to ablations {listed(significant)} are significant")
    check_sentence(full > max(scores.values()), "each ablation has a lower median than dcg_me")
    check_sentence(errors[0] < min(errors[1:]), "the policy of dcg_me misses by the least")
    one, two, three = (f"{scores[name]:.2f}e5 (p = {p_text(tests[name].comparison.p)})"
                       for name in tests)  # fmt: skip
    return (
        "**On Ant-Omni, each ablation has a lower median than `dcg_me`, as in the paper**, but "
        f"after 256,000 evaluations and the correction for all comparisons {verdict}. `dcg_me` "
        f"has {full:.2f}e5, ablation 1 {one}, ablation 2 {two} and ablation 3 {three}, where p is "
        "before the correction. The distilled policy shows what rollouts of the actor are for: "
        f"it misses by {errors[0]:.1f} m with them, by {errors[2]:.1f} m with negative samples in "
        f"their place, and by {errors[1]:.1f} m with neither."
    )


def _walker(data: Data) -> str:
    """Return how `dcg_me` on Walker-Uni differs from the paper, and what was checked."""
    task, found = "walker_uni", _found(data, "walker_uni")
    other = "dcg_me, lengthscale 0.1"
    pga, lengthscale = (
        existing_pair(data.planned, task, "dcg_me", name, "qd_score") for name in ("pga_me", other)
    )
    fittest = existing_pair(data.planned, task, "dcg_me", "pga_me", "max_fitness")
    best = [np.median(values) for values in (fittest.second, fittest.first)]
    policies = [
        np.median(reevaluated(data, group, "actor_qd_score", FULL)) / 1e5
        for group in (found, _found(data, task, other))
    ]
    at = evaluated(data, found, FULL)
    score = np.median(found.curves["qd_score"][-1]) / 1e5
    return (
        "**On Walker-Uni our QD-score is above the paper's, and `pga_me` has a higher median.** "
        f"`dcg_me` has {score:.1f}e5 after {found.curves['evaluations'][-1, 0]:,.0f} evaluations, "
        f"the paper {published(task, 0) / 1e5:.1f}e5 after a million. The paper calls `pga_me` "
        f"similar. Our `pga_me` has {_second(pga)}, p = {p_text(pga.comparison.p)} before the "
        f"correction, and a maximum fitness of {best[0]:,.0f} instead of {best[1]:,.0f}, p = "
        f"{p_text(fittest.comparison.p)}. It is ahead in [those seeds](#walker-uni-seeds-"
        "of-pga_me-that-get-ahead) in which its greedy actor still entered the archive late. Our "
        "distilled policy has "
        f"{policies[0]:.1f}e5 after {at:,.0f} evaluations, the paper's "
        f"{published(task, 1) / 1e5:.1f}e5. "
        "[One check](#walker-uni-what-was-checked) may explain a part of the first difference. "
        f"Another lengthscale, 0.1, changed little: `dcg_me` has {_second(lengthscale)}, p = "
        f"{p_text(lengthscale.comparison.p)}, and its policy has {policies[1]:.1f}e5."
    )


def _second(test: Test) -> str:
    """Return the median QD-score of the second algorithm of a test beside that of the first."""
    first, second = (f"{np.median(v) / 1e5:.1f}e5" for v in (test.first, test.second))
    return f"{second} instead of {first} after {test.evaluations:,.0f} evaluations"


def behind_the_trap(data: Data) -> str:
    """Return how many cells behind the trap the archives of AntTrap-Omni fill."""
    texts = []
    for name in ("dcg_me", "progress_me"):
        group = _found(data, "anttrap_omni", name)
        if group.archive is None or group.archive_evaluations is None:
            raise ValueError(f"no archive of {name} on AntTrap-Omni was recorded")
        x, y = group.archive["centroids"].T
        behind = (x > BEHIND) & (np.abs(y) < WIDTH)
        filled = behind & np.isfinite(group.archive["fitness"][0])
        texts.append(
            f"`{name}` fills {filled.sum()} of the {behind.sum()} cells after "
            f"{group.archive_evaluations:,.0f} evaluations"
        )
    text = f"Behind the trap, at x > {BEHIND} m and |y| < {WIDTH} m, {' and '.join(texts)}."
    return textwrap.fill(text, 110, break_on_hyphens=False)
