"""The hyperparameters of all algorithms, each declared once. The defaults are the paper's.

This module loads without JAX, so that the command line can show and check them quickly.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from elites.core.catalogue import suggestion

Value = int | float | bool | str | Sequence[int] | Sequence[float] | None  # of a hyperparameter
Activation = Literal["relu", "tanh", "elu", "gelu", "silu"]
Average = Literal["mean", "median"]
Form = Literal["cholesky", "eigen", "separable"]  # of a covariance
RankOne = Literal["published", "pyribs"]
Ranker = Literal["imp", "2imp", "obj", "2obj", "rd", "2rd"]
Selection = Literal["filter", "mu"]
Restart = Literal["basic", "no_improvement"]


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters of all algorithms. The defaults are the paper's."""

    cells: int = 1024
    """Cells of the archive (the paper's number of centroids)."""
    grid: tuple[int, ...] = ()
    """Parts of each descriptor axis, for an archive whose cells are a grid. It replaces `cells`.

    The default, (), divides the descriptor space into Voronoi cells.
    """
    centroids_file: str = ""
    """File with the centroids of the cells, .npy or .csv, with a row for each of `cells`."""
    batch_size: int = 256
    """Offspring evaluated in each iteration."""
    policy_hidden: tuple[int, ...] = (128, 128)
    """Hidden layers of a policy."""
    activation: Activation = "relu"
    """Activation between the layers of policies, actors and critics. Outputs are not affected."""
    normalise_observations: bool = False
    """Vary policies and train learners on observations with mean 0 and standard deviation 1.

    Mean and deviation are measured over all episodes of the run so far. Archived policies keep
    their behaviour.
    """
    evaluations_per_policy: int = 1
    """Episodes of each offspring, on a stochastic task. Each counts as an evaluation."""
    average: Average = "mean"
    """Average over the episodes of an offspring that gives its fitness and descriptor."""
    qd_offset: float | None = None
    """Fitness that counts as 0 in QD-scores: each filled cell adds its fitness minus this.

    None uses the task's own, which is 0 if it does not say.
    """
    iso_sigma: float = 0.005
    """GA variation, parameter 1: standard deviation of the noise on every parameter."""
    line_sigma: float = 0.05
    """GA variation, parameter 2: standard deviation along the line to the second parent."""
    actor_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of a conditioned actor. Actors in the archive have a policy's layers."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of a critic."""
    td3_batch_size: int = 100
    """Transitions in a minibatch."""
    critic_steps: int = 3000
    """Critic training steps in each iteration."""
    diversity_critic_steps: int = 300
    """Training steps of QD-PG's diversity critic in an iteration."""
    pg_steps: int = 150
    """Gradient steps of the PG variation."""
    policy_learning_rate: float = 5e-3
    """Learning rate of the PG variation."""
    actor_learning_rate: float = 3e-4
    """Learning rate of actors."""
    critic_learning_rate: float = 3e-4
    """Learning rate of critics."""
    replay_size: int = 1_000_000
    """Capacity of the replay buffer, in transitions."""
    discount: float = 0.99
    """Discount of future rewards in the critic's target. Fitness is undiscounted."""
    actor_delay: int = 2
    """Critic steps for each actor step."""
    target_update_rate: float = 0.005
    """Rate at which target networks follow the critics and the actor."""
    smoothing_noise: float = 0.2
    """Standard deviation of the target policy's smoothing noise."""
    smoothing_clip: float = 0.5
    """Bound on the smoothing noise."""
    es_samples: int = 1000
    """Perturbed copies that MAP-Elites-ES evaluates for one gradient."""
    es_sigma: float = 0.02
    """Standard deviation of the perturbations of MAP-Elites-ES."""
    es_learning_rate: float = 0.01
    """Learning rate of MAP-Elites-ES."""
    es_l2: float = 0.02
    """Weight decay in the gradient of MAP-Elites-ES."""
    es_generations: int = 10
    """Generations after which MAP-Elites-ES draws another parent and switches its mode."""
    es_neighbours: int = 10
    """Nearest neighbours that define novelty in MAP-Elites-ES."""
    es_memory: int = 10_000
    """Past offspring against which MAP-Elites-ES measures novelty."""
    es_repeats: int = 30
    """Evaluations averaged for an offspring of MAP-Elites-ES on a stochastic task."""
    lengthscale: float | None = None
    """Lengthscale of the descriptor similarity, on [-1, 1]. None uses the task's own, or 0.1 in
    `dcrl_me` and `progress_me`."""
    descriptor_noise: float = 0.0004
    """Noise on the descriptors at which the actor is rolled out, as a share of their range."""
    novelty_memory: int = 10_000
    """State descriptors against which QD-PG measures novelty."""
    novelty_threshold: float = 0.1
    """Distance from all stored states beyond which QD-PG stores a state, see `distances`."""
    novelty_neighbours: int = 5
    """Nearest neighbours that define QD-PG's novelty reward."""
    progress_weight: float = 3.0
    """Reward of `progress_me` for progress by half a range, in units of the largest fitness.

    0 rewards the outcome of an episode instead, as `dcrl_me` does.
    """
    progress_final_weight: float = 0.7
    """Value of `progress_weight` at the end of its schedule, when the archive has filled."""
    progress_weight_start: float = 0.2
    """Coverage at which the weight of progress begins to fall."""
    progress_weight_end: float = 0.5
    """Coverage at which the weight of progress has its final value."""
    progress_discount: float | None = None
    """Discount of `progress_me`. None uses 0.95, or 0.99 where it rewards outcomes."""
    progress_batch_size: int = 256
    """Transitions in a minibatch of `progress_me`. Its PG variation uses `td3_batch_size`."""
    progress_learning_rate: float | None = None
    """Learning rate of the actor and the critics of `progress_me`. None uses 1e-3, or 3e-4 where it
    rewards outcomes."""
    progress_final_rate: float = 0.2
    """Factor on this learning rate when the archive has filled."""
    progress_rate_start: float = 0.6
    """Coverage at which the learning rate begins to fall."""
    progress_rate_end: float = 0.95
    """Coverage at which the learning rate has its final value."""
    progress_reached: float = 0.2
    """Share of a minibatch whose target becomes the descriptor that the episode reached."""
    progress_uniform: float = 0.3
    """Share of a minibatch whose target is drawn uniformly from all descriptors."""
    progress_near: float = 0.1
    """Share of a minibatch whose target is drawn near the descriptor after the step."""
    progress_empty: float = 0.5
    """Share of PG and injected offspring that aim at an empty cell."""
    progress_proximity: float = 1.0
    """Median strength that keeps PG offspring of `progress_me` near their parents. 0 is off."""
    cma_emitters: int = 8
    """Emitters of CMA-ME's family. Each makes an equal share of `batch_size`."""
    cma_sigma: float | None = None
    """Initial step size of CMA-ES. None uses 0.5 for vectors and 0.02 for networks. For the
    coefficients of gradients in CMA-MEGA and CMA-MAEGA, it uses 10 and 1."""
    cma_form: Literal["auto"] | Form = "auto"
    """Form of the covariances. auto uses cholesky up to 1,000 dimensions, separable beyond."""
    cma_rank_one: RankOne = "published"
    """Rank-one update of the covariances: the published one, or that of pyribs, for comparisons."""
    cma_ranker: Ranker | None = None
    """What the emitters rank by: imp, obj or rd, and with a 2 before it by the status first.

    imp is the improvement of a cell, obj the fitness, rd a random direction of the descriptor
    space. None uses the algorithm's own.
    """
    cma_selection: Selection | None = None
    """Parents of the next distribution: filter takes those that were added, mu the better half.

    None uses the algorithm's own.
    """
    cma_restart: Restart | None = None
    """When an emitter restarts: basic if CMA-ES has converged, no_improvement also if nothing was
    added. None uses the algorithm's own."""
    cma_ascent: float = 1.0
    """Step of CMA-MEGA's solution points towards the mean of the best branches."""
    cma_copies: int = 100
    """Perturbed copies from which `cma_mega_es` and `cma_mega_td3` estimate gradients, for each
    emitter. `es_sigma` is the standard deviation of the perturbations."""
    cma_critic_batch: int = 65_536
    """Observations over which `cma_mega_td3` averages the critic's gradient."""
    archive_rate: float = 0.01
    """Rate at which the thresholds of CMA-MAE's and CMA-MAEGA's archive rise."""
    archive_minimum: float = 0.0
    """Threshold of an empty cell in CMA-MAE's and CMA-MAEGA's archive."""
    pbt_population: int = 10
    """Agents of `pbt_me`. Each has an actor, critics, hyperparameters and a replay buffer."""
    pbt_offspring: int = 10
    """Offspring that the GA of `pbt_me` makes of elites in each iteration."""
    pbt_episodes: int = 20
    """Episodes with exploration noise of each agent of `pbt_me` in each iteration."""
    pbt_steps: int = 5000
    """Critic training steps of each agent of `pbt_me` in each iteration."""
    pbt_replay_size: int = 100_000
    """Capacity of the replay buffer of each agent of `pbt_me`, in transitions."""
    pbt_copying: float = 0.2
    """Share of the agents of `pbt_me`, the worst, that copy one of the best in each iteration."""
    pbt_best: float = 0.1
    """Share of the agents of `pbt_me`, the best, that are copied. It is at least one agent."""
    pbt_drawing: float = 0.4
    """Share of the agents of `pbt_me`, the next worst, that become elites of the archive."""
    pbt_discount: tuple[float, float] = (0.9, 1.0)
    """Range of the discount of an agent of `pbt_me`."""
    pbt_actor_learning_rate: tuple[float, float] = (3e-5, 3e-3)
    """Range of the actor's learning rate of an agent of `pbt_me`."""
    pbt_critic_learning_rate: tuple[float, float] = (3e-5, 3e-3)
    """Range of the critics' learning rate of an agent of `pbt_me`."""
    pbt_smoothing_noise: tuple[float, float] = (0.0, 1.0)
    """Range of the smoothing noise of an agent of `pbt_me`."""
    pbt_smoothing_clip: tuple[float, float] = (0.0, 1.0)
    """Range of the bound on the smoothing noise of an agent of `pbt_me`."""
    pbt_exploration_noise: tuple[float, float] = (0.0, 0.2)
    """Range of the standard deviation of the noise on the actions of an agent of `pbt_me`."""
    dns_population: int = 1024
    """Solutions in the population of `dns`."""
    dns_neighbours: int = 3
    """Nearest fitter solutions that define the competition fitness of `dns`."""
    distil_steps: int = 1000
    """Gradient steps in an iteration of 'elites distil'."""
    distil_batch_size: int = 1024
    """Observations in a minibatch of 'elites distil'."""
    distil_learning_rate: float = 1e-3
    """Initial learning rate of 'elites distil'."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _check_field(field.name, getattr(self, field.name))
        if self.grid and self.centroids_file:
            raise ValueError("grid and centroids_file exclude each other: give one of them")
        if self.centroids_file:  # so that a run can be continued from another directory
            path = str(Path(self.centroids_file).resolve())
            object.__setattr__(self, "centroids_file", path)
        if self.replay_size < self.td3_batch_size:
            raise ValueError(
                f"replay_size must be at least td3_batch_size, got {self.replay_size} and "
                f"{self.td3_batch_size}"
            )
        if self.pbt_discount[1] > 1:
            raise ValueError(f"pbt_discount must be between 0 and 1, got {self.pbt_discount!r}")

    @property
    def cell_count(self) -> int:
        """Number of cells of the archive, those of the grid if there is one."""
        return math.prod(self.grid) if self.grid else self.cells

    def rewards_progress(self, final_descriptor: bool) -> bool:
        """Return whether `progress_me` rewards progress, and not only the outcome of an episode.

        `final_descriptor` says whether the descriptor of an episode is that of its last step.
        """
        return bool(self.progress_weight) and final_descriptor

    def progress_numbers(self, final_descriptor: bool) -> dict[str, float]:
        """Return the discount and the learning rate of `progress_me`, keyed by hyperparameter.

        Those that are None get the numbers for what is rewarded, see `rewards_progress`.
        """
        discount, rate = (0.95, 1e-3) if self.rewards_progress(final_descriptor) else (0.99, 3e-4)
        usual = {"progress_discount": discount, "progress_learning_rate": rate}
        return {n: v if getattr(self, n) is None else getattr(self, n) for n, v in usual.items()}

    @classmethod
    def of(cls, values: Mapping[str, Value], arguments: Sequence[str] = ()) -> Hyperparameters:
        """Return the paper's hyperparameters with some values replaced.

        Lists are accepted in place of tuples. An unknown name raises a ValueError. `arguments` are
        names that its message may suggest besides hyperparameters: other arguments of the calling
        function.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                kind = "argument" if arguments else "hyperparameter"
                offered = [*arguments, *known]
                raise ValueError(
                    f"unknown {kind} '{name}'.{suggestion(name, offered)} "
                    f"Known: {', '.join(offered)}"
                )
        given: Any = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
        return cls(**given)


