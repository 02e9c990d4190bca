// A learning curve of one run, or of two: one line per seed, thick for the chosen seed.

import { oncePerFrame, prepareCanvas, shorten } from "./canvas.js";
import { themeColour } from "./colours.js";
import { extent, formatNumber, ticks } from "./numbers.js";

const MARGIN = { left: 48, right: 6, top: 26, bottom: 18 };
const LINE = 13; // height of a line of text

/**
 * Create a learning curve on a canvas, and return { set, repaint }: `set(data)` shows new data,
 * `repaint()` draws the curve again. The title has the values at the pointer, or the last values.
 */
export function createCurve(canvas) {
  // { title, runs }. Each run is { name, colour, x [n], values [n][seeds], seed }. The name of a single run is "".
  let data = null;
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
  const runs = data.runs.filter(({ values }) => values.flat().some((v) => v !== null));
  if (!runs.length) {
    writeTexts(context, [[`${data.title}: no values yet`, "text"]], 9, width);
    return;
  }
  const plot = createPlot(runs, width, height);
  drawTicks(context, plot, width, height);
  for (const run of runs) drawLines(context, plot, run);
  if (pointer !== null) drawPointer(context, plot, pointedAt(runs, plot, pointer), height);
  drawTitle(canvas, context, data.title, runs, pointer === null ? null : pointedAt(runs, plot, pointer), width);
}

/**
 * Return the ranges of both axes of a curve, and functions that convert between values and
 * positions on the canvas.
 */
function createPlot(runs, width, height) {
  let [low, high] = extent(runs.flatMap(({ values }) => values.flat()));
  if (low > 0 && low < 0.5 * high) low = 0;
  if (high === low) high = low + 1;
  const first = Math.min(0, ...runs.map(({ x }) => x[0]));
  const last = Math.max(...runs.map(({ x }) => x.at(-1)), first + 1);
  const top = MARGIN.top + (runs.length > 1 ? LINE : 0); // the values of two runs have a line of their own
  const plotWidth = width - MARGIN.left - MARGIN.right;
  const plotHeight = height - top - MARGIN.bottom;
  return {
    low, high, first, last, top,
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
function drawLines(context, plot, { x, values, seed, colour }) {
  const others = values[0].map((_, s) => s).filter((s) => s !== seed);
  for (const s of [...others, seed]) {
    context.beginPath();
    let connected = false;
    for (let i = 0; i < x.length; i++) {
      const value = values[i][s];
      if (value !== null) context[connected ? "lineTo" : "moveTo"](plot.toX(x[i]), plot.toY(value));
      connected = value !== null;
    }
    context.strokeStyle = themeColour(colour);
    context.globalAlpha = s === seed ? 1 : 0.35;
    context.lineWidth = s === seed ? 2 : 1;
    context.stroke();
  }
  context.globalAlpha = 1;
}

/** Return the index of the first value of `x` that is at least `value`, or of the last one. */
function indexAt({ x }, value) {
  const i = x.findIndex((each) => each >= value);
  return i < 0 ? x.length - 1 : i;
}

/** Return the value on the horizontal axis, of one of the runs, that a position on the canvas points at. */
function pointedAt(runs, plot, position) {
  const value = plot.fromX(position);
  return Math.max(...runs.map((run) => run.x[indexAt(run, value)]));
}

function drawPointer(context, plot, value, height) {
  context.strokeStyle = themeColour("text");
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(plot.toX(value), plot.top);
  context.lineTo(plot.toX(value), height - MARGIN.bottom);
  context.stroke();
}

/**
 * Draw the title of a curve and the values of the chosen seeds, at a value of the horizontal axis or,
 * if `at` is null, at the end. At the end, also updates the description for screen readers.
 */
function drawTitle(canvas, context, title, runs, at, width) {
  const found = runs.map((run) => {
    const i = indexAt(run, at ?? Infinity);
    return { ...run, at: formatNumber(run.x[i]), value: formatNumber(run.values[i][run.seed], title.includes("%") ? 3 : 4) };
  });
  const where = at === null ? "" : ` at ${formatNumber(at)}`;
  const values = found.map(({ value, colour }) => [value, colour]);
  if (runs.length === 1) writeTexts(context, [[`${title}  ${values[0][0]}${where}`, "text"]], 9, width);
  else {
    writeTexts(context, [[`${title}${where}`, "text"]], 9, width);
    writeTexts(context, values, 9 + LINE, width);
  }
  if (at !== null) return;
  const said = found.map((run) => `${run.name && `${run.name} `}${run.value} after ${run.at} evaluations`);
  canvas.setAttribute("aria-label", `${title} of the chosen seed: ${said.join(", ")}`);
}

/** Write texts [text, name of a colour] next to each other at a height, as far as there is room. */
function writeTexts(context, texts, y, width) {
  context.textAlign = "left";
  let x = 4;
  for (const [text, colour] of texts) {
    context.fillStyle = themeColour(colour);
    const short = shorten(context, text, width - x);
    context.fillText(short, x, y);
    x += context.measureText(`${short}   `).width;
  }
}
