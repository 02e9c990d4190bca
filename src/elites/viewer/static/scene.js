// Objects of the scene: the robot and the walls, the floor, the trail of the robot, and rings on the ground.

import * as THREE from "./three/three.module.min.js";
import { limbColour } from "./colours.js";

const END_SHADE = 0.62; // brightness of the end of a limb, such as a foot

/** Return the materials of a scene: { core, wall, bodies }. `core` is that of the trunk. */
export function createMaterials({ bodies, limbs, limb_ends: ends }) {
  const core = new THREE.MeshStandardMaterial({ roughness: 0.65 });
  const wall = new THREE.MeshStandardMaterial({ roughness: 0.9, transparent: true, opacity: 0.55 });
  const materials = bodies.map((_, i) => {
    const limb = limbs?.[i] ?? Math.min(i, 1);
    if (limb === 0) return core;
    const color = new THREE.Color(limbColour(limb)).multiplyScalar(ends?.[i] ? END_SHADE ** 2.2 : 1);
    return new THREE.MeshStandardMaterial({ roughness: 0.65, color });
  });
  return { core, wall, bodies: materials };
}

/**
 * Add the robot and the walls of a scene to the world, and return { bodies, scenery }.
 * `bodies` has a group of meshes for each body, `scenery` the meshes of the walls.
 */
export function addBodies(world, scene, materials) {
  const bodies = scene.bodies.map(() => new THREE.Group());
  const scenery = [];
  world.add(...bodies);
  for (const shape of scene.shapes) {
    const geometry = geometryOf(shape);
    if (!geometry) continue;
    const fixed = shape.body === null;
    const mesh = new THREE.Mesh(geometry, fixed ? materials.wall : materials.bodies[shape.body]);
    mesh.position.set(...shape.position);
    const [w, x, y, z] = shape.rotation;
    mesh.quaternion.set(x, y, z, w);
    if (fixed) scenery.push(mesh);
    (fixed ? world : bodies[shape.body]).add(mesh);
  }
  return { bodies, scenery };
}

/** Return the geometry of a shape, or null for a plane, which is drawn as the floor. */
function geometryOf(shape) {
  const { kind, size } = shape;
  const [radius, length] = size;
  if (kind === "capsule") {
    return new THREE.CapsuleGeometry(radius, Math.max(length - 2 * radius, 0), 6, 16).rotateX(Math.PI / 2);
  }
  if (kind === "cylinder") return new THREE.CylinderGeometry(radius, radius, length, 32).rotateX(Math.PI / 2);
  if (kind === "sphere") return new THREE.SphereGeometry(radius, 24, 16);
  if (kind === "ellipsoid") return new THREE.SphereGeometry(1, 24, 16).scale(...size);
  if (kind === "box") return new THREE.BoxGeometry(2 * size[0], 2 * size[1], 2 * size[2]);
  if (kind === "mesh") return meshGeometry(shape);
  return null;
}

/** Return the geometry of a mesh with flat triangles, whose edges are visible without textures. */
function meshGeometry({ vertices, faces }) {
  const corners = new Float32Array(faces.length * 3);
  faces.forEach((vertex, i) => corners.set(vertices.slice(3 * vertex, 3 * vertex + 3), 3 * i));
  const geometry = new THREE.BufferGeometry();
  geometry.setAttribute("position", new THREE.BufferAttribute(corners, 3));
  geometry.computeVertexNormals();
  return geometry;
}

/** Return the height of the floor: that of the first plane, or 0 without a plane. */
export const floorHeight = (scene) => scene.shapes.find((shape) => shape.kind === "plane")?.position[2] ?? 0;

/**
 * Return the mesh of a floor of squares in two colours. `width` is the width of the floor, and
 * `side` the side length of a square.
 */
