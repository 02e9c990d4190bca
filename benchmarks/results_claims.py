"""Claims of the paper about its algorithms, and what our tests say about them."""

from __future__ import annotations

from typing import NamedTuple

from elites.study.markup import p_text
from results_data import MISSING, MORE, TITLES, Data, Pair, against, corrected, levels, pair, table

ABLATIONS = {
    "dcg_me_no_actor_evaluation": "ablation 1",
    "dcg_me_sampled_negatives": "ablation 2",
    "dcg_me_unconditioned_actor": "ablation 3",
}


class Claim(NamedTuple):
    """Claim of the paper about two algorithms."""

    text: str
    first: str
    second: str
    tasks: tuple[str, ...]
    published: str
    metric: str = "qd_score"
    above: bool = True  # whether the first is claimed to be above; otherwise they are similar


ANTS, OMNI = ("ant_omni", "anttrap_omni"), ("ant_omni", "anttrap_omni", "hexapod_omni")
WALKER, LAST = ("walker_uni",), ("hexapod_omni", "walker_uni")
_BASELINES = ("pga_me", "qd_pg", "me", "me_es")
CLAIMS = (
    *(Claim(f"`dcg_me` above `{name}`", "dcg_me", name, ANTS, "p < 1e-6") for name in _BASELINES),
    Claim("`dcg_me` above `pga_me`, its conclusion", "dcg_me", "pga_me", ("hexapod_omni",),
          "a significant margin"),
    Claim("`dcg_me` as `pga_me`, its results", "dcg_me", "pga_me", LAST, "similar", above=False),
    *(Claim(f"`dcg_me` above `{name}`, coverage", "dcg_me", name, tuple(TITLES),
            "p < 1e-4" if name == "qd_pg" else "p < 1e-4 on the ants, p < 1e-3 on the others",
            metric="coverage") for name in _BASELINES),
    Claim("`dcg_me` above ablation 1", "dcg_me", "dcg_me_no_actor_evaluation", OMNI, "p < 0.01"),
    Claim("`dcg_me` above ablation 2", "dcg_me", "dcg_me_sampled_negatives", ANTS, "p < 1e-3"),
    Claim("`dcg_me` above ablation 3", "dcg_me", "dcg_me_unconditioned_actor", OMNI, "p < 0.05"),
    *(Claim(f"`dcg_me` as {title}", "dcg_me", name, tasks, "similar", above=False)
      for (name, title), tasks in zip(ABLATIONS.items(), (WALKER, LAST, WALKER), strict=True)),
    Claim("ablation 2 above ablation 1", "dcg_me_sampled_negatives", "dcg_me_no_actor_evaluation",
          ANTS, "p < 1e-5"),
)  # fmt: skip


def claims(data: Data) -> str:
    """Return a table of what the paper claims, and what our tests say about it."""
    header = ["claim, QD-score if not said otherwise", "paper", *TITLES.values()]
    rows = []
    for claim in CLAIMS:
        cells = [_verdict(data, claim, task) if task in claim.tasks else "" for task in TITLES]
        rows.append([claim.text, claim.published, *cells])
    nowhere = Claim("", "pga_me", "dcg_me", tuple(TITLES), "")
    cells = [_nowhere(data, nowhere, task) for task in TITLES]
    rows.append(["`pga_me` above `dcg_me`", "nowhere", *cells])
    return table(header, rows)


def _tested(data: Data, claim: Claim, task: str) -> list[tuple[Pair, float]]:
    """Return the comparisons of a claim on a task with corrected p-values, by Bonferroni.

    There is one for each budget that gives more evaluations. Pairs without `dcg_me` are not
    corrected.
    """
    found: list[tuple[Pair, float]] = []
    for results, most in levels(data):
        one = pair(results, task, claim.first, claim.second, claim.metric)
        if one is None or one.evaluations <= most * MORE:
            continue
        p = one.comparison.p
        if "dcg_me" in (claim.first, claim.second):
            other = claim.second if claim.first == "dcg_me" else claim.first
            family = corrected(against(results, "dcg_me", claim.metric, most), data.families)
            p = next(
                entry.bonferroni
                for other_pair, entry in family
                if other_pair.task == task and other_pair.comparison.second == other
            )
        found.append((one, p))
    return found


def _verdict(data: Data, claim: Claim, task: str) -> str:
    """Return what our tests say about a claim on a task, in a few words for each budget."""
    return "; ".join(_said(claim, *test) for test in _tested(data, claim, task)) or MISSING


def _said(claim: Claim, one: Pair, p: float) -> str:
    """Return what one test says about a claim, with its corrected p-value and its seeds."""
    if p >= 0.05:
        word = "open" if claim.above else "no difference found"
    else:
        holds = claim.above and one.comparison.superiority > 0.5
        word = "**holds**" if holds else "**does not hold**"
    return f"{word} after {_evidence(one, p)}"


def _evidence(one: Pair, p: float) -> str:
    """Return the evaluations, p-value, effect and seeds of a test as text."""
    above = f"above in {100 * one.comparison.superiority:.0f} %"
    seeds = f"{len(one.first)} and {len(one.second)} seeds"
    return f"{one.evaluations / 1000:,.0f}k (p = {p_text(p)}, {above}, {seeds})"


def _nowhere(data: Data, claim: Claim, task: str) -> str:
    """Return whether the first algorithm of a claim is significantly above the second."""
    texts = []
    for one, p in _tested(data, claim, task):
        found = p < 0.05 and one.comparison.superiority > 0.5
        texts.append(f"{'**above**' if found else 'not found'} after {_evidence(one, p)}")
    return "; ".join(texts) or MISSING
