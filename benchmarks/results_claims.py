"""Claims of the paper about its algorithms, and what our tests say about them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from elites.study.markup import p_text
from elites.study.plan import BASELINES
from elites.study.significance import LEVEL, REFERENCE, Test, corrected
from results_data import (
    ANTS,
    EARLY,
    FULL,
    MISSING,
    MORE,
    STRONGEST,
    TITLES,
    Data,
    against,
    evaluated,
    levels,
    pair,
    published,
    reevaluated,
    table,
)

ABLATIONS = {
    "dcg_me_no_actor_evaluation": "ablation 1",
    "dcg_me_sampled_negatives": "ablation 2",
    "dcg_me_unconditioned_actor": "ablation 3",
}


IMPROVEMENT = 82
"""Difference of the mean QD-scores of `dcg_me` and `pga_me` in the paper's abstract, in %."""


class Claim(NamedTuple):
    """Claim of the paper about two algorithms."""

    text: str
    first: str
    second: str
    tasks: tuple[str, ...]
    published: str
    metric: str = "qd_score"
    above: bool = True  # whether the first is claimed to be above; otherwise they are similar


OMNI, LAST = (*ANTS, "hexapod_omni"), ("hexapod_omni", "walker_uni")
HEXAPOD, WALKER = ("hexapod_omni",), ("walker_uni",)
_BASELINES = sorted(BASELINES, key=lambda name: name != STRONGEST)
CLAIMS = (
    *(Claim(f"`dcg_me` above `{name}`", "dcg_me", name, ANTS, "p < 1e-6") for name in _BASELINES),
    Claim("`dcg_me` similar to `pga_me`", "dcg_me", "pga_me", HEXAPOD,
          "results: similar; conclusion: above by a significant margin", above=False),
    Claim("`dcg_me` similar to `pga_me`", "dcg_me", "pga_me", WALKER, "similar", above=False),
    *(Claim(f"`dcg_me` above `{name}`, coverage", "dcg_me", name, ANTS, "p < 1e-4",
            metric="coverage") for name in _BASELINES),
    *(Claim(f"`dcg_me` above `{name}`, coverage", "dcg_me", name, LAST,
            "p < 1e-4" if name == "qd_pg" else "p < 1e-3", metric="coverage")
      for name in _BASELINES),
    Claim("`dcg_me` above ablation 1", "dcg_me", "dcg_me_no_actor_evaluation", OMNI, "p < 0.01"),
    Claim("`dcg_me` above ablation 2", "dcg_me", "dcg_me_sampled_negatives", ANTS, "p < 1e-3"),
    Claim("`dcg_me` above ablation 3", "dcg_me", "dcg_me_unconditioned_actor", OMNI, "p < 0.05"),
    *(Claim(f"`dcg_me` similar to {title}", "dcg_me", name, tasks, "similar", above=False)
      for (name, title), tasks in zip(ABLATIONS.items(), (WALKER, LAST, WALKER), strict=True)),
    Claim("ablation 2 above ablation 1", "dcg_me_sampled_negatives", "dcg_me_no_actor_evaluation",
          ANTS, "p < 1e-5"),
)  # fmt: skip


def claims(data: Data) -> str:
    """Return a table of the paper's claims with our tests, and one of the claims not tested yet."""
    header = ["claim, by QD-score unless stated", "task", "paper", "evaluations", "seeds",
              "above in", "p, Bonferroni", "our finding",
              f"after {EARLY:,}, exploratory"]  # fmt: skip
    rows: list[list[str]] = []
    untested: dict[str, list[str]] = {}  # titles of tasks, keyed by claim
    for claim in CLAIMS:
        for task in claim.tasks:
            found = _tested(data, claim, task)[::-1]  # the largest budget first
            if not found:
                untested.setdefault(claim.text, []).append(TITLES[task])
            main = [one for one in found if not one.exploratory] or found
            before = "; ".join(_before(one) for one in found if one not in main)
            for one in main:  # the first row has the tests after fewer evaluations
                rows.append([claim.text, TITLES[task], claim.published, *_said(claim, one), before])
                before = ""
    tables = [table(header, rows)]
    if untested:
        left = [[text, ", ".join(names)] for text, names in untested.items()]
        tables.append(table(["not tested yet", "tasks"], left))
    return "\n\n".join(tables)


def _before(tested: _Tested) -> str:
    """Return the p-value, effect and seeds of a test after fewer evaluations, as text."""
    one = tested.test
    when = "" if one.evaluations == EARLY else f"after {one.evaluations:,.0f}: "
    return (
        f"{when}p = {p_text(tested.p)}, {100 * one.comparison.superiority:.0f} %, "
        f"{len(one.first)} and {len(one.second)} seeds"
    )


class _Tested(NamedTuple):
    """Comparison of the two algorithms of a claim."""

    test: Test
    p: float  # after Bonferroni's correction, if there is one
    least: float  # smallest p that these seeds could have given, with the same correction
    corrected: bool = True

    @property
    def exploratory(self) -> bool:
        """Whether its number of evaluations was chosen when the runs had ended."""
        return (self.test.evaluations or 0) <= EARLY


