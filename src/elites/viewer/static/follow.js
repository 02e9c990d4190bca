// Follow a run that is still training.

import { showArchive, showColours } from "./archive.js";
import { updateBeside } from "./beside.js";
import { $ } from "./dom.js";
import { showMessage } from "./messages.js";
import { showCurves, updateMetrics } from "./metrics.js";
import { get } from "./requests.js";
import { iteration, state } from "./state.js";

export const INTERVAL = 3000; // milliseconds between two updates

/**
 * Return the position on the iteration slider of the newest iteration whose policies can be played,
 * or the last position if there is none.
 */
export function newestPlayable() {
  // A snapshot is written before its checkpoint, so the newest snapshot may have no policies yet.
  const position = state.run.iterations.indexOf(state.run.playable.at(-1));
  return position >= 0 ? position : state.run.iterations.length - 1;
}

/** Throw an Error if a run has no archive to show. */
export function checkIterations({ iterations }) {
  if (!iterations.length) throw new Error("The run has no snapshot of its archive yet. Wait for its first checkpoint.");
}

/** Let the slider choose among the iterations of the run. One alone leaves nothing to choose. */
export function limitSlider() {
  const { length } = state.run.iterations;
  $("iteration").max = length - 1;
  $("iteration").disabled = length < 2;
}

/**
 * Set the iterations that the slider offers. If the page follows the newest iteration, moves the
 * slider to the newest one that can be played, except during a playback.
 */
function setIterations(iterations) {
  const slider = $("iteration");
  const chosen = iteration();
  state.run.iterations = iterations;
  limitSlider();
  const busy = state.playback.playing || document.body.dataset.watching === "waiting";
  slider.value = state.followsNewest && !busy ? newestPlayable() : Math.max(iterations.indexOf(chosen), 0);
}

/**
 * Request and show the iterations, archives and metrics that training has added since the last
 * update.
 */
export async function catchUp() {
  const { run } = state;
  const now = await get("/api/run");
  if (now.id !== run.id) return location.reload(); // the server shows another run
  checkIterations(now);
  const before = iteration();
  const changed = now.evaluated_at !== run.evaluated_at || now.playable.join() !== run.playable.join();
  state.run = {
    ...run,
    playable: now.playable,
    evaluated_at: now.evaluated_at,
    planned_iterations: now.planned_iterations,
  };
  setIterations(now.iterations);
  if (await updateBeside(now.beside)) showColours();
  if (changed || !state.archive || iteration() !== before) await showArchive();
  $("iteration-value").textContent = `${iteration()} of ${state.run.planned_iterations}`;
  if (await updateMetrics()) showCurves();
}

/**
 * Update the page now and every `INTERVAL` milliseconds. `failed` says whether the last update
 * failed.
 */
export async function follow(failed = false) {
  try {
    if (!document.hidden) {
      await catchUp();
      if (failed) showMessage(null);
      failed = false;
    }
  } catch (error) {
    failed = true;
    showMessage(error);
  }
  setTimeout(() => follow(failed), INTERVAL);
}
