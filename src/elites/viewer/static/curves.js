// A learning curve: one line per seed, thick for the chosen seed.

import { oncePerFrame, prepareCanvas, shorten } from "./canvas.js";
import { themeColour } from "./colours.js";
import { extent, formatNumber, ticks } from "./numbers.js";

const MARGIN = { left: 48, right: 6, top: 26, bottom: 18 };

/**
 * Create a learning curve on a canvas, and return { set, repaint }: `set(data)` shows new data,
 * `repaint()` draws the curve again. The title has the value at the pointer, or the last value.
 */
export function createCurve(canvas) {
  let data = null; // { title, x [n], values [n][seeds], seed }
  let pointer = null; // horizontal position on the canvas, or null
  const repaint = oncePerFrame(() => draw(canvas, data, pointer));
  canvas.addEventListener("pointermove", (event) => {
    pointer = event.clientX - canvas.getBoundingClientRect().left;
    repaint();
  });
  canvas.addEventListener("pointerleave", () => {
    pointer = null;
    repaint();
  });
  new ResizeObserver(repaint).observe(canvas);
  return {
    set(next) {
      data = next;
      repaint();
    },
    repaint,
  };
}

function draw(canvas, data, pointer) {
  const { context, width, height } = prepareCanvas(canvas);
  if (!data) return;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  const numbers = data.values.flat().filter((v) => v !== null);
  if (!numbers.length) {
    context.fillStyle = themeColour("text");
    context.textAlign = "left";
    context.fillText(`${data.title}: no values yet`, 4, 10);
    return;
  }
  const plot = createPlot(data, numbers, width, height);
  drawTicks(context, plot, width, height);
  drawLines(context, plot, data);
  const i = pointer === null ? data.x.length - 1 : indexAt(data, plot, pointer);
  if (pointer !== null) drawPointer(context, plot, data.x[i], height);
  drawTitle(canvas, context, data, i, pointer, width);
}

/**
 * Return the ranges of both axes of a curve, and functions that convert between values and
 * positions on the canvas.
 */
function createPlot({ x }, numbers, width, height) {
  let [low, high] = extent(numbers);
  if (low > 0 && low < 0.5 * high) low = 0;
  if (high === low) high = low + 1;
  const first = Math.min(0, x[0]);
  const last = Math.max(x[x.length - 1], first + 1);
  const plotWidth = width - MARGIN.left - MARGIN.right;
  const plotHeight = height - MARGIN.top - MARGIN.bottom;
  return {
    low, high, first, last,
    toX: (value) => MARGIN.left + ((value - first) / (last - first)) * plotWidth,
    toY: (value) => height - MARGIN.bottom - ((value - low) / (high - low)) * plotHeight,
    fromX: (position) => first + ((position - MARGIN.left) / plotWidth) * (last - first),
  };
}

function drawTicks(context, plot, width, height) {
  context.lineWidth = 1;
  context.strokeStyle = themeColour("border");
  context.fillStyle = themeColour("muted");
  context.textAlign = "right";
  for (const [value, label] of ticks(plot.low, plot.high, 3)) {
    const y = plot.toY(value);
    context.beginPath();
    context.moveTo(MARGIN.left, y);
    context.lineTo(width - MARGIN.right, y);
    context.stroke();
    context.fillText(label, MARGIN.left - 4, y);
  }
  context.textAlign = "center";
  for (const [value, label] of ticks(plot.first, plot.last, 3)) {
    const x = plot.toX(value);
    if (x < width - 14) context.fillText(label, x, height - 8);
  }
}

/** Draw a line for each seed, with the chosen seed on top. Missing values interrupt a line. */
function drawLines(context, plot, { x, values, seed }) {
  const others = values[0].map((_, s) => s).filter((s) => s !== seed);
  for (const s of [...others, seed]) {
    context.beginPath();
    let connected = false;
    for (let i = 0; i < x.length; i++) {
      const value = values[i][s];
      if (value !== null) context[connected ? "lineTo" : "moveTo"](plot.toX(x[i]), plot.toY(value));
      connected = value !== null;
    }
    context.strokeStyle = themeColour(s === seed ? "elite" : "muted");
    context.globalAlpha = s === seed ? 1 : 0.5;
    context.lineWidth = s === seed ? 2 : 1;
    context.stroke();
  }
  context.globalAlpha = 1;
}

/**
 * Return the index of the first value of `x` at or to the right of a position on the canvas, or of
 * the last value if there is none.
 */
function indexAt({ x }, plot, position) {
  const i = x.findIndex((value) => value >= plot.fromX(position));
  return i < 0 ? x.length - 1 : i;
}

function drawPointer(context, plot, value, height) {
  context.strokeStyle = themeColour("text");
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(plot.toX(value), MARGIN.top);
  context.lineTo(plot.toX(value), height - MARGIN.bottom);
  context.stroke();
}

/**
 * Draw the title of a curve, followed by value `i` of the chosen seed. If there is no pointer on
 * the curve, also updates the description for screen readers.
 */
function drawTitle(canvas, context, { title, x, values, seed }, i, pointer, width) {
  const value = formatNumber(values[i][seed], title.includes("%") ? 3 : 4);
  const where = pointer === null ? "" : ` at ${formatNumber(x[i])}`;
  context.fillStyle = themeColour("text");
  context.textAlign = "left";
  context.fillText(shorten(context, `${title}  ${value}${where}`, width - 4), 4, 9);
  const label = `${title} of the chosen seed: ${value} after ${formatNumber(x[i])} evaluations`;
  if (pointer === null) canvas.setAttribute("aria-label", label);
}
