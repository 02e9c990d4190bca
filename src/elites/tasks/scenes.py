"""Scene: what there is to draw of a task, for the page in the browser.

A scene has shapes, and a function that returns where the bodies are in a state of the task. A robot
of the physics of elites gets its scene from its body model. Robots of other simulators, and tasks
without physics, bring their own in `Task.scene`. `geoms.scene` makes one of a MuJoCo model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from elites.physics import Shape

if TYPE_CHECKING:
    from elites.tasks.task import Array, Task, TaskState


@dataclasses.dataclass(frozen=True, eq=False)
class Scene:
    """Bodies and shapes of a task, and where the bodies are.

    Scenes are compared by identity, so that compiled code can treat a scene as a constant.
    """

    bodies: tuple[str, ...]
    """Name of each body that moves."""
    shapes: tuple[Shape, ...]
    dt: float
    """Time between two states of an episode in seconds."""
    poses: Callable[[TaskState], Array]
    """Function that returns the poses [B, 7]: position in m, then quaternion w, x, y, z."""
    camera: Literal["follow", "fixed"] = "follow"
    """Camera that the page starts with: one that follows the first body, or one that sees all."""
    parents: tuple[int | None, ...] = ()
    """Row of the body that each body hangs on, or None. Empty if that is not known."""

    def limbs(self) -> list[int]:
        """Return the number of each body's limb. The trunk is 0.

        A limb begins below a body that carries several others. Where it is not known which body
        hangs on which, the first body is the trunk and the others are one limb.
        """
        if not self.parents:
            return [min(row, 1) for row in range(len(self.bodies))]
        children = [self.parents.count(row) for row in range(len(self.bodies))]
        found: list[int] = []
        for parent in self.parents:  # a body comes after its parent
            if parent is None:
                found.append(0)
            elif children[parent] > 1:
                found.append(max(found) + 1)
            else:
                found.append(found[parent])
        return found

    def limb_ends(self) -> list[bool]:
        """Return, for each body, whether no other body hangs on it. A foot is such an end."""
        return [bool(self.parents) and row not in self.parents for row in range(len(self.bodies))]

    def to_json(self) -> dict[str, Any]:
        """Return the scene without its function, as a dictionary that JSON can represent."""
        return {
            "dt": float(self.dt),
            "camera": self.camera,
            "bodies": list(self.bodies),
            "limbs": self.limbs(),
            "limb_ends": self.limb_ends(),
            "shapes": [_shape(shape) for shape in self.shapes],
        }


def scene_of(task: Task) -> Scene | None:
    """Return the scene of a task, or None if there is nothing to draw.

    It is the task's own scene or, without one, that of its body model.
    """
    own, model, bodies = task.scene, task.body_model, task.bodies
    if own is not None or model is None or bodies is None:
        return own() if callable(own) else own
    parents = dict(zip(model.joints.child.tolist(), model.joints.parent.tolist(), strict=True))
    return Scene(
        model.bodies,
        model.shapes,
        model.dt,
        lambda state: bodies(state)[:7].T,
        parents=tuple(parents.get(row) for row in range(len(model.bodies))),
    )


def _shape(shape: Shape) -> dict[str, Any]:
    """Return a shape as a dictionary that JSON can represent."""
    found = {
        "body": shape.body,
        "kind": shape.kind,
        "position": [float(v) for v in shape.position],
        "rotation": [float(v) for v in shape.rotation],
        "size": [float(v) for v in shape.size],
    }
    if shape.mesh is not None:
        vertices, faces = shape.mesh.vertices, shape.mesh.faces
        found["vertices"] = [float(f"{v:.5g}") for v in vertices.reshape(-1)]
        found["faces"] = [int(i) for i in faces.reshape(-1)]
    return found
