// Draw the map: Voronoi cells or a grid in two dimensions, bars in one, points in two axes of more.

import { prepareCanvas } from "./canvas.js";
import { namedColour, scaleColour, themeColour } from "./colours.js";
import { drawAxes, fitnessAxis } from "./map_axes.js";
import { cellPosition, descriptorPosition, descriptorSize, isFilled, mapFrame, toCanvas, toUnit } from "./map_view.js";

const FADED = 0.12; // opacity of cells that do not pass the filter

/** Draw the map of the archive on its canvas. Draws nothing as long as data is missing. */
export function drawMap(map) {
  const start = performance.now();
  const { context } = prepareCanvas(map.canvas);
  if (!map.run || !map.cells || !map.archive || !map.shade) return;
  const f = mapFrame(map);
  context.save();
  context.beginPath();
  context.rect(f.left, f.top, f.width, f.height);
  context.clip();
  if (descriptorSize(map) === 2) drawCells(map, context, f);
  else if (descriptorSize(map) === 1) drawBars(map, context, f);
  else drawPoints(map, context, f);
  drawPaths(map, context, f);
  for (const trajectory of map.trajectories) drawTrajectory(map, context, f, trajectory);
  map.stops.forEach((cell, i) => drawStop(map, context, f, cell, i + 1));
  context.restore();
  drawAxes(map, context, f);
  // For developer tools and benchmarks/viewer.py. Only the latest measure is kept.
  performance.clearMeasures("paint map");
  performance.measure("paint map", { start });
}

/**
 * Return the outline of each cell as a Path2D in the unit square. Returns an empty array unless the
 * descriptor has two dimensions.
 */
export function cellOutlines(map) {
  if (descriptorSize(map) !== 2) return [];
  if (map.cells.grid) return map.cells.centroids.map((centroid) => rectangle(map, centroid));
  return map.cells.corners.map((corners) => {
    const path = new Path2D();
    for (let i = 0; i < corners.length; i += 2) {
      path.lineTo(toUnit(map, corners[i], 0), toUnit(map, corners[i + 1], 1));
    }
    path.closePath();
    return path;
  });
}

/** Return the outline of the cell of a grid with this centroid, as a Path2D in the unit square. */
function rectangle(map, centroid) {
  const [width, height] = map.cells.grid.map((parts) => 1 / parts);
  const path = new Path2D();
  path.rect(toUnit(map, centroid[0], 0) - width / 2, toUnit(map, centroid[1], 1) - height / 2, width, height);
  return path;
}

/** Return the CSS colour of a cell of the map, or null if the cell has no value to show. */
function cellColour(map, cell) {
  const { shade } = map;
  const value = isFilled(map, cell) || shade.alsoEmpty ? shade.values?.[cell] : null;
  if (value === null || value === undefined) return null;
  if (shade.kind === "name") return value < 0 ? null : namedColour(value);
  return scaleColour(value, shade);
}

function drawCells(map, context, f) {
  const { view, outlines, selected, marked } = map;
  const [background, text, empty] = ["background", "text", "empty"].map(themeColour);
  const scale = [view.zoom * f.width, view.zoom * f.height];
  context.save();
  context.transform(scale[0], 0, 0, -scale[1], f.left - view.x * scale[0], f.top + f.height + view.y * scale[1]);
  // Borders of many small cells would cover them.
  context.lineWidth = Math.min(0.6, (20 * view.zoom) / Math.sqrt(outlines.length)) / Math.max(...scale);
  context.strokeStyle = background;
  for (let cell = 0; cell < outlines.length; cell++) {
    const colour = cellColour(map, cell);
    const faded = colour !== null && !map.passes(cell);
    context.fillStyle = colour === null || faded ? empty : colour;
    context.fill(outlines[cell]);
    if (faded) {
      context.globalAlpha = FADED;
      context.fillStyle = colour;
      context.fill(outlines[cell]);
      context.globalAlpha = 1;
    }
    context.stroke(outlines[cell]);
  }
  if (selected >= 0) {
    // Two lines of different colours, of which one is visible on every colour.
    for (const [style, width] of [[background, 5.5], [text, 2.5]]) {
      context.strokeStyle = style;
      context.lineWidth = width / Math.max(...scale);
      context.stroke(outlines[selected]);
    }
  }
  context.restore();
  for (const cell of marked ?? []) {
    drawDot(context, ...toCanvas(map, ...cellPosition(map, cell), f), 3.5, background, text);
  }
}

