// The archive panel: the archive of the chosen seed and iteration on the map.

import { $ } from "./dom.js";
import { currentShade, offerColours, showLegend } from "./legend.js";
import { createMap } from "./map.js";
import { extent, formatNumber, formatPercent } from "./numbers.js";
import { exported, get } from "./requests.js";
import { axisLabel, iteration, markedCells, seed, state } from "./state.js";

const CACHE_SIZE = 400;
const cache = new Map(); // archives by seed, iteration and evaluation

/**
 * Map of the archive. Its canvas gets the event "pick" for a click, "archive" for another archive,
 * "shade" for other colours and "trajectories" for other recordings.
 */
export const map = createMap($("map"), $("tooltip"), {
  onPick: (cell, values, extend) => send("pick", { cell, values, extend }),
  onSelect: selectCell,
  describe: (cell) => describeCell(state.run, state.archive, cell),
});

const send = (name, detail) => $("map").dispatchEvent(new CustomEvent(name, { detail }));

/** Select a cell on the map, and announce the values of the cell to screen readers. */
export function selectCell(cell) {
  map.select(cell);
  announce(state.run, state.archive, cell);
}

/** Announce the values of a cell of an archive to screen readers. */
export function announce(run, archive, cell) {
  $("selection").textContent = describeCell(run, archive, cell).replaceAll("\n", ", ");
}

/** Return a text with the values of a cell of an archive, one value per line. */
export function describeCell(run, archive, cell) {
  const between = archive.between_error?.[cell] ?? null;
  const betweenLines = between === null ? [] : [`descriptor error between elites: ${formatNumber(between)}`];
  if (archive.fitness[cell] === null) return [`cell ${cell}, empty`, ...betweenLines].join("\n");
  const lines = [`cell ${cell}`, `fitness: ${formatNumber(archive.fitness[cell])}`];
  archive.descriptors[cell].forEach((value, i) => lines.push(`${axisLabel(i)}: ${formatNumber(value)}`));
  lines.push(`added by ${run.origins[archive.origin[cell]]} at iteration ${archive.born[cell]}`);
  const marked = markedCells(archive);
  if (marked) lines.push(`${marked.has(cell) ? "has a" : "has no"} ${exported ? "recording" : "policy in this run"}`);
  const error = archive.actor_error?.[cell] ?? null;
  if (error !== null) lines.push(`descriptor error of the distilled policy: ${formatNumber(error)}`);
  return [...lines, ...betweenLines].join("\n");
}

/** Load the archive of the chosen seed and iteration, and show it on the map. */
export async function showArchive() {
  const when = iteration();
  $("iteration-value").textContent = `${when} of ${state.run.planned_iterations}`;
  $("iteration").setAttribute("aria-valuetext", `iteration ${when} of ${state.run.planned_iterations}`);
  const keyOfChosen = () => `${seed()} ${iteration()} ${state.run.evaluated_at}`;
  const key = keyOfChosen();
  if (!cache.has(key)) {
    try {
      const archive = await get("/api/archive", { iteration: when, seed: seed() });
      if (cache.size > CACHE_SIZE) cache.clear();
      cache.set(key, archive);
    } catch (error) {
      if (key === keyOfChosen()) hideArchive(when);
      throw error;
    }
  }
  if (key !== keyOfChosen()) return; // another archive was chosen in the meantime
  state.archive = cache.get(key);
  showSummary(when);
  map.setArchive(state.archive);
  map.setMarked(markedCells());
  showTrajectories();
  offerColours();
  showColours();
  filterByFitness();
  send("archive");
}

/**
 * Show the coverage and QD-score of the archive at iteration `when`, and whether its policies can
 * be played. Extends the fitness colour scale to a newest archive that exceeds it.
 */
function showSummary(when) {
  const { run, archive } = state;
  const fitness = archive.fitness.filter((v) => v !== null);
  const total = fitness.reduce((sum, v) => sum + v - run.qd_offset, 0);
  const [filled, cells] = [fitness.length, archive.fitness.length];
  const coverage = `${filled} of ${cells} cells (${formatPercent(filled / cells)})`;
  const summary = filled
    ? `${coverage}, QD-score ${formatNumber(total)}`
    : "the archive is empty. No evaluation was valid yet.";
  $("status").textContent = `iteration ${when}: ${summary}`;
  if (filled && (!state.fitnessRange || when === run.iterations.at(-1))) {
    state.fitnessRange = extent([...fitness, ...(state.fitnessRange ?? [])]);
  }
  const kept = run.playable.join(" and ") || "no iteration";
  $("playback-note").textContent = run.playable.includes(when)
    ? ""
    : `Iteration ${when} cannot be played. Policies are kept for ${kept}.`;
}

/** Empty the map, because the archive of iteration `when` cannot be loaded. */
function hideArchive(when) {
  state.archive = null;
  map.setArchive(null);
  $("legend").replaceChildren();
  $("playback-note").textContent = "";
  $("status").textContent = `iteration ${when} cannot be shown`;
}

/** Colour the cells of the map by the property that the user chose, and show the legend. */
export function showColours() {
  if (!state.archive) return;
  const shade = currentShade();
  map.setShade(shade);
  showLegend(shade);
  send("shade", shade);
}

/**
 * Draw the trajectories of the recordings on the map, if the recordings belong to the shown
 * archive.
 */
export function showTrajectories() {
  const { shown } = state;
  const belong = shown && shown.seed === seed() && shown.iteration === iteration();
  map.setTrajectories(belong ? shown.trajectories : []);
  send("trajectories", shown?.trajectories ?? []);
}

/**
 * Fade the cells of the map whose fitness is outside of the range that the two sliders set. Neither
 * slider can pass the other: it moves the other one along.
 */
export function filterByFitness(event) {
  const { archive, fitnessRange } = state;
  if (!archive) return;
  const [bottom, top] = fitnessRange ?? [0, 1];
  const [from, to] = [$("fitness-low"), $("fitness-high")];
  if (Number(from.value) > Number(to.value)) {
    if (event?.target === from) to.value = from.value;
    else from.value = to.value;
  }
  const value = (slider) => bottom + (Number(slider.value) / 1000) * (top - bottom);
  for (const slider of [from, to]) {
    $(`${slider.id}-value`).textContent = formatNumber(value(slider));
    slider.setAttribute("aria-valuetext", `fitness ${formatNumber(value(slider))}`);
  }
  // A slider at its end excludes nothing, not even values beyond the colour scale.
  const least = from.value === from.min ? -Infinity : value(from);
  const most = to.value === to.max ? Infinity : value(to);
  const passes = (fitness) => fitness === null || (fitness >= least && fitness <= most);
  map.setFilter((cell) => passes(archive.fitness[cell]));
}
