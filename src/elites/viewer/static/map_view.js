// Geometry of the map: where cells are on the canvas, zooming, and which cell is at a position.
//
// Positions on the map are in the unit square: 0 is the lower and 1 the upper bound of an axis.

const MARGIN = { left: 44, right: 8, top: 8, bottom: 36 };
const MAX_ZOOM = 40;
const POINT_DISTANCE = 12; // pixels within which a click selects a point

export const descriptorSize = (map) => map.run.low.length;
export const isFilled = (map, cell) => map.archive.fitness[cell] !== null;

/**
 * Return the position of a value between the bounds of a descriptor axis, as a number from 0 to 1.
 */
export function toUnit(map, value, axis) {
  return (value - map.run.low[axis]) / (map.run.high[axis] - map.run.low[axis]);
}

/**
 * Return the value at a position between the bounds of a descriptor axis. `share` is 0 at the lower
 * and 1 at the upper bound.
 */
export function fromUnit(map, share, axis) {
  return map.run.low[axis] + share * (map.run.high[axis] - map.run.low[axis]);
}

/**
 * Return the frame of the map { left, top, width, height }: its part of the canvas, in CSS pixels.
 */
export function mapFrame(map) {
  const box = map.canvas.getBoundingClientRect();
  return {
    left: MARGIN.left,
    top: MARGIN.top,
    width: Math.max(box.width - MARGIN.left - MARGIN.right, 1),
    height: Math.max(box.height - MARGIN.top - MARGIN.bottom, 1),
  };
}

/** Store the margins in the data of the canvas, so that tests can compute where a descriptor is. */
export const publishMargin = (canvas) => (canvas.dataset.margin = JSON.stringify(MARGIN));

/**
 * Return the position [x, y] on the canvas, in CSS pixels, of a position (u, v) in the unit square.
 */
export function toCanvas({ view }, u, v, f) {
  return [f.left + (u - view.x) * view.zoom * f.width, f.top + (1 - (v - view.y) * view.zoom) * f.height];
}

/** Return the position [u, v] in the unit square of a position (x, y) on the canvas. */
export function fromCanvas({ view }, x, y, f) {
  return [view.x + (x - f.left) / f.width / view.zoom, view.y + (1 - (y - f.top) / f.height) / view.zoom];
}

export function isInFrame(map, x, y) {
  const f = mapFrame(map);
  return x >= f.left && x <= f.left + f.width && y >= f.top && y <= f.top + f.height;
}

/**
 * Return the position [u, v] of a descriptor in the unit square, in the two axes that are shown.
 */
export function descriptorPosition(map, descriptor) {
  if (descriptorSize(map) === 1) return [toUnit(map, descriptor[0], 0), 0.5];
  return map.axes.map((axis) => toUnit(map, descriptor[axis], axis));
}

/**
 * Return the position [u, v] of a cell in the unit square: that of its centroid or, with more than
 * two axes, of its elite's descriptor.
 */
export function cellPosition(map, cell) {
  const own = descriptorSize(map) > 2 ? map.archive.descriptors[cell] : null;
  return descriptorPosition(map, own && own[0] !== null ? own : map.cells.centroids[cell]);
}

/** Return the number of the cell at a position on the canvas, or -1 if there is none. */
export function cellAt(map, x, y) {
  if (!map.cells || !map.archive || !isInFrame(map, x, y)) return -1;
  const f = mapFrame(map);
  const [u, v] = fromCanvas(map, x, y, f);
  // The distance to a centroid is relative to the ranges, as in the archive: only then is the nearest
  // centroid that of the cell. The distance to a point is measured in pixels.
  const points = descriptorSize(map) > 2;
  const height = descriptorSize(map) === 1 ? 0 : 1;
  let [best, nearest] = [-1, points ? POINT_DISTANCE ** 2 : Infinity];
  for (let cell = 0; cell < map.cells.centroids.length; cell++) {
    if (points && !isFilled(map, cell)) continue;
    const position = cellPosition(map, cell);
    const [px, py] = toCanvas(map, ...position, f);
    const distance = points
      ? (px - x) ** 2 + (py - y) ** 2
      : (position[0] - u) ** 2 + ((position[1] - v) * height) ** 2;
    if (distance < nearest) [best, nearest] = [cell, distance];
  }
  return best;
}

