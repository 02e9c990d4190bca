// A stage: draws a recorded robot from the shapes of its scene.

import * as THREE from "./three/three.module.min.js";
import { INITIAL_ORBIT, changeOrbit, onCameraInput, placeCamera } from "./camera.js";
import { oncePerFrame } from "./canvas.js";
import { themeColour } from "./colours.js";
import { unpackPoses } from "./poses.js";
import { addBodies, createFloor, createLines, createMaterials, createRing, createTrail, floorHeight } from "./scene.js";

const vector = new THREE.Vector3(); // for intermediate results

/**
 * Create a stage, which draws a recorded robot on a canvas, and return the functions that change
 * the stage. `colour` names a colour of the style sheet. `onCamera` is called with the orbit when
 * the user turns the camera. Throws an Error if the browser has no WebGL.
 */
export function createStage(canvas, scene, colour, onCamera) {
  const stage = {
    ...createWorld(canvas, scene), canvas, colour, floor: null, ground: floorHeight(scene),
    startsFixed: scene.camera === "fixed", ...unloaded(), mode: "follow", orbit: INITIAL_ORBIT,
    paths: [], robotSize: 1, robotHalf: cube(1), markSize: 1, middle: new THREE.Vector3(), squareSide: 1,
    fixedView: { target: new THREE.Vector3(), half: cube(1) },
  };
  const repaint = oncePerFrame(() => draw(stage));
  onCameraInput(canvas, (change) => {
    stage.orbit = changeOrbit(stage.orbit, change);
    repaint();
    onCamera(stage.orbit);
  });
  new ResizeObserver(repaint).observe(canvas);

  /** Change properties of the stage and draw it again. */
  function update(changes) {
    Object.assign(stage, changes);
    repaint();
  }
  function load(recording) {
    loadRecording(stage, recording);
    paint(stage);
    repaint();
  }
  load(null);
  return {
    load,
    showFrame: (frame) => update({ frame: stage.poses ? Math.min(frame, stage.poses.frames - 1) : 0 }),
    setCameraMode: (mode) => update({ mode }),
    setOrbit: (orbit) => update({ orbit }),
    /** Draw paths on the floor, each a list of places [x, y], if descriptors are such places. */
    setPaths(paths) {
      stage.paths = paths;
      drawPaths(stage);
      paint(stage);
      repaint();
    },
    /** Return the bounding box of all paths on the stage. It is empty if there is no recording. */
    pathBox: () => (stage.lines ? stage.pathBox.clone().expandByObject(stage.lines) : stage.pathBox.clone()),
    /** Set the box of the world that the fixed camera shows. */
    setFixedView(box) {
      const half = box.getSize(new THREE.Vector3()).divideScalar(2).addScalar(stage.robotSize);
      update({ fixedView: { target: box.getCenter(new THREE.Vector3()), half } });
    },
    repaint() {
      paint(stage);
      repaint();
    },
  };
}

/**
 * Return the parts of a stage that all recordings share: renderer, camera, materials and bodies.
 */
function createWorld(canvas, scene) {
  const renderer = new THREE.WebGLRenderer({ canvas, antialias: true, alpha: true });
  const world = new THREE.Scene();
  const camera = new THREE.PerspectiveCamera(40, 4 / 3, 0.01, 1000);
  camera.up.set(0, 0, 1);
  const sky = new THREE.HemisphereLight(0xffffff, 0x888888, 1.8);
  const sun = new THREE.DirectionalLight(0xffffff, 1.8);
  sky.position.set(0, 0, 1);
  sun.position.set(1, -2, 3);
  world.add(sky, sun);
  const materials = createMaterials(scene);
  return { renderer, world, camera, materials, ...addBodies(world, scene, materials) };
}

/** Return half the size of a cube, for a camera that shows the cube. */
const cube = (half) => new THREE.Vector3(half, half, half);

/** Return the properties that a stage has when no recording is loaded. */
const unloaded = () => ({
  poses: null, frame: 0, trail: null, rings: [], lines: null, isPlace: false, pathBox: new THREE.Box3(),
});

/** Remove an object from the world of a stage and free its memory. */
function removePart({ world }, part) {
  world.remove(part);
  part.traverse(({ geometry }) => geometry.dispose());
  part.material.dispose();
}

/** Draw the paths of all elites on a stage, if the recording there says that descriptors are places. */
function drawPaths(stage) {
  if (stage.lines) removePart(stage, stage.lines);
  stage.lines = stage.isPlace && stage.paths.length ? createLines(stage.paths, stage.markSize, stage.ground) : null;
  if (stage.lines) stage.world.add(stage.lines);
}

/** Put a recording on a stage, or clear the stage if `recording` is null. */
function loadRecording(stage, recording) {
  const { world, bodies, ground } = stage;
  for (const part of [stage.trail, stage.lines, ...stage.rings]) if (part) removePart(stage, part);
  Object.assign(stage, unloaded());
  stage.poses = recording?.poses ? unpackPoses(recording.poses) : null;
  bodies.forEach((body) => (body.visible = stage.poses !== null));
  if (!stage.poses) return;
  measure(stage);
  stage.trail = createTrail(stage.poses, stage.markSize, ground);
  world.add(stage.trail);
  stage.isPlace = isPositionDescriptor(stage, recording);
  drawPaths(stage);
  if (stage.isPlace) {
    // A ring for the requested position, and a dot for the reached one.
    const { markSize } = stage;
    stage.rings = [
      createRing(recording.requested, 0.35, 0.25, markSize, ground),
      createRing(recording.reached, 0.11, 0, markSize, ground),
    ];
    world.add(...stage.rings);
    for (const { position } of stage.rings) stage.pathBox.expandByPoint(position);
  }
}

