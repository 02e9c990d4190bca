// Orbit of a camera around its target, and the input that changes it.

import { onGesture } from "./pointer.js";

const KEYS = { ArrowLeft: { around: -0.15 }, ArrowRight: { around: 0.15 }, ArrowUp: { above: 0.1 },
  ArrowDown: { above: -0.1 }, "+": { closer: 1.2 }, "=": { closer: 1.2 }, "-": { closer: 1 / 1.2 } };

const FILLED = 0.88; // share of the picture's width or height that the box takes

/** Initial orbit: angles around the target and above the ground in radians, distance relative to the view. */
export const INITIAL_ORBIT = { around: -2.1, above: 0.5, distance: 1 };

/**
 * Return a new orbit: `orbit` changed by `around` and `above` in radians, and by `closer` as a
 * factor.
 */
export function changeOrbit(orbit, { around = 0, above = 0, closer = 1 }) {
  return {
    around: orbit.around + around,
    above: Math.min(Math.max(orbit.above + above, 0.02), 1.55),
    distance: Math.min(Math.max(orbit.distance / closer, 0.2), 8),
  };
}

/**
 * Return the distance at which a camera on an orbit sees all of a box around its target. `half` is
 * half the size of the box.
 */
function fittingDistance(camera, { around, above }, half) {
  const vertical = FILLED * Math.tan((camera.fov * Math.PI) / 360);
  const horizontal = vertical * camera.aspect;
  const [ca, sa, ce, se] = [Math.cos(around), Math.sin(around), Math.cos(above), Math.sin(above)];
  let distance = 0;
  for (let corner = 0; corner < 8; corner++) {
    const [x, y, z] = [half.x, half.y, half.z].map((size, axis) => ((corner >> axis) & 1 ? size : -size));
    const right = Math.abs(-sa * x + ca * y);
    const up = Math.abs(-ca * se * x - sa * se * y + ce * z);
    const nearer = ca * ce * x + sa * ce * y + se * z;
    distance = Math.max(distance, nearer + right / horizontal, nearer + up / vertical);
  }
  return distance;
}

/**
 * Place a camera on an orbit around its target, and return the distance between the two. `half` is
 * half the size of the box around the target that the camera shows, and `ground` the height of the
 * floor, which the camera stays above.
 */
export function placeCamera(camera, orbit, target, half, robotSize, ground) {
  const distance = orbit.distance * fittingDistance(camera, orbit, half);
  const flat = Math.cos(orbit.above) * distance;
  camera.position.set(
    target.x + Math.cos(orbit.around) * flat,
    target.y + Math.sin(orbit.around) * flat,
    Math.max(target.z + Math.sin(orbit.above) * distance, ground + 0.02 * robotSize),
  );
  camera.far = distance + 200 * robotSize;
  // A nearer plane would leave too little precision to tell marks on the ground from the floor far away.
  camera.near = 0.02 * Math.max(robotSize, distance);
  camera.lookAt(target);
  camera.updateProjectionMatrix();
  return distance;
}

/**
 * Call `onChange` with a change of the orbit, as `changeOrbit` takes it, for each use of pointer,
 * wheel or keyboard on a canvas.
 */
export function onCameraInput(canvas, onChange) {
  const turn = (dx, dy) => ({ around: -dx * 0.008, above: dy * 0.008 });
  onGesture(canvas, {
    onDrag: (dx, dy) => onChange(turn(dx, dy)),
    onPinch: (factor, x, y, dx, dy) => onChange({ closer: factor, ...turn(dx, dy) }),
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    onChange({ closer: Math.exp(-event.deltaY * 0.0012) });
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.key in KEYS) {
      event.preventDefault();
      onChange(KEYS[event.key]);
    }
  });
}
