// Start of the page: load the run, show its newest archive, and follow it.

import { map, showArchive } from "./archive.js";
import { buildBeside } from "./beside.js";
import { connectControls } from "./controls.js";
import { $, fillSelect } from "./dom.js";
import { INTERVAL, checkIterations, follow, limitSlider, newestPlayable } from "./follow.js";
import { buildForm } from "./form.js";
import { listColours } from "./legend.js";
import { showMessage } from "./messages.js";
import { bestSeed, showCurves, updateMetrics } from "./metrics.js";
import { exported, get, setRun } from "./requests.js";
import { buildStages } from "./stages.js";
import { state } from "./state.js";
import { showTour } from "./tour.js";
import { clearStages } from "./watch.js";

/** Load the run from the server and show it. Throws an Error if the run has no archive yet. */
async function load() {
  const run = await get("/api/run");
  Object.assign(state, { run, allSeeds: run.all_seeds ?? run.seeds });
  setRun(run.id);
  document.title = `${run.name} – elites`;
  $("name").textContent = run.name;
  const descriptor = run.descriptor ? `; descriptor: ${run.descriptor}` : "";
  $("about").textContent = `${run.algorithm} on ${run.task}${descriptor}`;
  fillSelect($("seed"), run.seeds.map((number) => [number, number]));
  listColours();
  buildForm();
  checkIterations(run);
  limitSlider();
  $("iteration").value = newestPlayable();
  const cells = await get("/api/cells");
  state.fitnessRange = cells.fitness_range;
  map.setCells(run, cells);
  await buildBeside(run.beside);
  buildStages();
  clearStages();
  showTour();
  await updateMetrics();
  $("seed").value = bestSeed(run.seeds, state.metrics, state.allSeeds);
  await showArchive();
  showCurves();
  document.querySelector("main").inert = false;
  document.body.dataset.ready = "yes";
}

/**
 * Load and show the run, and follow its training if there is a server. Tries again later if the run
 * cannot be shown yet.
 */
async function start() {
  try {
    await load();
    showMessage(null);
    if (!exported) setTimeout(follow, INTERVAL);
  } catch (error) {
    showMessage(error);
    if (!exported) setTimeout(start, INTERVAL);
  }
}

connectControls();
start();
