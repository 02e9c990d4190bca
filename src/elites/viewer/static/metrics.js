// Metrics of the run and their learning curves.

import { createCurve } from "./curves.js";
import { $, fillSelect } from "./dom.js";
import { exported, get } from "./requests.js";
import { seed, state } from "./state.js";

const FIXED = ["qd_score", "coverage", "max_fitness"]; // the fourth curve can be chosen
const TITLES = { qd_score: "QD-score", coverage: "coverage in %", max_fitness: "max. fitness" };
const titleOf = (name) =>
  TITLES[name] ?? name.replace("added.", "added by ").replaceAll("_", " ").replace(".", ", ");

export const curves = [0, 1, 2, 3].map((i) => createCurve($(`curve-${i}`)));

/** Draw the four learning curves of all seeds from the run's metrics. */
export function showCurves() {
  const { metrics, allSeeds } = state;
  if (!metrics?.evaluations?.length) return;
  $("missing").textContent = metrics.missing ? `without ${metrics.missing}, which metrics.csv lacks` : "";
  const others = Object.keys(metrics.values).filter((name) => !FIXED.includes(name));
  if ($("curve").options.length !== others.length) {
    fillSelect($("curve"), others.map((name) => [name, titleOf(name)]), $("curve").value);
  }
  [...FIXED, $("curve").value].forEach((name, i) => {
    const scale = name === "coverage" ? 100 : 1;
    const values = metrics.values[name]?.map((row) => row.map((v) => (v === null ? null : v * scale)));
    curves[i].set(values && { title: titleOf(name), x: metrics.evaluations, values, seed: allSeeds.indexOf(seed()) });
  });
}

/**
 * Request the metrics of new iterations and add them to the state. Returns whether any were added.
 */
export async function updateMetrics() {
  if (exported && state.metrics) return false;
  const last = () => state.metrics?.iteration?.at(-1) ?? 0;
  const before = last();
  const added = await get("/api/metrics", { after: before });
  if (!added.iteration?.length || last() !== before) return false; // none, or added by another call
  const { metrics } = state;
  if (!metrics) state.metrics = added;
  else {
    metrics.iteration.push(...added.iteration);
    metrics.evaluations.push(...added.evaluations);
    metrics.missing = added.missing;
    for (const name of Object.keys(metrics.values)) metrics.values[name].push(...(added.values[name] ?? []));
  }
  return true;
}

/**
 * Return the seed with the highest QD-score in the last iteration, or the first seed if there are
 * no metrics yet.
 */
export async function bestSeed() {
  const { seeds } = state.run;
  if (seeds.length === 1) return seeds[0];
  await updateMetrics();
  const scores = state.metrics?.values.qd_score?.at(-1) ?? [];
  const score = (number) => scores[state.allSeeds.indexOf(number)] ?? -Infinity;
  return seeds.reduce((best, number) => (score(number) > score(best) ? number : best), seeds[0]);
}
