"""Text about tasks and algorithms, for `elites tasks` and `elites algorithms`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from elites import references, training
from elites.core import catalogue, usage
from elites.core.hyperparameters import Hyperparameters
from elites.core.types import Vectors
from elites.tasks.families import FAMILIES
from elites.tasks.rollout import problem
from elites.tasks.standard import STANDARD, needed
from elites.tasks.task import Task
from elites.words import columns, counted


def overview(tasks: Sequence[Task]) -> str:
    """Return a table of tasks as text, with a heading and a line for each task."""
    rows = [["task", "observation", "action", "episode", "parameters", "bounds", "descriptor"]]
    for task in tasks:
        network = problem(task).policy(Hyperparameters.policy_hidden)
        rows.append(
            [
                task.name,
                f"{task.observation_size}",
                f"{task.action_size}",
                f"{task.episode_length}",
                f"{network.size:,}",
                _bounds(task),
                task.descriptor_text,
            ]
        )
    return "\n".join(columns(rows, right=(1, 2, 3, 4)))


def standard_names() -> str:
    """Return a table of the standard names of tasks as text, with the names they stand for."""
    rows = [["standard name", "", "stands for"]]
    rows += [[name, needed(name) or "installed", full] for name, full in STANDARD.items()]
    return "\n".join(columns(rows))


def simulators() -> str:
    """Return a table of the families of tasks as text, a line for each."""
    rows = [["tasks by family", "", "example"]]
    for family in FAMILIES.values():
        missing = f"not installed: pip install 'elites[{family.extra}]'"
        rows.append(
            [family.summary, "installed" if family.is_installed else missing, family.example]
        )
    return "\n".join(columns(rows))


def explain_task(task: Task) -> str:
    """Return a text that explains a task: its reward, descriptor, observation and action."""
    if task.vectors is not None:
        return _explain_vectors(task, task.vectors)
    network = problem(task).policy(Hyperparameters.policy_hidden)
    layers = "-".join(map(str, network.sizes))
    length = f"at most {counted(task.episode_length, 'step')}"
    if task.body_model is not None:
        length += f" of {task.body_model.dt:g} s, {task.body_model.substeps} substeps each"
    over = {"final": "of the last state", "mean": "mean over the steps taken"}
    facts = [
        ("episode", length),
        ("reward", task.reward_text),
        ("fitness", "sum of the rewards, undiscounted"),
        ("termination", task.termination_text),
        ("descriptor", task.descriptor_text or over[task.episode_descriptor]),
        *((f"axis {i}", text) for i, text in enumerate(_axes(task), 1)),
        ("deterministic", _determinism(task)),
        ("policy", f"{network.size:,} parameters ({layers}, ReLU, tanh at the end)"),
    ]
    lines = [
        f"{task.name}: {task.summary}",
        "",
        *(line for name, text in facts for line in _paragraph(name, text)),
        "",
        f"observation, {counted(task.observation_size, 'number')}",
        *columns([[f"  {where}", what] for where, what in _ranges(task.observation_layout)]),
        "",
        f"action, {counted(task.action_size, 'number')} in [-1, 1]",
        *columns([[f"  {where}", what] for where, what in _ranges(_actions(task))]),
    ]
    return "\n".join(lines)


def _explain_vectors(task: Task, vectors: Vectors) -> str:
    """Return a text that explains a task of plain vectors: fitness, descriptor and start."""
    same = len(set(vectors.start)) == 1
    facts = [
        ("vectors", f"plain vectors of {counted(vectors.size, 'number')}"),
        ("start", f"{vectors.start[0]:g} in every dimension" if same else f"{vectors.start}"),
        ("evaluation", "outside of JAX" if vectors.evaluate is None else "compiled by JAX"),
        ("descriptor", task.descriptor_text or "of the function"),
        *((f"axis {i}", text) for i, text in enumerate(_axes(task), 1)),
    ]
    lines = [f"{task.name}: {task.summary}", ""]
    return "\n".join([*lines, *(line for n, text in facts for line in _paragraph(n, text))])


def _determinism(task: Task) -> str:
    """Return whether an episode of a task is always the same, as text."""
    if not task.deterministic:
        return "no, an episode depends on its key"
    return "yes" if task.repeatable else "yes, but for its last bits, which depend on the batch"


def explain_algorithm(name: str) -> str:
    """Return a text that explains an algorithm: its offspring, evaluations and networks."""
    exact = name in catalogue.WITH_EXACT_GRADIENTS
    built = training.build("vectors:sphere" if exact else "ant_omni", name)
    offspring = ", ".join(f"{origin} {count}" for origin, count in built.offspring.items())
    facts = [
        ("offspring", f"in an iteration: {offspring}"),
        ("evaluations", f"{built.evaluations_per_iteration} in an iteration"),
    ]
    if learner := built.main_td3:
        layers = "-".join(map(str, learner.actor.sizes))
        seen = "observation and descriptor" if learner.actor_conditioned else "observation"
        facts.append(("actor", f"{layers} on Ant-Omni, sees {seen}"))
        facts.append(("critic", f"{'-'.join(map(str, learner.critic.sizes))} on Ant-Omni"))
    if name in usage.READ:
        facts.append(("reads", f"the hyperparameters {', '.join(usage.read_by(name))}"))
    lines = [f"{built.name}: {_title(name)}", ""]
    return "\n".join([*lines, *(line for n, text in facts for line in _paragraph(n, text))])


def _title(algorithm: str) -> str:
    """Return the title of an algorithm. For one of the user's own, its docstring's first line."""
    if not references.is_reference(algorithm):
        return catalogue.ALGORITHMS[algorithm]
    text = references.load(algorithm).__doc__ or f"an algorithm of your own, {algorithm}"
    return text.strip().partition("\n")[0]


def _actions(task: Task) -> list[tuple[str, int]]:
    """Return a pair (description, 1) for each entry of a task's action vector.

    The 1 is the number of entries described, as `_ranges` expects it. Returns an empty list for a
    task without a body model.
    """
    model = task.body_model
    if model is None:
        return []
    return [
        (f"motor of joint {model.joints.names[joint]!r}, {strength:g} N m at full action", 1)
        for joint, strength in zip(model.actuated, model.strength[:, 0], strict=True)
    ]


def _paragraph(name: str, text: str) -> list[str]:
    """Return the lines of a paragraph, indented, with `name` in front of the first line."""
    return textwrap.wrap(text, 96, initial_indent=f"{name:<15}", subsequent_indent=" " * 15)


def _ranges(layout: Iterable[tuple[str, int]]) -> list[tuple[str, str]]:
    """Return (indices, text) pairs such as ("0-1", "x, y") for the entries of a vector.

    `layout` has a pair (text, number of entries) for each part of the vector.
    """
    rows, first = [], 0
    for text, size in layout:
        rows.append((f"{first}" if size == 1 else f"{first}-{first + size - 1}", text))
        first += size
    return rows


def _axes(task: Task) -> list[str]:
    """Return a text for each descriptor axis of a task, such as "final x (m), -30 to 30"."""
    ranges = zip(task.descriptor_axes, task.descriptor_low, task.descriptor_high, strict=True)
    return [f"{axis.label}, {low:g} to {high:g}" for axis, low, high in ranges]


def _bounds(task: Task) -> str:
    """Return the bounds of a task's descriptor as text, such as "[-1, 1]^2"."""
    sides = [
        f"[{low:g}, {high:g}]"
        for low, high in zip(task.descriptor_low, task.descriptor_high, strict=True)
    ]
    return f"{sides[0]}^{len(sides)}" if len(set(sides)) == 1 else " x ".join(sides)
