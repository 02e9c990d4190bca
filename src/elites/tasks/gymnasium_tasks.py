"""Tasks of Gymnasium, `gymnasium:NAME`, whose episodes run in worker processes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from elites import names, references
from elites.core.networks import MLP
from elites.core.types import ActionNoise, Evaluation, Transitions
from elites.names import Name
from elites.tasks import bounds, geoms
from elites.tasks.scenes import Scene
from elites.tasks.task import Task
from elites.tasks.workers import pool, robots
from elites.tasks.workers.block import Block, Sizes
from elites.tasks.workers.descriptors import Choice
from elites.tasks.workers.environment import Spec
from elites.tasks.workers.episode import Network, Outcome
from elites.tasks.workers.pool import Plan, Row
from elites.tasks.workers.robots import RobotFacts


@dataclasses.dataclass(frozen=True)
class Workers:
    """Runs episodes of a Gymnasium environment in worker processes, see `elites.tasks.workers`."""

    name: str
    """Name of the task, for messages."""
    spec: Spec
    observation_size: int
    action_size: int
    episode_length: int
    low: tuple[float, ...]
    high: tuple[float, ...]

    def run(
        self,
        policies: Sequence[tuple[MLP, np.ndarray]],
        seeds: np.ndarray,
        record: bool,
        noise: ActionNoise | None = None,
    ) -> Evaluation:
        """Run n episodes and return their results as NumPy arrays. See `Outside.run`."""
        plan = Plan(self.episode_length, record, self._sizes(policies))
        return self._run(policies, seeds, plan, noise).evaluation

    def record(
        self, policies: Sequence[tuple[MLP, np.ndarray]], seeds: np.ndarray
    ) -> tuple[Evaluation, np.ndarray | None]:
        """Run n episodes and return their results and the robot's poses. See `Outside.record`."""
        robot = self._robot()
        sizes = self._sizes(policies)._replace(bodies=robot.bodies if robot else 0)
        results = self._run(policies, seeds, Plan(self.episode_length, True, sizes))
        return results.evaluation, results.poses if robot else None

    def scene(self) -> Scene | None:
        """Return the scene of the environment's robot, or None if it has no MuJoCo model.

        Its function for poses cannot be called, because the states are in the workers.
        """
        return self._drawn

    @functools.cached_property
    def _drawn(self) -> Scene | None:
        robot = self._robot()
        if robot is None:
            return None
        # A worker reports the model at the start of an episode, and this one has no steps.
        network = MLP((self.observation_size, self.action_size))
        policies = [(network, np.zeros(network.size, np.float32))]
        sizes = self._sizes(policies)._replace(model=robot.model_size)
        saved = self._run(policies, np.zeros(1, np.uint32), Plan(0, True, sizes)).model
        return geoms.scene(robots.load(saved), robot.dt, _not_in_jax)

    def _run(
        self,
        policies: Sequence[tuple[MLP, np.ndarray]],
        seeds: np.ndarray,
        plan: Plan,
        noise: ActionNoise | None = None,
    ) -> _Results:
        """Run n episodes as planned and return what the workers have reported."""
        rows = [
            Row(Network(network.sizes, network.activation), parameters, int(seed))
            for (network, parameters), seed in zip(policies, seeds, strict=True)
        ]
        if noise is not None:
            each = zip(rows, noise.deviations, noise.seeds, strict=True)
            rows = [row._replace(noise=(float(scale), int(seed))) for row, scale, seed in each]
        results = _Results(self, len(rows), plan)
        with pool.shared(self.name, self.spec) as workers:
            workers.run(rows, plan, results.commit)
        return results

    def _sizes(self, policies: Sequence[tuple[MLP, np.ndarray]]) -> Sizes:
        """Return the sizes of the memory for episodes of these policies, without a robot."""
        largest = max((network.size for network, _ in policies), default=0)
        return Sizes(
            largest, self.episode_length, self.observation_size, self.action_size, len(self.low)
        )

    def _robot(self) -> RobotFacts | None:
        """Return the sizes of the robot, or None if there is nothing to draw."""
        robot = described(self.name, self.spec)["robot"]
        return RobotFacts(*robot) if robot else None


