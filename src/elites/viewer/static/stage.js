// A robot in motion, drawn from the colliders of its body model: recorded poses, a camera, a trail.

import * as THREE from "./three/three.module.min.js";
import { ofPage, oncePerFrame } from "./drawing.js";
import { onFingers } from "./fingers.js";

/**
 * Poses of a recording: `place(frame, body, vector)` and `turn(frame, body, quaternion)`. A frame may lie
 * between two, so that slow motion is smooth.
 */
function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.words), (c) => c.charCodeAt(0));
  const words = new Int16Array(bytes.buffer);
  const scale = packed.reach / 32767;
  const [nextPlace, nextTurn] = [new THREE.Vector3(), new THREE.Quaternion()];
  const start = (frame, body) => (frame * packed.bodies + body) * 7;
  function placeAt(frame, body, vector) {
    const i = start(frame, body);
    return vector.set(words[i] * scale, words[i + 1] * scale, words[i + 2] * scale);
  }
  function turnAt(frame, body, quaternion) {
    const i = start(frame, body);
    return quaternion.set(words[i + 4], words[i + 5], words[i + 6], words[i + 3]).normalize();
  }
  const between = (read, mix, spare) => (frame, body, result) => {
    const whole = Math.floor(frame);
    read(whole, body, result);
    return frame > whole ? result[mix](read(whole + 1, body, spare), frame - whole) : result;
  };
  return {
    frames: packed.frames,
    place: between(placeAt, "lerp", nextPlace),
    turn: between(turnAt, "slerp", nextTurn),
  };
}

function geometryOf({ kind, size }) {
  if (kind === "capsule") {
    const [radius, length] = size;
    return new THREE.CapsuleGeometry(radius, Math.max(length - 2 * radius, 0), 6, 16).rotateX(Math.PI / 2);
  }
  if (kind === "sphere") return new THREE.SphereGeometry(size[0], 24, 16);
  if (kind === "box") return new THREE.BoxGeometry(2 * size[0], 2 * size[1], 2 * size[2]);
  return null; // a plane: the ground, drawn as a floor
}

