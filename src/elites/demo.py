"""A first look: a random population on Ant-Omni, in numbers and in a picture.

Every policy runs one episode; nothing is trained. This is where each of the algorithms starts.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import jax
import numpy as np

from elites import tasks
from elites.core import networks
from elites.tasks.rollout import Evaluation, rollout_policies
from elites.tasks.task import Task


def run(output: Path, population: int, seed: int) -> None:
    """Evaluate a random population, print a summary and save its picture in `output`."""
    task = tasks.make("ant_omni")
    network = networks.policy(task.observation_size, task.action_size)
    device = jax.devices()[0]
    print(
        f"{population} random policies of {network.size:,} parameters on {task.name}, "
        f"{task.episode_length} steps each, on {device.platform} ({device.device_kind})"
    )
    policy_key, episode_key = jax.random.split(jax.random.key(seed))
    policies = jax.vmap(lambda key: networks.init(network, key))(
        jax.random.split(policy_key, population)
    )
    keys = jax.random.split(episode_key, population)

    start = time.perf_counter()
    evaluate = (
        jax.jit(lambda policies, keys: rollout_policies(task, network, policies, keys))
        .lower(policies, keys)
        .compile()
    )
    compile_seconds = time.perf_counter() - start
    evaluation = jax.tree.map(np.asarray, evaluate(policies, keys))
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(evaluate(policies, keys))
        seconds.append(time.perf_counter() - start)

    picture = output / "ant_omni_population.png"
    print()
    print(_summary(evaluation, compile_seconds, float(np.median(seconds))))
    _draw(task, evaluation, picture)
    print()
    print(f"picture: {picture}")
    print(f"next:    {_program()} tasks            the tasks")
    print(f"         {_program()} tasks ant_omni   what this robot sees, does and is paid for")


def _program() -> str:
    """How the user calls the command; it need not be on the PATH."""
    if shutil.which("elites"):
        return "elites"
    return sys.argv[0] if sys.argv[0].endswith("elites") else "python -m elites.cli"


def _summary(evaluation: Evaluation, compile_seconds: float, seconds: float) -> str:
    valid = np.asarray(evaluation.valid)
    distance = np.linalg.norm(evaluation.descriptors, axis=1)
    lines = [f"{'':<18}{'min':>9}{'median':>9}{'max':>9}"]
    for name, values, digits in (
        ("fitness", evaluation.fitness, 0),
        ("steps", evaluation.steps, 0),
        ("distance reached", distance, 1),
    ):
        values = np.asarray(values)[valid]
        cells = [np.min(values), np.median(values), np.max(values)] if len(values) else []
        unit = " m" if name == "distance reached" else ""
        lines.append(f"{name:<18}" + "".join(f"{cell:>9.{digits}f}" for cell in cells) + unit)
    taken = int(np.sum(evaluation.steps))
    lines += [
        "",
        f"{'valid episodes':<18}{f'{valid.sum()} of {len(valid)}':>9}",
        f"{'compile':<18}{compile_seconds:>9.1f} s",
        f"{'one evaluation':<18}{seconds:>9.2f} s",
        f"{'speed':<18}{taken / seconds:>9,.0f} environment steps per second",
    ]
    return "\n".join(lines)


def _draw(task: Task, evaluation: Evaluation, picture: Path) -> None:
    """Left the paths of the population, right how its fitness is spread."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize

    valid = np.asarray(evaluation.valid)
    fitness = np.asarray(evaluation.fitness)[valid]
    ends = np.asarray(evaluation.descriptors)[valid]
    mask = np.asarray(evaluation.transitions.mask)[:, valid]
    before = np.asarray(evaluation.transitions.state_descriptor)[:, valid]
    # A path is where each step began, and where the last one ended.
    order = np.argsort(fitness)
    paths = [np.concatenate([before[mask[:, i], i], ends[i : i + 1]]) for i in order]

    with plt.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure, (plane, spread) = plt.subplots(
            1, 2, figsize=(10.5, 4.8), width_ratios=(1.25, 1), layout="constrained"
        )
        colours = plt.get_cmap("viridis")
        scale = Normalize(fitness.min(), fitness.max())
        shade = colours(scale(fitness[order]))
        plane.add_collection(LineCollection(paths, colors=shade, linewidths=0.7, alpha=0.55))
        plane.scatter(*ends[order].T, c=shade, s=14, edgecolors="white", linewidths=0.4, zorder=3)
        plane.plot(
            0, 0, "+", color="black", markersize=11, markeredgewidth=1.6, zorder=4, label="start"
        )
        plane.plot([], [], "o", color="grey", markersize=4, label="end of the episode")
        plane.legend(loc="lower left", frameon=False, fontsize=9)
        reach = 1.08 * max(float(np.abs(np.concatenate(paths)).max()), 1.0)
        plane.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        plane.set(xlabel="x in m", ylabel="y in m")
        plane.set_title(f"{task.name}: where {len(fitness)} random policies go", loc="left")
        bar = figure.colorbar(
            plt.cm.ScalarMappable(scale, colours), ax=plane, label="fitness", shrink=0.9
        )
        bar.outline.set_visible(False)

        counts, edges, patches = spread.hist(fitness, bins=24, edgecolor="white", linewidth=0.6)
        for patch, left, right in zip(patches, edges[:-1], edges[1:], strict=True):
            patch.set_facecolor(colours(scale((left + right) / 2)))
        middle = float(np.median(fitness))
        spread.axvline(middle, color="black", linewidth=1, linestyle="--")
        spread.annotate(
            f"median {middle:.0f}", (middle, counts.max()), (5, 8), textcoords="offset points"
        )
        spread.set_ylim(0, 1.12 * counts.max())
        spread.set(xlabel="fitness", ylabel="policies")
        spread.set_title("How fit they are, before any training", loc="left")
        figure.savefig(picture, dpi=130)
        plt.close(figure)