class _Results:
    """Arrays for the results of n episodes. A row is filled in when its episode ends."""

    def __init__(self, workers: Workers, n: int, plan: Plan):
        self._low, self._high = workers.low, workers.high
        size, steps = len(workers.low), plan.length if plan.record else 0
        self.poses = np.zeros((steps + 1, n, plan.sizes.bodies, 7), np.float32)
        self.model = b""

        def each(width: tuple[int, ...] = (), dtype: type = np.float32) -> Any:
            return np.zeros((steps, n, *width), dtype)

        seen, acted = (workers.observation_size,), (workers.action_size,)
        transitions = Transitions(
            each(seen), each(acted), each(), each(seen), each(dtype=bool), each(dtype=bool),
            each((size,)), each(dtype=bool),
        )  # fmt: skip
        fitness: Any = np.zeros(n, np.float32)
        descriptors: Any = np.zeros((n, size), np.float32)
        valid: Any = np.zeros(n, bool)
        counts: Any = np.zeros(n, np.int32)
        self.evaluation = Evaluation(fitness, descriptors, valid, counts, transitions)

    def commit(self, row: int, outcome: Outcome, block: Block) -> None:
        """Enter the results of a row. The steps of an invalid episode stay zero."""
        found = self.evaluation
        self.model = block.model.tobytes()
        if block.poses.size:
            frames = slice(outcome.steps + 1)
            self.poses[frames, row] = block.poses[frames]
        found.fitness[row], found.valid[row], found.steps[row] = outcome[:3]
        found.descriptors[row] = np.clip(outcome.descriptor, self._low, self._high)
        if not outcome.valid or not len(found.transitions.mask):
            return
        steps = slice(outcome.steps)
        *arrays, place, mask = found.transitions
        for array, recorded in zip(arrays, block.steps[:-1], strict=True):
            array[steps, row] = recorded[steps]
        # Clipped like the descriptor of an episode, as in `rollout`.
        place[steps, row] = np.clip(block.steps.state_descriptor[steps], self._low, self._high)
        mask[steps, row] = True


# ---------------------------------------------------------------------------------------- the task


def make(name: Name, options: dict[str, Any]) -> Task:
    """Return a task of Gymnasium. A worker process is started to learn about the environment."""
    choice = Choice(
        options.get("descriptor", "feet_contact"),
        options.get("feet", ()),
        options.get("joints", ()),
        options.get("over", "mean"),
    )
    title = names.title(str(name))
    if "over" in options and not references.is_reference(choice.descriptor):
        raise ValueError(f"task '{title}': over= is for a descriptor of your own, FILE.py:FUNCTION")
    files = [str(Path(path).resolve()) for path in names.paths(str(name))]
    sources = tuple((path, references.source(path)) for path in files)
    spec = Spec(name.environment, choice, options.get("episode_length"), sources)
    return build(title, spec, options)


def build(name: str, spec: Spec, options: Mapping[str, Any]) -> Task:
    """Return the task called `name` whose episodes run in the environment of `spec`.

    The options `low`, `high` and `random_start` are read here.
    """
    facts = described(name, spec)
    descriptor = facts["descriptor"]
    low = [-bounds.UNKNOWN if bound is None else bound for bound in descriptor["low"]]
    high = [bounds.UNKNOWN if bound is None else bound for bound in descriptor["high"]]
    low, high = bounds.given(name, low, high, dict(options))
    sizes = facts["observation_size"], facts["action_size"], facts["episode_length"]
    workers = Workers(name, spec, *sizes, low, high)
    return Task(
        name,
        *sizes,
        descriptor_low=low,
        descriptor_high=high,
        reset=_not_in_jax,
        step=_not_in_jax,
        episode_descriptor=descriptor["over"],
        deterministic=not options.get("random_start", False),
        summary=f"Gymnasium's {spec.environment}, in worker processes",
        reward_text="as the environment defines it",
        termination_text="as the environment defines it, or at the time limit",
        descriptor_text=descriptor["text"],
        descriptor_names=tuple(descriptor["names"]),
        descriptor_units=tuple(descriptor["units"]),
        scene=workers.scene,
        outside=workers,
    )


def described(name: str, spec: Spec) -> dict[str, Any]:
    """Return what a worker reports of an environment: its sizes and its descriptor.

    Raises a ValueError if the environment cannot be trained on. `name` is that of the task.
    """
    with pool.shared(name, spec) as workers:
        return workers.facts()


def _not_in_jax(*_: object) -> NoReturn:
    raise ValueError("this task is evaluated by worker processes: it has no step inside of JAX")