function drawBars(map, context, f) {
  const [background, text, empty] = ["background", "text", "empty"].map(themeColour);
  const { centroids } = map.cells;
  const order = centroids.map((c, cell) => [toUnit(map, c[0], 0), cell]).sort((a, b) => a[0] - b[0]);
  const [low, high] = fitnessAxis(map);
  order.forEach(([middle, cell], k) => {
    const from = k ? (order[k - 1][0] + middle) / 2 : 0;
    const to = k < order.length - 1 ? (order[k + 1][0] + middle) / 2 : 1;
    const [left] = toCanvas(map, from, 0, f);
    const [right] = toCanvas(map, to, 0, f);
    const filled = isFilled(map, cell);
    const height = Math.max(filled ? ((map.archive.fitness[cell] - low) / (high - low)) * f.height : 0, 3);
    context.globalAlpha = filled && !map.passes(cell) ? FADED : 1;
    context.fillStyle = cellColour(map, cell) ?? empty;
    context.fillRect(left, f.top + f.height - height, Math.max(right - left - 0.5, 0.5), height);
    if (cell === map.selected) {
      context.strokeStyle = text;
      context.lineWidth = 2;
      context.strokeRect(left, f.top + 1, right - left, f.height - 2);
    }
    if (map.marked?.has(cell)) {
      drawDot(context, (left + right) / 2, f.top + f.height - height / 2, 3, background, text);
    }
  });
  context.globalAlpha = 1;
}

function drawPoints(map, context, f) {
  const { selected, marked } = map;
  for (let cell = 0; cell < map.archive.fitness.length; cell++) {
    if (!isFilled(map, cell)) continue;
    context.globalAlpha = map.passes(cell) ? 1 : FADED;
    const radius = cell === selected ? 6 : marked?.has(cell) ? 5 : 3.5;
    const border = cell === selected || marked?.has(cell) ? themeColour("text") : "transparent";
    const position = toCanvas(map, ...cellPosition(map, cell), f);
    drawDot(context, ...position, radius, cellColour(map, cell) ?? "gray", border);
  }
  context.globalAlpha = 1;
}

/** Draw the paths of all elites as faint lines, thinner the more there are. */
function drawPaths(map, context, f) {
  context.strokeStyle = themeColour("text");
  context.globalAlpha = map.paths.length > 200 ? 0.2 : 0.4;
  context.lineWidth = 1;
  for (const path of map.paths) {
    context.beginPath();
    for (const descriptor of path) context.lineTo(...toCanvas(map, ...descriptorPosition(map, descriptor), f));
    context.stroke();
  }
  context.globalAlpha = 1;
}

/** Draw the number of a stop of the tour on its cell. */
function drawStop(map, context, f, cell, number) {
  const [x, y] = toCanvas(map, ...cellPosition(map, cell), f);
  drawDot(context, x, y, 8, themeColour("background"), themeColour("text"));
  context.fillStyle = themeColour("text");
  context.font = "bold 10px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(number, x, y);
}

/**
 * Draw the descriptors of a policy's states as a line, the requested descriptor as a ring, the reached one as
 * a dot, and the error between the two as a dashed line.
 */
function drawTrajectory(map, context, f, { colour, requested, reached, path }) {
  const background = themeColour("background");
  const at = (descriptor) => toCanvas(map, ...descriptorPosition(map, descriptor), f);
  if (path && path.length > 1 && descriptorSize(map) > 1) drawLine(context, path.map(at), colour, 1.5, []);
  if (!reached) return;
  drawLine(context, [at(requested), at(reached)], colour, 2, [5, 4]);
  drawDot(context, ...at(reached), 4.5, themeColour(colour), background);
  context.beginPath();
  context.arc(...at(requested), 7, 0, 2 * Math.PI);
  context.lineWidth = 4;
  context.strokeStyle = background;
  context.stroke();
  context.lineWidth = 2;
  context.strokeStyle = themeColour(colour);
  context.stroke();
}

/** Draw a line through points with a border, so that the line is visible on every colour. */
function drawLine(context, points, colour, width, dash) {
  for (const [style, lineWidth] of [[themeColour("background"), width + 2], [themeColour(colour), width]]) {
    context.beginPath();
    points.forEach((point) => context.lineTo(...point));
    context.setLineDash(dash);
    context.lineJoin = context.lineCap = "round";
    context.strokeStyle = style;
    context.lineWidth = lineWidth;
    context.stroke();
  }
  context.setLineDash([]);
}

function drawDot(context, x, y, radius, fill, border) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = fill;
  context.fill();
  context.strokeStyle = border;
  context.lineWidth = 1.2;
  context.stroke();
}
