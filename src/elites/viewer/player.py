"""Load the policies of a run and record an elite or the actor."""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from elites import references
from elites.rendering import movie
from elites.rendering.helpers import Team
from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs import saved
from elites.runs.checkpoint import WEIGHTS, CheckpointError
from elites.runs.directory import RunDirectory, RunError
from elites.tasks.scenes import scene_of
from elites.training import Elites, Run
from elites.viewer import data, filming, paths
from elites.viewer.data import NotFoundError, to_lists
from elites.viewer.recording import RecordingRequest, actor_request, record

_KEPT_CHUNKS = 64  # of the paths of elites


class Player:
    """Loads the policies of one run, and records rollouts of them for display.

    Calls from several threads run one after the other.
    """

    def __init__(self, run: RunDirectory):
        self.run, self.identity = run, data.identity(run)
        self._reader = saved.Reader(run)
        self.task = self._reader.task
        self._rollout_lock = threading.Lock()
        self._latest_lock = threading.Lock()
        self._latest: dict[str, int] = {}  # number of the latest request of each page
        self._loaded: dict[int, Run] = {}
        self._paths: dict[tuple[int, int, int], dict[str, Any]] = {}
        self._load_newest()

    def _load_newest(self) -> None:
        """Load the policies of the run's newest checkpoint.

        If that checkpoint is damaged, raises an error instead of using an older one.
        """
        newest = next(reversed(checkpoints.complete(self.run.checkpoints)), None)
        if newest is None:
            found, iteration = self._reader.load()  # raises, unless a checkpoint was just written
        else:
            weights = newest / WEIGHTS
            if weights.exists() and not data.is_inside(self.run, weights):
                raise RunError(f"{weights} is a link out of the run")
            try:
                found, iteration = self._reader.load(int(newest.name))
            except (CheckpointError, ValueError):
                if newest.exists():
                    raise
                return self._load_newest()  # training has removed it in the meantime
        self._loaded = {iteration: found}

    @property
    def newest(self) -> int:
        """Newest iteration whose policies are in memory.

        These can be played even after training has removed the checkpoint.
        """
        return max(self._loaded)

    def scene(self) -> dict[str, Any] | None:
        """Return the bodies and shapes of the task's robot, for drawing.

        The key `dt` is the time between two recorded frames in seconds. Returns None for a task
        that has nothing to draw.
        """
        scene = scene_of(self.task)
        return None if scene is None else scene.to_json()

    def compile(self) -> None:
        """Compile the rollouts of elites and actor, so that the first click is answered quickly.

        If the rollouts fail, nothing is raised here. The first click reports the error.
        """
        with self._rollout_lock, contextlib.suppress(RunError):
            result = next(iter(self._loaded.values())).seed(0)
            network = result.archive.algorithm.policy
            descriptor = np.array(self.task.descriptor_low, np.float32)
            zero = RecordingRequest(network, np.zeros(network.size, np.float32), descriptor)
            self._record(zero, actor_request(result, descriptor))

    def _record(self, *requests: RecordingRequest | None) -> list[dict[str, Any] | None]:
        """Return recordings of at most two policies, one for each request. See `record`.

        Raises a RunError if the rollout fails.
        """
        with _explained():
            found = record(self.task, *requests)
            return [None if recording is None else recording.to_json() for recording in found]

    @contextlib.contextmanager
    def _rollout(self, page: str, count: int) -> Iterator[None]:
        """Let one rollout at a time run inside the `with` block.

        Waits for other rollouts first. Raises a RunError if the same page has sent a newer request
        meanwhile. `page` is the id of the page, and `count` the number of its request.
        """
        with self._latest_lock:
            self._latest[page] = max(count, self._latest.pop(page, 0))
            if len(self._latest) > 100:
                least_recent = next(iter(self._latest))
                del self._latest[least_recent]
        with self._rollout_lock:
            with self._latest_lock:
                superseded = self._latest.get(page, count) > count
            if superseded:
                raise RunError("the page has sent a newer request")
            yield

    def watch(
        self, iteration: int, seed: int, cell: int, page: str = "", count: int = 0
    ) -> dict[str, Any]:
        """Return recordings of a cell's elite, and of the actor at that elite's descriptor.

        The keys are `elite` and `actor`. The actor's recording is None if the actor takes no
        descriptor. `page` is the id of the page that asks, and `count` the number of its request.
        """
        with self._rollout(page, count):
            result = self._load(iteration).seed(data.seed_index(self.run, seed))
            stored = result.archive.arrays
            if not 0 <= cell < len(stored.fitness):
                raise NotFoundError(
                    f"there is no cell {cell}. Cells are numbered 0 to {len(stored.fitness) - 1}"
                )
            if not np.isfinite(stored.fitness[cell]):
                kept = directories.kept_cells(self.run)
                why = "is empty: it has no elite" if kept is None else "has no policy in this run"
                raise NotFoundError(f"cell {cell} {why}")
            descriptor = stored.descriptors[cell]
            policy = RecordingRequest(
                result.archive.algorithm.policy, stored.policies[cell], descriptor
            )
            elite, actor = self._record(policy, actor_request(result, descriptor))
            return {"elite": {**(elite or {}), **_stored(result.archive, cell)}, "actor": actor}

    def request(
        self, iteration: int, seed: int, descriptor: list[float], page: str = "", count: int = 0
    ) -> dict[str, Any]:
        """Return recordings of the actor at any descriptor, and of the elite nearest to it.

        The keys are `actor` and `elite`. The elite's recording is None if the archive is empty.
        `page` is the id of the page that asks, and `count` the number of its request.
        """
        requested = self._check_descriptor(descriptor)
        with self._rollout(page, count):
            result = self._load(iteration).seed(data.seed_index(self.run, seed))
            policy = actor_request(result, requested)
            if policy is None:
                raise NotFoundError(
                    f"{result.archive.algorithm.name} trains no policy that takes a descriptor"
                )
            if not len(result.archive):
                return {"elite": None, "actor": self._record(policy)[0]}
            nearest = result.archive.nearest(requested)
            elite, actor = self._record(
                RecordingRequest(nearest.network, nearest.policy, requested), policy
            )
            stored = _stored(result.archive, nearest.cell)
            return {"elite": {**(elite or {}), **stored}, "actor": actor}

    def nearest(
        self, iteration: int, seed: int, descriptor: list[float], page: str = "", count: int = 0
    ) -> dict[str, Any]:
        """Return a recording of the elite nearest to any descriptor, under the key `elite`.

        `page` is the id of the page that asks, and `count` the number of its request.
        """
        requested = self._check_descriptor(descriptor, inside=False)
        with self._rollout(page, count):
            result = self._load(iteration).seed(data.seed_index(self.run, seed))
            if not len(result.archive):
                raise NotFoundError(f"the archive of seed {seed} is empty")
            nearest = result.archive.nearest(requested)
            policy = RecordingRequest(nearest.network, nearest.policy, requested)
            elite = self._record(policy)[0]
            return {"elite": {**(elite or {}), **_stored(result.archive, nearest.cell)}}

    def paths(self, iteration: int, seed: int, start: int) -> dict[str, Any]:
        """Return the paths of some elites of an archive, from number `start` on.

        See `elites.viewer.paths.chunk`. Results are kept, because a page asks for them repeatedly.
        """
        if not paths.has_paths(self.task):
            raise NotFoundError(f"the episodes of {self.task.name} have no paths")
        key = (iteration, seed, start)
        with self._rollout_lock:
            if key not in self._paths:
                result = self._load(iteration).seed(data.seed_index(self.run, seed))
                with _explained():
                    found = paths.chunk(self.task, result.archive, start)
                kept = list(self._paths.items())[-_KEPT_CHUNKS:]
                self._paths = {**dict(kept), key: found}
            return self._paths[key]

    def film(
        self, iteration: int, seed: int, cell: int, descriptor: list[float] | None = None
    ) -> dict[str, Any]:
        """Return a GIF of a cell's elite and of the actor beside it, in base64.

        If a descriptor is given, the actor is asked for it. Otherwise it is asked for that of the
        elite. Without an actor that takes a descriptor, the elite is alone.
        """
        if descriptor is not None:
            self._check_descriptor(descriptor)
        with Team() as team:
            with self._rollout_lock:
                result = self._load(iteration).seed(data.seed_index(self.run, seed))
                elite = next((e for e in result.archive if e.cell == cell), None)
                if elite is None:
                    raise NotFoundError(f"there is no elite in a cell {cell}")
                conditioned = result.actor is not None and result.actor.conditioned
                casting = filming.cast(result, [elite], descriptor or (), actor=conditioned)
                film = filming.of(self.task, casting)
            return {"gif": base64.b64encode(movie.gif(film, team)).decode("ascii")}

    def _check_descriptor(self, descriptor: list[float], inside: bool = True) -> np.ndarray:
        """Return a descriptor as an array [D]. Raises a ValueError if the task cannot have it.

        With `inside`, it must lie between the bounds. Elites may lie outside of them.
        """
        task = self.task
        if len(descriptor) != task.descriptor_size:
            raise ValueError(
                f"a descriptor of {task.name} has {task.descriptor_size} numbers, "
                f"got {len(descriptor)}"
            )
        requested = np.array(descriptor, np.float32)
        if not np.isfinite(requested).all():
            raise ValueError(f"a descriptor must have finite numbers, got {descriptor}")
        low, high = task.descriptor_low, task.descriptor_high
        if inside and ((requested < low).any() or (requested > high).any()):
            raise ValueError(
                f"a descriptor of {task.name} lies between {low} and {high}, got {descriptor}"
            )
        return requested

    def _load(self, iteration: int) -> Run:
        """Return the run with its policies at an iteration. Reads the checkpoint if necessary."""
        if iteration not in self._loaded:
            self._refuse_removed(iteration)
            try:
                found, _ = self._reader.load(iteration)
            except (CheckpointError, ValueError):
                self._refuse_removed(iteration)  # it may have been removed while it was read
                raise
            # Archives are large: only this iteration and the one before it stay in memory.
            self._loaded = {**dict(list(self._loaded.items())[-1:]), iteration: found}
        return self._loaded[iteration]

    def _refuse_removed(self, iteration: int) -> None:
        """Raise a NotFoundError if the checkpoint of an iteration, with its policies, was removed.

        The message names the iterations whose policies are available.
        """
        kept = data.kept_iterations(self.run)
        if iteration not in kept:
            raise NotFoundError(
                f"the policies of iteration {iteration} are not kept. Policies are kept for "
                f"{' and '.join(map(str, kept)) or 'no iteration'}"
            )


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Raise a RunError if a rollout inside the `with` block fails.

    The message names the line of the user's code, if the task is the user's own.
    """
    try:
        yield
    except NotFoundError:
        raise
    except Exception as error:
        raise RunError(f"the rollout failed: {references.described(error)}") from error


def _stored(archive: Elites, cell: int) -> dict[str, Any]:
    """Return the number of a cell, and the fitness and descriptor stored there, keyed by name."""
    return {
        "cell": cell,
        "stored_fitness": float(archive.arrays.fitness[cell]),
        "stored_descriptor": to_lists(archive.arrays.descriptors[cell]),
    }
