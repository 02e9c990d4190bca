// The tooltip of the map. It covers neither the cell that it describes nor the cells around that cell.

import { cellPosition, descriptorSize, mapFrame, toCanvas, toUnit } from "./map_view.js";

const GAP = 8; // pixels between the tooltip and what it must not cover
const POINT_RADIUS = 20; // pixels around an elite that is drawn as a point

/**
 * Return { show, hide } for the tooltip of a map. `show(cell)` shows the text of a cell beside the
 * cell and its neighbours.
 */
export function createTooltip(map, element, describe) {
  let shown = -1;
  return {
    show(cell) {
      const text = describe(cell);
      if (cell === shown && text === element.textContent && !element.hidden) return;
      shown = cell;
      element.textContent = text;
      element.hidden = false;
      place(map, element, cell);
    },
    hide() {
      element.hidden = true;
    },
  };
}

/**
 * Move the tooltip to a place inside of the map where it covers neither a cell nor its neighbours. If
 * there is none, uses one inside of the window, and otherwise keeps only the cell itself free.
 */
function place(map, element, cell) {
  const { left, top, right, bottom } = map.canvas.getBoundingClientRect();
  const toWindow = ([l, t, r, b]) => [l + left, t + top, r + left, b + top];
  const f = mapFrame(map);
  const own = toWindow(cellBox(map, cell, f));
  const around = toWindow(surroundings(map, cell, f));
  const inWindow = [0, 0, document.documentElement.clientWidth, innerHeight];
  const inMap = clip([left, top, right, bottom], inWindow);
  const size = [element.offsetWidth, element.offsetHeight];
  const found = beside(around, size, inMap) ?? beside(around, size, inWindow) ?? beside(own, size, inWindow)
    ?? farCorner(own, size, inWindow);
  element.style.left = `${found[0]}px`;
  element.style.top = `${found[1]}px`;
}

/**
 * Return the position [left, top] of a rectangle of a `size` that lies beside the box `kept` and
 * inside of the box `room`, or null if there is none. Boxes are [left, top, right, bottom].
 */
function beside(kept, [width, height], room) {
  const along = (from, to, own, low, high) => Math.min(Math.max((from + to - own) / 2, low), high - own);
  const x = along(kept[0], kept[2], width, room[0], room[2]);
  const y = along(kept[1], kept[3], height, room[1], room[3]);
  const places = [[kept[2] + GAP, y], [kept[0] - GAP - width, y], [x, kept[3] + GAP], [x, kept[1] - GAP - height]];
  const fits = ([l, t]) => l >= room[0] && t >= room[1] && l + width <= room[2] && t + height <= room[3];
  return places.find(fits) ?? null;
}

/** Return the position [left, top] in the corner of a room that is farthest from the box `kept`. */
function farCorner(kept, [width, height], room) {
  const far = (from, to, own, low, high) => ((from + to) / 2 > (low + high) / 2 ? low : Math.max(high - own, low));
  return [far(kept[0], kept[2], width, room[0], room[2]), far(kept[1], kept[3], height, room[1], room[3])];
}

const clip = (box, room) => box.map((v, i) => (i < 2 ? Math.max(v, room[i]) : Math.min(v, room[i])));

/** Return the box [left, top, right, bottom] around a cell and the cells that it touches, on the canvas. */
function surroundings(map, cell, f) {
  const own = cellBox(map, cell, f);
  let [left, top, right, bottom] = own;
  if (descriptorSize(map) > 2) return own;
  for (let other = 0; other < map.cells.centroids.length; other++) {
    const box = cellBox(map, other, f);
    const touches = box[0] <= own[2] + 1 && box[2] >= own[0] - 1 && box[1] <= own[3] + 1 && box[3] >= own[1] - 1;
    if (!touches) continue;
    [left, top] = [Math.min(left, box[0]), Math.min(top, box[1])];
    [right, bottom] = [Math.max(right, box[2]), Math.max(bottom, box[3])];
  }
  return [left, top, right, bottom];
}

/** Return the box [left, top, right, bottom] of a cell in CSS pixels of the canvas. `f` is the frame of the map. */
function cellBox(map, cell, f) {
  const box = (us, vs) => {
    const [left, bottom] = toCanvas(map, Math.min(...us), Math.min(...vs), f);
    const [right, top] = toCanvas(map, Math.max(...us), Math.max(...vs), f);
    return [left, top, right, bottom];
  };
  const [u, v] = cellPosition(map, cell);
  if (descriptorSize(map) > 2) {
    const [x, y] = toCanvas(map, u, v, f);
    return [x - POINT_RADIUS, y - POINT_RADIUS, x + POINT_RADIUS, y + POINT_RADIUS];
  }
  if (descriptorSize(map) === 1) {
    const half = 0.5 / map.cells.centroids.length; // the bars have about the same width
    return box([u - half, u + half], [0, 1]);
  }
  if (map.cells.grid) {
    const [width, height] = map.cells.grid.map((parts) => 0.5 / parts);
    return box([u - width, u + width], [v - height, v + height]);
  }
  const corners = map.cells.corners[cell];
  const axis = (i) => corners.filter((_, k) => k % 2 === i).map((value) => toUnit(map, value, i));
  return box(axis(0), axis(1));
}