def _tested(data: Data, claim: Claim, task: str) -> list[_Tested]:
    """Return the comparisons of a claim on a task.

    There is one for each budget that gives more evaluations. Pairs without `dcg_me` are not
    corrected.
    """
    found = []
    for results, most in levels(data):
        one = pair(results, task, claim.first, claim.second, claim.metric)
        if one is None or (one.evaluations or 0) <= most * MORE:
            continue
        if claim.first != REFERENCE:
            found.append(_Tested(one, one.comparison.p, one.comparison.smallest, corrected=False))
            continue
        family = corrected(against(results, REFERENCE, claim.metric, most), data.intended)
        entry = next(
            entry
            for test, entry in family
            if test.task == task and test.comparison.second == claim.second
        )
        found.append(_Tested(one, entry.bonferroni, entry.least))
    return found


def _said(claim: Claim, tested: _Tested) -> list[str]:
    """Return the cells of a test: evaluations, seeds, effect, corrected p-value and verdict."""
    one = tested.test
    above = one.comparison.superiority > 0.5
    significant = tested.p < LEVEL
    verdict = _verdict(claim, above, significant, tested.least < LEVEL)
    if not tested.corrected:
        verdict = f"{verdict}, uncorrected"
    if significant and tested.exploratory:
        verdict = f"{verdict.strip('*')}, exploratory"
    return [
        f"{one.evaluations or 0:,.0f}",
        f"{len(one.first)} and {len(one.second)}",
        f"{100 * one.comparison.superiority:.0f} %",
        p_text(tested.p) if tested.corrected else f"{p_text(tested.p)}, uncorrected",
        verdict,
    ]


def _verdict(claim: Claim, above: bool, significant: bool, possible: bool = True) -> str:
    """Return in words what a test says about a claim.

    `above` is whether the first algorithm is higher, and `possible` whether any result of so few
    seeds would have been significant.
    """
    if not possible:
        return "too few seeds"
    if not significant:
        return "open" if claim.above else "no difference found"
    if claim.above:
        return "**holds**" if above else "**does not hold**"
    return "**above**" if above else "**below**"


def relative(data: Data) -> str:
    """Return how far the median QD-score of `dcg_me` is above that of `pga_me`, and the mean."""
    header = ["task", "evaluations", "seeds", "`dcg_me`, 1e5", "`pga_me`, 1e5", "difference"]
    rows, found = [], []
    for task, title in TITLES.items():
        one = pair(data.planned, task, REFERENCE, STRONGEST, "qd_score")
        if one is None:
            continue
        first, second = np.median(one.first), np.median(one.second)
        found.append(100 * (first / second - 1))
        rows.append(
            [title, f"{one.evaluations:,.0f}", f"{len(one.first)} and {len(one.second)}",
             f"{first / 1e5:.2f}", f"{second / 1e5:.2f}", f"{found[-1]:+.0f} %"]
        )  # fmt: skip
    rows.append(["mean", "", "", "", "", f"{np.mean(found):+.0f} %"])
    rows.append(["paper, mean", f"{FULL:,}", "20 and 20", "", "", f"+{IMPROVEMENT} %"])
    return table(header, rows)


# ----------------------------------------------------------------------------- the distilled policy

LOSSES = {  # of QD-score from the archive to the distilled policy, in %, as the paper's text has it
    "ant_omni": ("less", 3),
    "anttrap_omni": ("less", 3),
    "hexapod_omni": ("more", 40),
    "walker_uni": ("more", 40),
}


def losses(data: Data) -> str:
    """Return a table of how much QD-score the distilled policy loses, in the paper and here."""
    header = ["task", "paper's text", "paper's medians", "ours, median (range)", "evaluations",
              "seeds that agree with the text"]  # fmt: skip
    rows = []
    for task, (word, limit) in LOSSES.items():
        archive, policy = (published(task, index) for index in (0, 1))
        theirs = f"{100 * (1 - policy / archive):.1f} %"
        rows.append([TITLES[task], f"{word} than {limit} %", theirs, *_loss(data, task)])
    return table(header, rows)


def _loss(data: Data, task: str) -> list[str]:
    """Return the cells of our loss on a task: median and range, evaluations, and seeds."""
    group = data.full.find(task, REFERENCE)
    if group is None or not group.curves:
        return [MISSING, "", ""]
    policy, archive = (
        reevaluated(data, group, name, FULL) for name in ("actor_qd_score", "qd_score")
    )
    if not len(policy):
        return [MISSING, "", ""]
    loss = 100 * (1 - policy / archive)
    word, limit = LOSSES[task]
    agree = (loss < limit) if word == "less" else (loss > limit)
    return [
        f"{np.median(loss):.3g} % ({loss.min():.3g} to {loss.max():.3g})",
        f"{evaluated(data, group, FULL):,.0f}",
        f"{agree.sum()} of {len(loss)}",
    ]