export function createFloor(renderer, width, side, one, other) {
  const squares = 2 * Math.ceil(width / side / 2);
  const mixed = one.clone().lerp(other, 0.45);
  const pixels = [one, mixed, mixed, one].flatMap((colour) => {
    const [r, g, b] = colour.getHexString(THREE.SRGBColorSpace).match(/../g).map((hex) => parseInt(hex, 16));
    return [r, g, b, 255];
  });
  const texture = new THREE.DataTexture(new Uint8Array(pixels), 2, 2);
  Object.assign(texture, { wrapS: THREE.RepeatWrapping, wrapT: THREE.RepeatWrapping, colorSpace: THREE.SRGBColorSpace,
    generateMipmaps: true, minFilter: THREE.LinearMipmapLinearFilter, magFilter: THREE.NearestFilter,
    anisotropy: renderer.capabilities.getMaxAnisotropy(), needsUpdate: true });
  texture.repeat.set(squares / 2, squares / 2);
  const geometry = new THREE.PlaneGeometry(squares * side, squares * side);
  // Some graphics drivers draw thin lines on the floor behind it, unless the floor is a pixel's slope farther away.
  const behind = { polygonOffset: true, polygonOffsetFactor: 1, polygonOffsetUnits: 1 };
  return new THREE.Mesh(geometry, new THREE.MeshBasicMaterial({ map: texture, ...behind }));
}

/**
 * Return the mesh of a ribbon on the ground along the path of the first body. Its width is
 * proportional to `markSize`. `ground` is the height of the floor. The child of the mesh is a line
 * along the ribbon, for views in which the ribbon is narrower than a pixel.
 */
export function createTrail(poses, markSize, ground) {
  const points = new Float32Array(poses.frames * 6);
  const [here, next, across] = [new THREE.Vector3(), new THREE.Vector3(), new THREE.Vector3(0, 1, 0)];
  const [halfWidth, height] = [0.035 * markSize, ground + 0.008 * markSize];
  for (let i = 0; i < poses.frames; i++) {
    poses.position(i, 0, here).setZ(0);
    poses.position(Math.min(i + 1, poses.frames - 1), 0, next).setZ(0).sub(here);
    if (next.length() > 1e-4 * markSize) across.set(-next.y, next.x, 0).normalize();
    points.set([here.x + across.x * halfWidth, here.y + across.y * halfWidth, height,
      here.x - across.x * halfWidth, here.y - across.y * halfWidth, height], i * 6);
  }
  const index = [];
  for (let i = 0; i + 1 < poses.frames; i++) index.push(2 * i, 2 * i + 1, 2 * i + 2, 2 * i + 1, 2 * i + 3, 2 * i + 2);
  const geometry = new THREE.BufferGeometry();
  geometry.setAttribute("position", new THREE.BufferAttribute(points, 3));
  geometry.setIndex(index);
  const material = new THREE.MeshBasicMaterial({ side: THREE.DoubleSide, transparent: true, opacity: 0.6 });
  const edge = new THREE.BufferGeometry().setAttribute("position", geometry.getAttribute("position"));
  edge.setIndex(Array.from({ length: poses.frames }, (_, i) => 2 * i));
  return new THREE.Mesh(geometry, material).add(new THREE.Line(edge, material));
}

/**
 * Return thin lines on the ground along paths, each a list of places [x, y]. Arguments as in
 * `createTrail`.
 */
export function createLines(paths, markSize, ground) {
  const height = ground + 0.006 * markSize;
  const points = paths.flatMap((path) => path.slice(1).flatMap((to, i) => [...path[i], height, ...to, height]));
  const geometry = new THREE.BufferGeometry();
  geometry.setAttribute("position", new THREE.Float32BufferAttribute(points, 3));
  const options = { transparent: true, opacity: 0.35, fog: false, depthWrite: false };
  return new THREE.LineSegments(geometry, new THREE.LineBasicMaterial(options));
}

/**
 * Return the mesh of a ring on the ground at (x, y). The radii are in units of `markSize`, and
 * `ground` is the height of the floor.
 */
export function createRing([x, y], outer, inner, markSize, ground) {
  const geometry = new THREE.RingGeometry(inner * markSize, outer * markSize, 40);
  const ring = new THREE.Mesh(geometry, new THREE.MeshBasicMaterial({ side: THREE.DoubleSide }));
  ring.position.set(x, y, ground + 0.012 * markSize);
  return ring;
}
