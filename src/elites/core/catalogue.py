"""Algorithm names, and suggestions for names that are unknown.

Importable without JAX, so the command line can reject typos quickly.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from elites import references

ALGORITHMS: dict[str, str] = {
    "me": "CVT-MAP-Elites",
    "me_es": "MAP-Elites-ES",
    "pga_me": "PGA-MAP-Elites",
    "qd_pg": "QD-PG",
    "dcg_me": "DCG-MAP-Elites",
    "dcg_me_no_actor_evaluation": "its ablation 1: no rollouts of the actor",
    "dcg_me_sampled_negatives": "its ablation 2: negative samples instead of rollouts",
    "dcg_me_unconditioned_actor": "its ablation 3: an actor that sees no descriptor",
    "dcrl_me": "DCRL-MAP-Elites, the successor by the same authors",
    "progress_me": "DCRL-MAP-Elites with a reward for progress: the best archives",
    "cma_me": "CMA-ME with improvement emitters",
    "cma_me_random": "CMA-ME with random direction emitters",
    "cma_me_optimising": "CMA-ME with optimising emitters",
    "cma_mae": "CMA-MAE: CMA-ME with an annealed archive",
    "cma_mega": "CMA-MEGA: exact gradients of fitness and descriptor",
    "cma_maega": "CMA-MAEGA: CMA-MEGA with an annealed archive",
    "cma_mega_es": "CMA-MEGA with gradients estimated by an evolution strategy",
    "cma_mega_td3": "CMA-MEGA with the fitness gradient of a TD3 critic",
    "pbt_me": "PBT-MAP-Elites: a population of TD3 agents with hyperparameters of their own",
    "dns": "dominated novelty search: a population that competes without cells",
}
"""Title of each algorithm. `algorithms.py` builds them."""

WITH_EXACT_GRADIENTS = ("cma_mega", "cma_maega")
"""Algorithms that need exact gradients, which only functions of plain vectors in JAX have."""

DISTIL = "distil"
"""Name of the algorithm of 'elites distil', which needs the archive of a run."""


def check(name: str) -> str:
    """Return the name of an algorithm unchanged, or raise a ValueError that lists the known names.

    A valid name is that of a published algorithm, or a reference FILE.py:FUNCTION to one of the
    user's own.
    """
    if references.is_reference(name):
        return references.check("algorithm", name)
    if name not in ALGORITHMS:
        raise ValueError(f"{_unknown(name)}; or FILE.py:FUNCTION for one of your own")
    return name


_SYNONYMS = {  # words of other libraries; an empty word is left out
    "algo": "algorithm",
    "budget": "evaluations",
    "buffer": "replay",
    "centroids": "cells",
    "elites": "me",
    "env": "task",
    "evals": "evaluations",
    "gamma": "discount",
    "generations": "evaluations",
    "iterations": "evaluations",
    "iters": "evaluations",
    "lr": "learning_rate",
    "map": "",
    "max": "",
    "n": "",
    "niches": "cells",
    "num": "",
    "polyak": "target_update_rate",
    "tau": "target_update_rate",
    "total": "",
}
# Names of one algorithm, suggested if no other fits.
_SPECIAL = ("cma_", "distil_", "dns_", "es_", "pbt_", "progress_")
_ITERATIONS = ("generations", "iterations", "iters")


def check_published(name: str) -> str:
    """Return the name of a published algorithm unchanged.

    Raises a ValueError that lists the published algorithms if the name is not one of them.
    """
    if name not in ALGORITHMS:
        raise ValueError(_unknown(name))
    return name


def _unknown(name: str) -> str:
    return (
        f"unknown algorithm '{name}'.{suggestion(name, ALGORITHMS)} Known: {', '.join(ALGORITHMS)}"
    )


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests known names similar to an unknown one, or "" if none is.

    A known name is similar if its spelling is close, if the unknown name is a synonym for it (`lr`,
    `gamma`), or if it contains the unknown name (`batch`). The dashes of command-line options are
    ignored.
    """
    found = [f"'{close}'" for close in _close_names(name, known)]
    if not found:
        return ""
    text = f" Did you mean {' or '.join(filter(None, (', '.join(found[:-1]), found[-1])))}?"
    if found[0].endswith("evaluations'") and set(_plain(name).split("_")) & set(_ITERATIONS):
        text += " One iteration is 'batch_size' evaluations in most algorithms."
    return text


def _close_names(name: str, known: Iterable[str]) -> list[str]:
    names = {_plain(each): each for each in known}
    asked = _plain(name)
    translated = "_".join(filter(None, (_SYNONYMS.get(word, word) for word in asked.split("_"))))
    for wanted in (asked, translated):
        if wanted in names:
            return [names[wanted]]
    for wanted in (asked, translated):
        longer = {plain: each for plain, each in names.items() if f"_{wanted}" in f"_{plain}"}
        common = [each for plain, each in longer.items() if not plain.startswith(_SPECIAL)]
        longer = common or list(longer.values())
        if len(wanted) >= 3 and 1 <= len(longer) <= 4:
            return longer
        if spelling := difflib.get_close_matches(wanted, names, n=1, cutoff=0.75):
            return [names[spelling[0]]]
    return []


def _plain(name: str) -> str:
    return name.lower().lstrip("-").removeprefix("hp.").replace("-", "_")
