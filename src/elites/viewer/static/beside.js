// A second run beside the first: its map, and which policy the right stage shows.

import { announce, describeCell } from "./archive.js";
import { $, fillSelect } from "./dom.js";
import { createMap } from "./map.js";
import { bestSeed, updateMetrics } from "./metrics.js";
import { extent } from "./numbers.js";
import { get } from "./requests.js";
import { besideSeed, markedCells, state } from "./state.js";

/** Map of the second run. A click sends the event "pick" to its canvas. */
export const besideMap = createMap($("beside-map"), $("beside-tooltip"), {
  onPick: (cell, values, extend) =>
    $("beside-map").dispatchEvent(new CustomEvent("pick", { detail: { cell, values, extend } })),
  onSelect(cell) {
    besideMap.select(cell);
    announce(state.beside.run, state.beside.archive, cell);
  },
  describe: (cell) => describeCell(state.beside.run, state.beside.archive, cell),
});

/** Return whether the right stage shows the elite of the second run. */
export const comparesRuns = () => state.beside !== null && $("right").value === "beside";

/** Show the map of the second run `run`, if there is one. Both maps have one scale of fitness. */
export async function buildBeside(run) {
  if (!run || !run.iterations.length) return;
  state.beside = { run, archive: null, iteration: null, metrics: null };
  document.body.dataset.beside = "yes";
  $("map-name").textContent = state.run.name;
  $("beside-name").textContent = run.name;
  for (const id of ["map-name", "beside", "right-label"]) $(id).hidden = false;
  fillSelect($("beside-seed"), run.seeds.map((number) => [number, number]));
  const policies = [["beside", `elite of ${run.name}`]];
  if (state.run.actor_conditioned) policies.push(["actor", "distilled policy"]);
  fillSelect($("right"), policies);
  const cells = await get("/api/cells", {}, run.id);
  state.fitnessRange = extent([...(state.fitnessRange ?? []), ...(cells.fitness_range ?? [])]);
  besideMap.setCells(run, cells);
  await updateMetrics();
  $("beside-seed").value = bestSeed(run.seeds, state.beside.metrics);
  await showBeside();
}

/** Load the newest archive of the second run whose policies can be played, and show it. */
export async function showBeside() {
  const { beside } = state;
  beside.iteration = beside.run.playable.at(-1) ?? beside.run.iterations.at(-1);
  beside.archive = await get("/api/archive", { iteration: beside.iteration, seed: besideSeed() }, beside.run.id);
  besideMap.setArchive(beside.archive);
  besideMap.setMarked(markedCells(beside.archive));
}

/**
 * Show the newest archive of the second run, which may be training. `run` is its newest description.
 * Returns whether there was a new one.
 */
export async function updateBeside(run) {
  const { beside } = state;
  const changed = beside && run && run.playable.join() !== beside.run.playable.join();
  if (!changed || state.playback.playing) return false;
  beside.run = run;
  await showBeside();
  return true;
}

/** Colour the cells of the second map like those of the first. `shade` says how those are coloured. */
export function shadeBeside(shade) {
  const { beside, run } = state;
  if (!beside?.archive) return;
  const values = beside.archive[$("colour").value];
  const renamed = (i) => (i < 0 ? i : run.origins.indexOf(beside.run.origins[i]));
  besideMap.setShade({ ...shade, values: shade.kind === "name" ? values.map(renamed) : values });
}