/**
 * Return the descriptor values at a position on the canvas, as an object keyed by axis. It has only
 * the axes that are shown.
 */
export function valuesAt(map, x, y) {
  const [u, v] = fromCanvas(map, x, y, mapFrame(map)).map((share) => Math.min(Math.max(share, 0), 1));
  if (descriptorSize(map) === 1) return { 0: fromUnit(map, u, 0) };
  const [horizontal, vertical] = map.axes;
  return { [horizontal]: fromUnit(map, u, horizontal), [vertical]: fromUnit(map, v, vertical) };
}

/**
 * Return the number of the nearest cell in a direction from the selected cell, or -1 if there is
 * none. If no cell is selected, starts in the middle of the map.
 */
export function neighbour(map, [dx, dy]) {
  const from = map.selected >= 0 ? cellPosition(map, map.selected) : [0.5, 0.5];
  const middle = map.selected >= 0 ? -1 : cellAt(map, ...toCanvas(map, ...from, mapFrame(map)));
  if (middle >= 0) return middle;
  let [best, least] = [-1, Infinity];
  for (let cell = 0; cell < map.cells.centroids.length; cell++) {
    if (cell === map.selected || (descriptorSize(map) > 2 && !isFilled(map, cell))) continue;
    const [u, v] = cellPosition(map, cell);
    const along = (u - from[0]) * dx + (v - from[1]) * dy;
    const aside = Math.abs((u - from[0]) * dy) + Math.abs((v - from[1]) * dx);
    if (along <= 1e-9 || aside > along * 1.2) continue;
    const distance = along + 2 * aside;
    if (distance < least) [best, least] = [cell, distance];
  }
  return best;
}

// ------------------------------------------------------------------------------------- view

/** Zoom the map by a factor around a position on the canvas, or around the middle of the map. */
export function zoomView(map, factor, x, y) {
  const f = mapFrame(map);
  const [u, v] = fromCanvas(map, x ?? f.left + f.width / 2, y ?? f.top + f.height / 2, f);
  const zoom = Math.min(Math.max(map.view.zoom * factor, 1), MAX_ZOOM);
  const change = map.view.zoom / zoom;
  setView(map, { zoom, x: u - (u - map.view.x) * change, y: v - (v - map.view.y) * change });
}

/** Move the map by a distance in pixels, as far as its borders allow. */
export function moveView(map, dx, dy) {
  const f = mapFrame(map);
  const { zoom, x, y } = map.view;
  setView(map, { zoom, x: x - dx / f.width / zoom, y: y + dy / f.height / zoom });
}

/** Reset the view, so that the whole map is visible. */
export const resetView = (map) => setView(map, { zoom: 1, x: 0, y: 0 });

/** Move the visible part of the map, if necessary, so that a cell is visible. */
export function bringIntoView(map, cell) {
  const [u, v] = cellPosition(map, cell);
  const size = 1 / map.view.zoom;
  const centred = (from, at) => (at < from + 0.1 * size || at > from + 0.9 * size ? at - size / 2 : from);
  setView(map, { ...map.view, x: centred(map.view.x, u), y: centred(map.view.y, v) });
}

/** Set which part of the map is visible. The part is kept within the unit square. */
function setView(map, { zoom, x, y }) {
  const most = 1 - 1 / zoom;
  map.view = { zoom, x: Math.min(Math.max(x, 0), most), y: Math.min(Math.max(y, 0), most) };
  // A finger scrolls the page over the whole map, but moves the map once that is zoomed.
  map.canvas.style.touchAction = zoom > 1 ? "none" : "pan-y";
}
