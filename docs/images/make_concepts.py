"""Draw the pictures of docs/concepts.md from a finished demo run.

elites demo --output demo
python docs/images/make_concepts.py demo

concepts_descriptor.png   foot contacts of three elites, and their descriptors
concepts_elite.png        poses of the same elites
concepts_archive.png      the archive at the start, early and at the end
concepts_critic.png       the similarity of descriptors, and the critic's values
concepts_policy.png       distilled policies, asked for the descriptors of the archive
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection, PolyCollection

import elites
from elites import tasks
from elites.core import networks, td3
from elites.runs.voronoi import polygons
from elites.tasks.rollout import record, rollout

HERE = Path(__file__).parent
COLOURS = ("#0072B2", "#D55E00", "#009E73")
WISHES = ((0.12, 1.0), (0.57, 0.51), (0.95, 0.25))  # descriptors near which elites are shown
SHOWN = range(100, 600)  # steps of the episodes, all of which last longer
FEET = ("right foot", "left foot")


def save(figure, name: str) -> None:
    figure.savefig(HERE / f"concepts_{name}.png", dpi=110)
    plt.close(figure)


def plane(axes, title: str) -> None:
    axes.set(xlim=(0, 1), ylim=(0, 1), title=title)
    axes.set(xlabel="time right foot on ground", ylabel="time left foot on ground")
    axes.set_box_aspect(1)
    axes.set_xticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])
    axes.set_yticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])


def cells(axes, centroids, values, scale) -> None:
    colours = plt.get_cmap("viridis")
    shades = [colours(scale(v)) if np.isfinite(v) else "#E8E8E8" for v in values]
    shapes = polygons(centroids, (0.0, 0.0), (1.0, 1.0))
    axes.add_collection(PolyCollection(shapes, facecolors=shades, edgecolors="w", linewidths=0.3))


def bar(figure, axes, scale, label: str) -> None:
    figure.colorbar(plt.cm.ScalarMappable(scale, "viridis"), ax=axes, label=label, shrink=0.8)


# --------------------------------------------------------------------------- descriptor and elite


def films(task, chosen):
    """Return foot contacts [T, n, 2] and states of the bodies [T, n, 13, B]."""
    layers = networks.unflatten(chosen[0].network, jnp.stack([e.policy for e in chosen]))

    def act(observations):
        return networks.apply_each(chosen[0].network, layers, observations)

    def look(world):
        return world.descriptor, task.bodies(world)

    keys = jax.random.split(jax.random.key(0), len(chosen))
    _, (contacts, bodies) = jax.jit(lambda: record(task, act, keys, look))()
    return np.asarray(contacts), np.asarray(bodies)


def draw_descriptor(task, chosen, contacts) -> None:
    figure, axes = plt.subplots(
        1, 2, figsize=(9, 3.4), width_ratios=(1.9, 1), layout="constrained"
    )  # fmt: skip
    dt = task.body_model.dt
    seconds = np.arange(len(SHOWN)) * dt
    for i, elite in enumerate(chosen):
        for foot in range(2):
            touches = contacts[SHOWN, i, foot] > 0
            row = -(2.6 * i + foot)
            axes[0].broken_barh(
                [(t, dt) for t in seconds[touches]], (row - 0.4, 0.8), color=COLOURS[i]
            )
            axes[0].text(-0.05, row, FEET[foot], ha="right", va="center", fontsize=8)
        axes[1].scatter(*elite.descriptor, s=70, color=COLOURS[i], zorder=2)
        share = ", ".join(f"{100 * v:.0f} %" for v in elite.descriptor)
        axes[1].annotate(
            f"({share})", elite.descriptor, xytext=(0, -14), textcoords="offset points", fontsize=8,
            ha="center",
        )  # fmt: skip
    axes[0].set(
        xlim=(0, seconds[-1]), yticks=[], xlabel="time in s", title="Foot contacts of three elites"
    )
    for side in ("top", "right", "left"):
        axes[0].spines[side].set_visible(False)
    plane(axes[1], "Their descriptors")
    save(figure, "descriptor")


def draw_elite(task, chosen, bodies) -> None:
    figure, axes = plt.subplots(len(chosen), 1, figsize=(9, 4.2), layout="constrained")
    shapes = [s for s in task.body_model.shapes if s.kind == "capsule" and s.body is not None]
    for i, elite in enumerate(chosen):
        for column, frame in enumerate(SHOWN[:250:25]):
            state = bodies[frame, i]
            shift = 1.3 * column - state[0, 0]  # poses side by side
            moved = [ends(shape, state) + np.array([shift, 0.0]) for shape in shapes]
            axes[i].add_collection(
                LineCollection(moved, colors=COLOURS[i], linewidths=3, alpha=0.8)
            )
        axes[i].axhline(0, color="#888888", linewidth=1)
        axes[i].set(xlim=(-0.7, 12.5), ylim=(-0.1, 1.6), aspect="equal")
        axes[i].set_axis_off()
        share = " and ".join(f"{100 * v:.0f} %" for v in elite.descriptor)
        axes[i].set_title(
            f"right and left foot on the ground for {share} of the time; fitness "
            f"{elite.fitness:,.0f}", fontsize=9, loc="left",
        )  # fmt: skip
    save(figure, "elite")


def ends(shape, state: np.ndarray) -> np.ndarray:
    """Return the two ends [2, 2] of a capsule in the plane of x and z."""
    half = np.array([0.0, 0.0, shape.size[1] / 2 - shape.size[0]])
    points = [np.array(shape.position) + turned(shape.rotation, v) for v in (-half, half)]
    place, rotation = state[:3, shape.body], state[3:7, shape.body]
    return np.stack([(place + turned(rotation, p))[[0, 2]] for p in points])


def turned(quaternion, vector: np.ndarray) -> np.ndarray:
    w, axis = quaternion[0], np.asarray(quaternion[1:])
    return vector + 2 * np.cross(axis, np.cross(axis, vector) + w * vector)


# --------------------------------------------------------------------------------------- archive


def draw_archive(run: Path) -> None:
    files = sorted((run / "snapshots").glob("*.npz"))
    shown = [(int(f.stem), np.load(f)) for f in (files[0], files[1], files[-1])]
    scale = plt.Normalize(0, max(np.max(s["fitness"]) for _, s in shown))
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
    for panel, (iteration, snapshot) in zip(axes, shown, strict=True):
        fitness = snapshot["fitness"][0]
        full = np.isfinite(fitness)
        cells(panel, snapshot["centroids"], fitness, scale)
        plane(panel, f"iteration {iteration}\n{full.sum()} elites")
    bar(figure, axes, scale, "fitness")
    save(figure, "archive")


# --------------------------------------------------------------------- critic and distilled policy


def draw_critic(run, directory: Path, task) -> None:
    state = np.load(directory / "checkpoints" / "last" / "state.npz")
    critic = jnp.asarray(state["learners.conditioned.critics"][0, 0])
    learner = run.algorithm.main_td3
    side = jnp.linspace(-1, 1, 60)
    targets = jnp.stack(jnp.meshgrid(side, side), -1).reshape(-1, 2)
    start = task.reset(jax.random.key(0)).observation
    observations = jnp.broadcast_to(start, (len(targets), len(start)))
    actions = td3.act(learner, jnp.asarray(run.actor.parameters), observations, targets)
    values = td3.value(learner, critic, observations, actions, targets).reshape(60, 60)

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    distance = np.linspace(0, 1, 400)
    for scale, colour in zip((0.016, 0.1, 0.48), COLOURS, strict=True):
        axes[0].plot(distance, np.exp(-distance / scale), color=colour, label=f"l = {scale}")
    axes[0].set(xlabel="distance of d and d'", ylabel="share of the reward that counts")
    axes[0].set_title("Similarity S(d, d')")
    axes[0].legend(frameon=False)
    picture = axes[1].imshow(values, origin="lower", extent=(0, 1, 0, 1), cmap="viridis")
    plane(axes[1], "Q(s, a | d') in the first state")
    figure.colorbar(picture, ax=axes[1], label="expected discounted return")
    save(figure, "critic")


def draw_policy(walker) -> None:
    point = elites.train(
        "point_omni", "dcg_me", evaluations=10_000, cells=128, batch_size=64, critic_steps=600,
        pg_steps=30, policy_hidden=(32, 32), actor_hidden=(128, 128), critic_hidden=(128, 128),
    )  # fmt: skip
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
    for panel, run, name in zip(axes, (point, walker), ("point_omni", "walker_uni"), strict=True):
        asked, reached = run.archive.descriptors[::2], answers(run, tasks.make(name))[::2]
        low, high = (
            run.algorithm.problem.descriptor_low[0],
            run.algorithm.problem.descriptor_high[0],
        )
        error = 100 * np.linalg.norm(reached - asked, axis=1).mean() / (high - low)
        for a, r in zip(asked, reached, strict=True):
            panel.plot(*np.stack([a, r]).T, color="#999999", linewidth=0.7, zorder=1)
        panel.scatter(*asked.T, s=16, color=COLOURS[0], label="requested", zorder=2)
        panel.scatter(*reached.T, s=16, color=COLOURS[1], marker="x", label="reached", zorder=3)
        panel.set(title=f"{name}: mean error {error:.0f} % of the range", box_aspect=1)
        across, up = tasks.make(name).descriptor_axes
        panel.set(xlabel=across.label, ylabel=up.label)
        panel.set(xlim=(low, high), ylim=(low, high))
    axes[1].legend(loc="lower left", frameon=False)
    save(figure, "policy")


def answers(run, task) -> np.ndarray:
    """Return what the distilled policy reaches when asked for each elite's descriptor [n, D]."""
    asked = jnp.asarray(run.archive.descriptors)
    keys = jax.random.split(jax.random.key(0), len(asked))
    evaluate = jax.jit(lambda: rollout(task, lambda seen: run.actor(seen, asked), keys))
    return np.asarray(evaluate().descriptors)


def main() -> None:
    directory = Path(sys.argv[1])
    run, task = elites.load(directory), tasks.make("walker_uni")
    chosen = [run.archive.nearest(wish) for wish in WISHES]
    contacts, bodies = films(task, chosen)
    draw_descriptor(task, chosen, contacts)
    draw_elite(task, chosen, bodies)
    draw_archive(directory)
    draw_critic(run, directory, task)
    draw_policy(run)


if __name__ == "__main__":
    main()