_MOST = 2**31 - 1  # the largest signed 32-bit number
_MOST_CELLS = 1_000_000  # more would take hours to cut, and an archive of terabytes
_RATES = ("discount", "target_update_rate", "progress_discount", "progress_reached",
          "progress_uniform", "progress_near", "progress_empty", "progress_final_rate",
          "progress_weight_start", "progress_weight_end", "progress_rate_start",
          "progress_rate_end", "archive_rate", "pbt_copying", "pbt_best",
          "pbt_drawing")  # fmt: skip
_POSITIVE = ("policy_learning_rate", "actor_learning_rate", "critic_learning_rate",
             "es_learning_rate", "es_sigma", "lengthscale", "distil_learning_rate",
             "progress_learning_rate", "progress_final_weight", "progress_final_rate",
             "cma_sigma", "cma_ascent")  # fmt: skip
_OPTIONAL = ("lengthscale", "progress_discount", "progress_learning_rate", "qd_offset",
             "cma_sigma", "cma_ranker", "cma_selection", "cma_restart")  # fmt: skip
_ANY_SIGN = ("qd_offset", "archive_minimum")
_CHOICES = {
    "activation": get_args(Activation),
    "average": get_args(Average),
    "cma_form": ("auto", *get_args(Form)),
    "cma_rank_one": get_args(RankOne),
    "cma_ranker": get_args(Ranker),
    "cma_selection": get_args(Selection),
    "cma_restart": get_args(Restart),
}