/**
 * Compute the size of the stage's robot, its middle relative to the first body, and the bounding box
 * of the robot's path, and store them in the stage.
 */
function measure(stage) {
  const { poses, bodies, scenery, pathBox } = stage;
  placeBodies(stage, 0);
  const box = new THREE.Box3();
  for (const body of bodies) if (body.children.length) box.expandByObject(body, true);
  const half = box.isEmpty() ? cube(0.05) : box.getSize(new THREE.Vector3()).divideScalar(2);
  const size = Math.max(half.length(), 0.05);
  const middle = box.isEmpty() ? new THREE.Vector3() : box.getCenter(new THREE.Vector3()).sub(bodies[0].position);
  Object.assign(stage, { robotSize: size, robotHalf: half.addScalar(0.05 * size), middle, squareSide: 10 ** Math.round(Math.log10(size)) });
  for (let i = 0; i < poses.frames; i++) pathBox.expandByPoint(poses.position(i, 0, vector));
  for (const part of scenery) pathBox.expandByObject(part); // the fixed camera shows the walls too
  // Trail and rings are as large as the robot, or large enough for a camera that sees the whole scene.
  const wholeSize = stage.startsFixed ? 0.15 * (pathBox.getSize(vector).length() / 2) : 0;
  stage.markSize = Math.max(size, wholeSize);
}

/** Move the bodies of a stage to their poses in a frame. */
function placeBodies({ poses, bodies }, frame) {
  bodies.forEach((body, i) => {
    poses.position(frame, i, body.position);
    poses.rotation(frame, i, body.quaternion);
    body.updateMatrixWorld();
  });
}

/**
 * Return whether the descriptors of a recording are positions on the ground, which is the case if
 * they follow the robot's first body.
 */
function isPositionDescriptor({ poses, robotSize }, { path, requested, reached }) {
  if (!path || !reached || requested.length !== 2) return false;
  return [0, Math.floor(path.length / 2), path.length - 1].every((i) => {
    poses.position(Math.min(i, poses.frames - 1), 0, vector);
    return Math.hypot(path[i][0] - vector.x, path[i][1] - vector.y) < 0.05 * robotSize + 0.01;
  });
}

/** Set the colours of all objects on a stage from the current theme. */
function paint(stage) {
  const { renderer, world, materials, robotSize } = stage;
  const [background, muted, border, own] = ["panel", "muted", "border", stage.colour]
    .map((name) => new THREE.Color(themeColour(name)));
  materials.core.color.copy(own);
  materials.wall.color.copy(muted);
  world.background = background;
  world.fog = new THREE.Fog(background, 8 * robotSize, 60 * robotSize);
  if (stage.floor) {
    world.remove(stage.floor);
    const { geometry, material } = stage.floor;
    for (const part of [geometry, material.map, material]) part.dispose();
  }
  stage.floor = createFloor(renderer, 120 * robotSize, stage.squareSide, background, border);
  world.add(stage.floor);
  for (const part of [stage.trail, ...stage.rings]) part?.material.color.copy(own);
  stage.lines?.material.color.copy(muted);
}

/** Draw the current frame of the recording on a stage. */
function draw(stage) {
  const { renderer, world, camera, poses, frame, robotSize, ground } = stage;
  fitCanvas(stage);
  if (poses) {
    placeBodies(stage, frame);
    showTrail(stage.trail, Math.floor(frame));
  }
  const { target, half } = currentView(stage);
  // The floor follows in steps of whole squares, so that it seems endless. In a wide view it has larger squares.
  const enlarged = 10 ** Math.max(Math.round(Math.log10(half.length() / stage.squareSide / 12)), 0);
  const step = 2 * stage.squareSide * enlarged;
  const stepped = (v) => Math.round(v / step) * step;
  stage.floor.scale.setScalar(enlarged);
  if (poses) stage.trail.children[0].visible = enlarged > 1;
  stage.floor.position.set(stepped(target.x), stepped(target.y), ground);
  const distance = placeCamera(camera, stage.orbit, target, half, robotSize, ground);
  world.fog.near = distance + Math.max(6 * robotSize, half.length());
  world.fog.far = world.fog.near + 44 * robotSize;
  renderer.render(world, camera);
  stage.canvas.dataset.frame = Math.floor(frame);
}

/** Show the part of a trail up to a frame. */
function showTrail(trail, frame) {
  trail.geometry.setDrawRange(0, frame * 6);
  trail.children[0].geometry.setDrawRange(0, frame + 1);
}

/**
 * Return where the camera looks: { target, half }. `half` is half the size of the box around the
 * target that must be visible.
 */
function currentView({ poses, mode, bodies, middle, robotHalf, fixedView }) {
  if (!poses) return { target: new THREE.Vector3(), half: robotHalf };
  return mode === "follow" ? { target: bodies[0].position.clone().add(middle), half: robotHalf } : fixedView;
}

/** Adapt the resolution of a stage and the aspect ratio of its camera to the size of the canvas. */
function fitCanvas({ renderer, camera, canvas }) {
  const box = canvas.getBoundingClientRect();
  const [width, height] = [Math.max(Math.round(box.width), 1), Math.max(Math.round(box.height), 1)];
  const ratio = window.devicePixelRatio || 1;
  if (renderer.getPixelRatio() !== ratio) renderer.setPixelRatio(ratio);
  const size = renderer.getSize(new THREE.Vector2());
  if (size.x !== width || size.y !== height) renderer.setSize(width, height, false);
  camera.aspect = width / height;
}
