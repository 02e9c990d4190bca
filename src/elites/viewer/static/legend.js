// Colours of the cells and their legend.

import { namedColour, viridis } from "./colours.js";
import { $, createElement, fillSelect } from "./dom.js";
import { extent, formatNumber } from "./numbers.js";
import { exported } from "./requests.js";
import { markedCells, state } from "./state.js";

// Columns of an archive that can be shown as colours, and their titles.
const TITLES = {
  fitness: "fitness",
  actor_error: "descriptor error of the distilled policy",
  error: "descriptor error of the elite, re-evaluated",
  actor_fitness: "fitness of the distilled policy, by the cell requested",
  actor_rebinned: "fitness of the distilled policy, by the cell reached",
  origin: "variation",
  born: "iteration of addition",
};

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
 * Return how the map colours the cells of the current archive: { kind, values, low, high }. `kind`
 * is "number", or "name" for variations, which have no `low` and `high`.
 */
export function currentShade() {
  const name = $("colour").value;
  const values = state.archive[name];
  if (name === "origin") return { kind: "name", values };
  const [low, high] = name === "fitness" ? state.fitnessRange ?? ownRange(values) : ownRange(values);
  return { kind: "number", values, low, high };
}

const ownRange = (values) => extent(values.filter((_, cell) => isShown(cell)));
const isShown = (cell) => $("colour").value === "actor_rebinned" || state.archive.fitness[cell] !== null;

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

/**
 * Return the legend elements of a colour scale: lowest number, colour bar, highest number with the
 * title.
 */
function scaleItems({ values, low, high }) {
  const bar = createElement("canvas");
  Object.assign(bar, { width: 160, height: 1 });
  const context = bar.getContext("2d");
  for (let x = 0; x < 160; x++) {
    context.fillStyle = viridis(x / 159);
    context.fillRect(x, 0, 1, 1);
  }
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", "colour scale, dark is low and light is high");
  const [least, most] = ownRange(values);
  const [less, more] = [least < low ? "≤ " : "", most > high ? "≥ " : ""];
  const title = TITLES[$("colour").value];
  const text = `${more}${formatNumber(high)}  ${title}`;
  return [createElement("span", `${less}${formatNumber(low)}`), bar, createElement("span", text)];
}