def _check_field(name: str, value: Any) -> None:
    if name in _CHOICES:
        if value not in _CHOICES[name] and not (value is None and name in _OPTIONAL):
            raise ValueError(f"{name} must be one of {', '.join(_CHOICES[name])}, got {value!r}")
    elif isinstance(Hyperparameters.__dataclass_fields__[name].default, bool):
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, got {value!r}")
    elif name == "centroids_file":
        if not isinstance(value, str):
            raise ValueError(f"centroids_file must be the path of a file, got {value!r}")
    elif name == "grid":
        if not isinstance(value, tuple) or any(not _whole(v) or v < 1 for v in value):
            raise ValueError(f"grid must be a tuple of numbers of at least 1, got {value!r}")
        if math.prod(value) > _MOST_CELLS:
            raise ValueError(f"grid must have at most {_MOST_CELLS} cells, got {value!r}")
    elif name.endswith("_hidden"):
        if not isinstance(value, tuple) or any(not _whole(v) or v < 1 for v in value):
            raise ValueError(f"{name} must be a tuple of sizes of at least 1, got {value!r}")
        if name == "critic_hidden" and not value:
            raise ValueError("critic_hidden must have at least one layer, got ()")
    elif isinstance(Hyperparameters.__dataclass_fields__[name].default, tuple):
        if not _is_range(value):
            raise ValueError(
                f"{name} must be a range: two finite numbers of at least 0, the lowest and the "
                f"highest, got {value!r}"
            )
    elif isinstance(Hyperparameters.__dataclass_fields__[name].default, int):
        if not _whole(value) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        most = _MOST_CELLS if name == "cells" else _MOST
        if value > most:
            raise ValueError(f"{name} must be at most {most}, got {value!r}")
    elif value is None and name in _OPTIONAL:
        return
    elif isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    elif name in _RATES and not 0 <= value <= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value!r}")
    elif name in _POSITIVE and value <= 0:
        raise ValueError(f"{name} must be greater than 0, got {value!r}")
    elif value < 0 and name not in _ANY_SIGN:
        raise ValueError(f"{name} must not be negative, got {value!r}")


def _is_range(value: Any) -> bool:
    """Return whether a value is a tuple of two finite numbers with 0 <= lowest <= highest."""
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in value)
    return numbers and 0 <= value[0] <= value[1] < math.inf


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
