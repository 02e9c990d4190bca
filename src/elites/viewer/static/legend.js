// Colours of the cells and their legend.

import { namedColour, scaleColour } from "./colours.js";
import { $, createElement, fillSelect } from "./dom.js";
import { extent, quantile, ticks } from "./numbers.js";
import { exported } from "./requests.js";
import { markedCells, state } from "./state.js";

// Columns of an archive that can be shown as colours, and their titles.
const TITLES = {
  fitness: "fitness",
  actor_error: "descriptor error of the distilled policy",
  error: "descriptor error of the elite, re-evaluated",
  actor_fitness: "fitness of the distilled policy, by the cell requested",
  actor_rebinned: "fitness of the distilled policy, by the cell reached",
  between_error: "descriptor error of the distilled policy between elites",
  origin: "variation",
  born: "iteration of addition",
};

const ALSO_EMPTY = ["actor_rebinned", "between_error"]; // columns with values for cells without an elite
const isError = (name) => name.endsWith("error"); // a small value is better

/** Fill the control "colour" with all properties by which cells can be coloured. */
export const listColours = () => fillSelect($("colour"), Object.entries(TITLES));

/**
 * Enable those options of the control "colour" for which the current archive has values. Selects
 * the user's choice if it is enabled, otherwise fitness.
 */
export function offerColours() {
  const options = [...$("colour").options];
  for (const option of options) {
    const known = state.archive[option.value]?.some((v) => v !== null && v !== -1) ?? false;
    option.disabled = !known && option.value !== "fitness";
  }
  const chosen = options.find((option) => option.value === state.colour);
  $("colour").value = chosen.disabled ? "fitness" : state.colour;
}

/**
 * Return how the map colours the cells of the current archive: { kind, values, low, high, reversed,
 * alsoEmpty }. `kind` is "number", or "name" for variations, which have no scale. On a `reversed`
 * scale, small values are light. `alsoEmpty` says whether cells without an elite are coloured.
 */
export function currentShade() {
  const name = $("colour").value;
  const values = state.archive[name];
  if (name === "origin") return { kind: "name", values };
  const [low, high] = rangeOf(name, values);
  return { kind: "number", values, low, high, reversed: isError(name), alsoEmpty: ALSO_EMPTY.includes(name) };
}

/**
 * Return the range [low, high] of the colours of a column. Fitness has one range at all iterations,
 * and the largest errors, which are rare, do not stretch the scale of errors.
 */
function rangeOf(name, values) {
  if (name === "fitness") return state.fitnessRange ?? ownRange(values);
  const [low, high] = ownRange(values);
  return isError(name) ? [Math.min(low, 0), quantile(values.filter((_, cell) => isShown(cell)), 0.95) || high] : [low, high];
}

const ownRange = (values) => extent(values.filter((_, cell) => isShown(cell)));
const isShown = (cell) => ALSO_EMPTY.includes($("colour").value) || state.archive.fitness[cell] !== null;

/** Show the legend of the colours and marks on the map. `shade` says how the cells are coloured. */
export function showLegend(shade) {
  const legend = $("legend");
  legend.replaceChildren(...(shade.kind === "name" ? nameItems(shade) : scaleItems(shade)));
  if (markedCells()?.size) {
    legend.append(createElement("span", exported ? "○ has a recording" : "○ has its policy in this run"));
  }
  if ($("colour").value !== state.colour) {
    const evaluated = state.run.evaluated_at;
    const how = evaluated === null ? "run 'elites evaluate' to compute it" : `only at iteration ${evaluated}`;
    legend.append(createElement("span", `(${TITLES[state.colour]}: ${how})`));
  }
}

/** Return legend elements, one for each variation: coloured square, name and number of cells. */
function nameItems({ values }) {
  const counts = state.run.origins.map((_, i) => values.filter((v) => v === i).length);
  return state.run.origins.flatMap((name, i) => {
    if (!counts[i]) return [];
    const item = createElement("span");
    const square = createElement("i");
    square.style.background = namedColour(i);
    item.append(square, `${name} (${counts[i]})`);
    return [item];
  });
}

/** Return the legend elements of a colour scale: colour bar with ticks, and title. */
function scaleItems(shade) {
  const { values, low, high } = shade;
  const scale = createElement("div");
  scale.className = "scale";
  scale.append(colourBar(shade), ...ticks(low, high, 5).map(([value, label]) => {
    const tick = createElement("span", label);
    tick.style.left = `${(100 * (value - low)) / (high - low || 1)}%`;
    return tick;
  }));
  const [least, most] = ownRange(values);
  const beyond = least < low || most > high ? ". Values beyond the scale have the colour of its end" : "";
  return [scale, createElement("span", `${TITLES[$("colour").value]}${beyond}`)];
}

/** Return a canvas with the colours of a scale from its lowest to its highest value. */
function colourBar({ low, high, reversed }) {
  const bar = createElement("canvas");
  Object.assign(bar, { width: 160, height: 1 });
  const context = bar.getContext("2d");
  for (let x = 0; x < 160; x++) {
    context.fillStyle = scaleColour(x / 159, { low: 0, high: 1, reversed });
    context.fillRect(x, 0, 1, 1);
  }
  bar.setAttribute("role", "img");
  const order = reversed ? "light is low, which is good" : "dark is low and light is high";
  bar.setAttribute("aria-label", `colour scale from ${low} to ${high}, ${order}`);
  return bar;
}
