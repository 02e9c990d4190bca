// Recorded poses of the bodies.

import * as THREE from "./three/three.module.min.js";

/**
 * Return the poses of a recording: its number of frames, and functions for the pose of a body.
 * `position(frame, body, vector)` and `rotation(frame, body, quaternion)` write into their last
 * argument and return it. A frame between two recorded ones is interpolated, so that slow motion is
 * smooth.
 */
export function unpackPoses(packed) {
  const bytes = Uint8Array.from(atob(packed.numbers), (c) => c.charCodeAt(0));
  const numbers = new Int16Array(bytes.buffer);
  const scale = packed.scale / 32767;
  const first = (frame, body) => (frame * packed.bodies + body) * 7;
  function readPosition(frame, body, vector) {
    const i = first(frame, body);
    return vector.set(numbers[i] * scale, numbers[i + 1] * scale, numbers[i + 2] * scale);
  }
  function readRotation(frame, body, quaternion) {
    const i = first(frame, body);
    return quaternion.set(numbers[i + 4], numbers[i + 5], numbers[i + 6], numbers[i + 3]).normalize();
  }
  const interpolated = (read, method, next) => (frame, body, result) => {
    const whole = Math.floor(frame);
    read(whole, body, result);
    return frame > whole ? result[method](read(whole + 1, body, next), frame - whole) : result;
  };
  return {
    frames: packed.frames,
    position: interpolated(readPosition, "lerp", new THREE.Vector3()),
    rotation: interpolated(readRotation, "slerp", new THREE.Quaternion()),
  };
}
