// The form that requests a descriptor, and the choice of the axes that the map shows.

import { $, createElement, fillSelect } from "./dom.js";
import { formatNumber } from "./numbers.js";
import { exported } from "./requests.js";
import { axisLabel, state } from "./state.js";

/** Build the form that requests a descriptor, and the choice of axes, for the run's descriptor. */
export function buildForm() {
  const { low, axes, actor_conditioned: conditioned } = state.run;
  $("request-numbers").replaceChildren(...low.map((_, axis) => createInput(axis)));
  $("request").hidden = $("mode-request").hidden = exported || !conditioned;
  const pairs = low.flatMap((_, i) =>
    low.slice(i + 1).map((_, k) => [`${i},${i + k + 1}`, `${axes[i].name} and ${axes[i + k + 1].name}`]));
  fillSelect($("axes"), pairs);
  $("axes-label").hidden = pairs.length < 2;
}

/** Return a label element with an input for the number of one descriptor axis. */
function createInput(axis) {
  const [low, high] = [state.run.low[axis], state.run.high[axis]];
  const input = createElement("input");
  const middle = Number(((low + high) / 2).toPrecision(4));
  Object.assign(input, { type: "number", step: "any", min: low, max: high, value: middle, required: true });
  input.setAttribute("aria-label", axisLabel(axis));
  const label = createElement("label", `${state.run.axes[axis].name} `);
  label.title = `${axisLabel(axis)}, from ${formatNumber(low)} to ${formatNumber(high)}`;
  label.append(input);
  return label;
}

const inputs = () => [...$("request-numbers").querySelectorAll("input")];

/** Return the descriptor in the form as an array of texts, one for each axis. */
export const readDescriptor = () => inputs().map((input) => input.value);

/**
 * Write values, keyed by axis, into the form. They are rounded to about a thousandth of the range
 * of their axis.
 */
export function writeDescriptor(values) {
  const { low, high } = state.run;
  for (const [axis, value] of Object.entries(values)) {
    const step = 10 ** Math.floor(Math.log10((high[axis] - low[axis]) / 1000));
    const rounded = Number((Math.round(value / step) * step).toPrecision(12));
    inputs()[axis].value = Math.min(Math.max(rounded, low[axis]), high[axis]);
  }
}

/** Return what a click on the map does: "watch", "request" or "tour". */
export const clickMode = () => document.querySelector("input[name=mode]:checked").value;
