"""Algorithm names. Importable without JAX, so the command line can reject typos quickly."""

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
}
"""Title of each algorithm. `algorithms.py` builds them."""


def check(name: str) -> str:
    """Return the name of a published algorithm, or FILE.py:FUNCTION for one of the user's own.

    Raises a ValueError that lists the known names.
    """
    if references.is_reference(name):
        return references.check("algorithm", name)
    if name not in ALGORITHMS:
        raise ValueError(f"{_unknown(name)}; or FILE.py:FUNCTION for one of your own")
    return name


def check_published(name: str) -> str:
    """Return the name of a published algorithm, or raise a ValueError that lists them."""
    if name not in ALGORITHMS:
        raise ValueError(_unknown(name))
    return name


def _unknown(name: str) -> str:
    return (
        f"unknown algorithm '{name}'.{suggestion(name, ALGORITHMS)} Known: {', '.join(ALGORITHMS)}"
    )


def suggestion(name: str, known: Iterable[str]) -> str:
    """Suggest the closest known name."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""
