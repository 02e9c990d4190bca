// Metrics of the run, and of a second run beside it, and their learning curves.

import { createCurve } from "./curves.js";
import { $, fillSelect } from "./dom.js";
import { exported, get } from "./requests.js";
import { besideSeed, seed, state } from "./state.js";

const FIXED = ["qd_score", "coverage", "max_fitness"]; // the fourth curve can be chosen
const TITLES = { qd_score: "QD-score", coverage: "coverage in %", max_fitness: "max. fitness" };
const titleOf = (name) =>
  TITLES[name] ?? name.replace("added.", "added by ").replaceAll("_", " ").replace(".", ", ");

export const curves = [0, 1, 2, 3].map((i) => createCurve($(`curve-${i}`)));

/** Return the runs that have metrics, each as { name, colour, metrics, seed }. `seed` counts from 0. */
function measuredRuns() {
  const { run, metrics, allSeeds, beside } = state;
  const runs = [{ name: beside ? run.name : "", colour: "elite", metrics, seed: allSeeds.indexOf(seed()) }];
  if (beside) {
    const { name, seeds } = beside.run;
    runs.push({ name, colour: "actor", metrics: beside.metrics, seed: seeds.indexOf(besideSeed()) });
  }
  return runs.filter(({ metrics: known }) => known?.evaluations?.length);
}

/** Draw the four learning curves of all seeds, of one run or of two. */
export function showCurves() {
  const runs = measuredRuns();
  if (!runs.length) return;
  showNotes(runs);
  const names = new Set(runs.flatMap(({ metrics }) => Object.keys(metrics.values)));
  const others = [...names].filter((name) => !FIXED.includes(name));
  if ($("curve").options.length !== others.length) {
    fillSelect($("curve"), others.map((name) => [name, titleOf(name)]), $("curve").value);
  }
  [...FIXED, $("curve").value].forEach((name, i) => {
    const scaled = (v) => (v === null ? null : v * (name === "coverage" ? 100 : 1));
    const shown = runs.filter(({ metrics }) => metrics.values[name]).map(({ metrics, ...run }) =>
      ({ ...run, x: metrics.evaluations, values: metrics.values[name].map((row) => row.map(scaled)) }));
    curves[i].set(shown.length ? { title: titleOf(name), runs: shown } : null);
  });
}

/** Show which colour belongs to which run, and the iterations that are missing. */
function showNotes(runs) {
  const lacking = runs.filter(({ metrics }) => metrics.missing);
  $("missing").textContent = lacking
    .map(({ name, metrics }) => `${name && `${name}: `}without ${metrics.missing}, which metrics.csv lacks`).join(". ");
  $("curves-legend").hidden = !state.beside;
  if (!state.beside) return;
  $("curves-name").textContent = state.run.name;
  $("beside-curves-name").textContent = state.beside.run.name;
}

/**
 * Request the metrics of new iterations, of one run or of two, and add them to the state. Returns
 * whether any were added.
 */
export async function updateMetrics() {
  const { beside } = state;
  const added = await Promise.all([addMetrics(state), beside && addMetrics(beside, beside.run.id)]);
  return added.some(Boolean);
}

/**
 * Request the metrics of new iterations of a run and add them to `owner.metrics`. Without an id, the
 * run is the first one. Returns whether any were added.
 */
async function addMetrics(owner, id) {
  if (exported && owner.metrics) return false;
  const last = () => owner.metrics?.iteration?.at(-1) ?? 0;
  const before = last();
  const added = await get("/api/metrics", { after: before }, id);
  if (!added.iteration?.length || last() !== before) return false; // none, or added by another call
  const { metrics } = owner;
  if (!metrics) owner.metrics = added;
  else {
    metrics.iteration.push(...added.iteration);
    metrics.evaluations.push(...added.evaluations);
    metrics.missing = added.missing;
    for (const name of Object.keys(metrics.values)) metrics.values[name].push(...(added.values[name] ?? []));
  }
  return true;
}

/**
 * Return that of some seeds with the highest QD-score in the last iteration, or the first if there
 * are no metrics yet. `allSeeds` are the seeds that the metrics have.
 */
export function bestSeed(seeds, metrics, allSeeds = seeds) {
  const scores = metrics?.values.qd_score?.at(-1) ?? [];
  const score = (number) => scores[allSeeds.indexOf(number)] ?? -Infinity;
  return seeds.reduce((best, number) => (score(number) > score(best) ? number : best), seeds[0]);
}