/** A stage on a canvas for the robot of a scene; throws where the browser has no WebGL. */
export function createStage(canvas, scene, tint, onCamera) {
  const renderer = new THREE.WebGLRenderer({ canvas, antialias: true, alpha: true });
  const world = new THREE.Scene();
  const camera = new THREE.PerspectiveCamera(40, 4 / 3, 0.01, 1000);
  camera.up.set(0, 0, 1);
  const sky = new THREE.HemisphereLight(0xffffff, 0x888888, 1.8);
  const sun = new THREE.DirectionalLight(0xffffff, 1.8);
  sky.position.set(0, 0, 1);
  sun.position.set(1, -2, 3);
  world.add(sky, sun);

  // One group for each body, holding its colliders; scenery stands in the world.
  const limb = new THREE.MeshStandardMaterial({ roughness: 0.65 });
  const core = new THREE.MeshStandardMaterial({ roughness: 0.65 });
  const wall = new THREE.MeshStandardMaterial({ roughness: 0.9, transparent: true, opacity: 0.55 });
  const bodies = scene.bodies.map(() => new THREE.Group());
  const scenery = [];
  world.add(...bodies);
  for (const shape of scene.shapes) {
    const geometry = geometryOf(shape);
    if (!geometry) continue;
    const material = shape.body === null ? wall : shape.body === 0 ? core : limb;
    const mesh = new THREE.Mesh(geometry, material);
    mesh.position.set(...shape.position);
    const [w, x, y, z] = shape.rotation;
    mesh.quaternion.set(x, y, z, w);
    if (shape.body === null) scenery.push(mesh);
    (shape.body === null ? world : bodies[shape.body]).add(mesh);
  }

  let floor = null;
  let trail = null;
  let marks = [];
  let poses = null;
  let frame = 0;
  let mode = "follow";
  let robot = 1; // its size, in metres
  let step = 1; // the side of a square of the floor
  let turn = { around: -2.1, above: 0.5, away: 1 }; // the camera, in units of what it looks at
  let way = new THREE.Box3(); // where the robot gets to
  const stayed = { target: new THREE.Vector3(), reach: 1 };
  const plan = oncePerFrame(draw);
  const [vector, target] = [new THREE.Vector3(), new THREE.Vector3()];

  function paint() {
    const [ground, soft, line] = [ofPage("panel"), ofPage("soft"), ofPage("line")];
    core.color.set(ofPage(tint));
    limb.color.set(ofPage(tint)).lerp(new THREE.Color(soft), 0.55);
    wall.color.set(soft);
    world.background = new THREE.Color(ground);
    world.fog = new THREE.Fog(ground, 8 * robot, 60 * robot);
    if (floor) {
      world.remove(floor);
      for (const part of [floor.geometry, floor.material.map, floor.material]) part.dispose();
    }
    floor = checkered(new THREE.Color(ground), new THREE.Color(line));
    world.add(floor);
    for (const part of [trail, ...marks]) part?.material.color.set(ofPage(tint));
    plan();
  }

  function checkered(one, other) {
    const squares = 2 * Math.ceil((120 * robot) / step / 2);
    const mixed = one.clone().lerp(other, 0.45);
    const pixels = [one, mixed, mixed, one].flatMap((colour) => {
      const [r, g, b] = colour.getHexString(THREE.SRGBColorSpace).match(/../g).map((hex) => parseInt(hex, 16));
      return [r, g, b, 255];
    });
    const map = new THREE.DataTexture(new Uint8Array(pixels), 2, 2);
    Object.assign(map, { wrapS: THREE.RepeatWrapping, wrapT: THREE.RepeatWrapping, colorSpace: THREE.SRGBColorSpace,
      generateMipmaps: true, minFilter: THREE.LinearMipmapLinearFilter, magFilter: THREE.NearestFilter,
      anisotropy: renderer.capabilities.getMaxAnisotropy(), needsUpdate: true });
    map.repeat.set(squares / 2, squares / 2);
    const geometry = new THREE.PlaneGeometry(squares * step, squares * step);
    return new THREE.Mesh(geometry, new THREE.MeshBasicMaterial({ map }));
  }

  /** A recording to play; null for none. Asked and reached places are marked if they are on the ground. */
  function load(recording) {
    for (const part of [trail, ...marks]) {
      if (!part) continue;
      world.remove(part);
      part.geometry.dispose();
      part.material.dispose();
    }
    trail = null;
    marks = [];
    poses = recording?.poses ? unpack(recording.poses) : null;
    way = new THREE.Box3();
    bodies.forEach((body) => (body.visible = poses !== null));
    if (poses) {
      measure();
      trail = ribbon();
      world.add(trail);
      if (isOnTheGround(recording)) {
        marks = [mark(recording.asked, 0.5, 0.36), mark(recording.reached, 0.16, 0)];
        world.add(...marks);
        for (const { position } of marks) way.expandByPoint(position);
      }
    }
    frame = 0;
    paint();
  }

  /** The size of the robot and of its whole way. */
  function measure() {
    const start = poses.place(0, 0, new THREE.Vector3()).clone();
    robot = 0.05;
    for (let body = 0; body < bodies.length; body++) {
      robot = Math.max(robot, poses.place(0, body, vector).distanceTo(start));
      for (const mesh of bodies[body].children) {
        mesh.geometry.computeBoundingSphere();
        robot = Math.max(robot, mesh.geometry.boundingSphere.radius);
      }
    }
    step = 10 ** Math.round(Math.log10(robot));
    way = new THREE.Box3();
    for (let i = 0; i < poses.frames; i++) way.expandByPoint(poses.place(i, 0, vector));
    for (const part of scenery) way.expandByObject(part); // a camera that stays shows the walls
  }

  function stay(box) {
    box.getCenter(stayed.target);
    stayed.reach = Math.max(box.getSize(vector).length() / 2 + robot, 2 * robot);
    plan();
  }

  function ribbon() {
    const points = new Float32Array(poses.frames * 6);
    const [here, there, across] = [new THREE.Vector3(), new THREE.Vector3(), new THREE.Vector3(0, 1, 0)];
    for (let i = 0; i < poses.frames; i++) {
      poses.place(i, 0, here).setZ(0);
      poses.place(Math.min(i + 1, poses.frames - 1), 0, there).setZ(0).sub(here);
      if (there.length() > 1e-4 * robot) across.set(-there.y, there.x, 0).normalize();
      const wide = 0.05 * robot;
      const height = 0.008 * robot;
      points.set([here.x + across.x * wide, here.y + across.y * wide, height,
        here.x - across.x * wide, here.y - across.y * wide, height], i * 6);
    }
    const index = [];
    for (let i = 0; i + 1 < poses.frames; i++) index.push(2 * i, 2 * i + 1, 2 * i + 2, 2 * i + 1, 2 * i + 3, 2 * i + 2);
    const geometry = new THREE.BufferGeometry();
    geometry.setAttribute("position", new THREE.BufferAttribute(points, 3));
    geometry.setIndex(index);
    return new THREE.Mesh(geometry, new THREE.MeshBasicMaterial({ side: THREE.DoubleSide, transparent: true, opacity: 0.6 }));
  }

  /** Whether descriptors are places: then the way of the descriptor is the way of the first body. */
  function isOnTheGround({ path, asked, reached }) {
    if (!path || !reached || asked.length !== 2) return false;
    return [0, Math.floor(path.length / 2), path.length - 1].every((i) => {
      poses.place(Math.min(i, poses.frames - 1), 0, vector);
      return Math.hypot(path[i][0] - vector.x, path[i][1] - vector.y) < 0.05 * robot + 0.01;
    });
  }

  function mark([x, y], outer, inner) {
    const geometry = new THREE.RingGeometry(inner * robot, outer * robot, 40);
    const ring = new THREE.Mesh(geometry, new THREE.MeshBasicMaterial({ side: THREE.DoubleSide }));
    ring.position.set(x, y, 0.012 * robot);
    return ring;
  }

  function draw() {
    const box = canvas.getBoundingClientRect();
    const [width, height] = [Math.max(Math.round(box.width), 1), Math.max(Math.round(box.height), 1)];
    const ratio = window.devicePixelRatio || 1;
    if (renderer.getPixelRatio() !== ratio) renderer.setPixelRatio(ratio);
    const size = renderer.getSize(new THREE.Vector2());
    if (size.x !== width || size.y !== height) renderer.setSize(width, height, false);
    camera.aspect = width / height;
    target.set(0, 0, 0);
    let reach = 1.8 * robot;
    if (poses) {
      bodies.forEach((body, i) => {
        poses.place(frame, i, body.position);
        poses.turn(frame, i, body.quaternion);
      });
      trail.geometry.setDrawRange(0, Math.floor(frame) * 6);
      if (mode === "follow") target.copy(bodies[0].position);
      else {
        target.copy(stayed.target);
        reach = stayed.reach * 1.25;
      }
    }
    // The floor moves along by whole squares, so that it seems to have no end.
    const square = (v) => Math.round(v / (2 * step)) * 2 * step;
    floor.position.set(square(target.x), square(target.y), 0);
    const away = (turn.away * reach) / Math.tan((camera.fov * Math.PI) / 360);
    const flat = Math.cos(turn.above) * away;
    camera.position.set(
      target.x + Math.cos(turn.around) * flat,
      target.y + Math.sin(turn.around) * flat,
      Math.max(target.z + Math.sin(turn.above) * away, 0.02 * robot),
    );
    camera.far = away + 200 * robot;
    camera.near = 0.02 * robot;
    world.fog.near = away + 6 * robot;
    world.fog.far = away + 50 * robot;
    camera.lookAt(target);
    camera.updateProjectionMatrix();
    renderer.render(world, camera);
    canvas.dataset.frame = Math.floor(frame);
  }

  // ------------------------------------------------------------------------------- camera

  function look(change) {
    turn = {
      around: turn.around + (change.around ?? 0),
      above: Math.min(Math.max(turn.above + (change.above ?? 0), 0.02), 1.55),
      away: Math.min(Math.max(turn.away * (change.closer ? 1 / change.closer : 1), 0.2), 8),
    };
    plan();
    onCamera(turn);
  }
  onFingers(canvas, {
    onDrag: (dx, dy) => look({ around: -dx * 0.008, above: dy * 0.008 }),
    onPinch: (factor, x, y, dx, dy) => look({ closer: factor, around: -dx * 0.008, above: dy * 0.008 }),
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    look({ closer: Math.exp(-event.deltaY * 0.0012) });
  }, { passive: false });
  const KEYS = { ArrowLeft: { around: -0.15 }, ArrowRight: { around: 0.15 }, ArrowUp: { above: 0.1 },
    ArrowDown: { above: -0.1 }, "+": { closer: 1.2 }, "=": { closer: 1.2 }, "-": { closer: 1 / 1.2 } };
  canvas.addEventListener("keydown", (event) => {
    if (event.key in KEYS) {
      event.preventDefault();
      look(KEYS[event.key]);
    }
  });
  new ResizeObserver(plan).observe(canvas);

  load(null);
  return {
    load,
    show(next) {
      frame = poses ? Math.min(next, poses.frames - 1) : 0;
      plan();
    },
    setMode(next) { mode = next; plan(); },
    /** The box that the robot's way fits into; empty without one. */
    extent: () => way.clone(),
    setStay: stay,
    /** The other stage's camera: both look from the same side. */
    setCamera(next) { turn = next; plan(); },
    repaint: paint,
  };
}
