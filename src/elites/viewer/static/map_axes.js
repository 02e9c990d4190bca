// Axes of the map: ticks and names.

import { shorten } from "./canvas.js";
import { themeColour } from "./colours.js";
import { descriptorSize, fromCanvas, fromUnit, toCanvas, toUnit } from "./map_view.js";
import { extent, ticks } from "./numbers.js";
import { axisLabel } from "./state.js";

/** Return [low, high], the fitness at the bottom and at the top of a one-dimensional map. */
export function fitnessAxis(map) {
  const [least, most] = extent(map.archive.fitness);
  return [Math.min(0, least), Math.max(most, least + 1e-9, 1e-9)];
}

/**
 * Draw the border of the map, and the ticks and names of both axes. `f` is the frame of the map.
 */
export function drawAxes(map, context, f) {
  context.strokeStyle = themeColour("border");
  context.lineWidth = 1;
  context.strokeRect(f.left + 0.5, f.top + 0.5, f.width - 1, f.height - 1);
  context.fillStyle = themeColour("muted");
  context.font = "11px system-ui, sans-serif";
  const [x, y] = descriptorSize(map) === 1 ? [0, null] : map.axes;
  const from = fromCanvas(map, f.left, f.top + f.height, f);
  const to = fromCanvas(map, f.left + f.width, f.top, f);
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const [value, label] of ticks(fromUnit(map, from[0], x), fromUnit(map, to[0], x), 5)) {
    context.fillText(label, toCanvas(map, toUnit(map, value, x), 0, f)[0], f.top + f.height + 4);
  }
  const middle = f.left + f.width / 2;
  context.fillText(shorten(context, axisLabel(x), f.width), middle, f.top + f.height + 19);
  context.textBaseline = "middle";
  context.textAlign = "right";
  if (y === null) {
    const [low, high] = fitnessAxis(map);
    for (const [value, label] of ticks(low, high, 4)) {
      context.fillText(label, f.left - 5, f.top + f.height * (1 - (value - low) / (high - low)));
    }
  } else {
    for (const [value, label] of ticks(fromUnit(map, from[1], y), fromUnit(map, to[1], y), 5)) {
      context.fillText(label, f.left - 5, toCanvas(map, 0, toUnit(map, value, y), f)[1]);
    }
  }
  context.save();
  context.translate(9, f.top + f.height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText(shorten(context, y === null ? "fitness" : axisLabel(y), f.height), 0, 0);
  context.restore();
}
