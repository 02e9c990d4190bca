// Play an elite beside the distilled policy, or the distilled policy with a requested descriptor.

import { map, selectCell, showTrajectories } from "./archive.js";
import { besideMap, comparesRuns } from "./beside.js";
import { $ } from "./dom.js";
import { enableFilm } from "./film.js";
import { catchUp } from "./follow.js";
import { clickMode, readDescriptor, writeDescriptor } from "./form.js";
import { attempt, showMessage } from "./messages.js";
import { formatNumber, formatVector } from "./numbers.js";
import { enablePlayback, setFrames, startPlayback, stopPlayback } from "./playback.js";
import { showRecording } from "./recordings.js";
import { cancelRollout, exported, getRollout, getRollouts } from "./requests.js";
import { frameBoth } from "./stages.js";
import { besideSeed, iteration, markedCells, seed, state } from "./state.js";

const SAME_DESCRIPTOR = "Distilled policy, same descriptor";
const noActor = () => `${state.run.algorithm} trains no policy that takes a descriptor.`;

/**
 * Play a place of the map: the elite of its cell, or the policies that are requested for its
 * descriptor. `values` has the descriptor by axis.
 */
export function playPlace(cell, values) {
  if (!canPlay()) return selectIfAny(cell);
  if (comparesRuns()) return compare(state.archive, cell, values);
  const hasPolicy = markedCells()?.has(cell) ?? true;
  if (exported && !hasPolicy) {
    selectIfAny(cell);
    return showMessage("This is an exported page. It contains recordings of the marked cells only.");
  }
  const filled = cell >= 0 && state.archive.fitness[cell] !== null;
  if (filled && hasPolicy && clickMode() !== "request") return watch(cell);
  if (!state.run.actor_conditioned) {
    selectIfAny(cell);
    const why = filled ? "has no policy in this run" : "is empty";
    return showMessage(cell >= 0 ? `Cell ${cell} ${why}, and ${noActor()}` : noActor());
  }
  writeDescriptor(values);
  return requestDescriptor();
}

function selectIfAny(cell) {
  if (cell >= 0) selectCell(cell);
}

/**
 * Return whether the policies of the chosen iteration can be played. Shows a message if they
 * cannot.
 */
function canPlay() {
  const kept = state.run.playable;
  if (kept.includes(iteration())) return true;
  showMessage(exported
    ? `This is an exported page. Its recordings are of iteration ${kept.join()}.`
    : $("playback-note").textContent);
  return false;
}

/** Play the elite of a cell, and the distilled policy with the descriptor of that elite. */
async function watch(cell) {
  selectCell(cell);
  await play(`cell ${cell}`, SAME_DESCRIPTOR, "Elite of cell",
    (chosen) => getRollout("/api/watch", { ...chosen, cell }));
}

/**
 * Play the elites of both runs that are nearest to a place: to the elite of a cell of `archive`, or,
 * if there is none, to `values`.
 */
export async function compare(archive, cell, values) {
  writeDescriptor(values);
  const own = cell >= 0 && clickMode() !== "request" && archive.fitness[cell] !== null;
  await compareAt(own ? archive.descriptors[cell] : readDescriptor());
}

async function compareAt(place) {
  const { run, beside } = state;
  const descriptor = place.join(",");
  const other = { iteration: beside.iteration, seed: besideSeed(), descriptor };
  const rollouts = (chosen) => [["/api/nearest", { ...chosen, descriptor }, run.id], ["/api/nearest", other, beside.run.id]];
  await play(`both runs at ${formatVector(place.map(Number))}`, "Elite of cell", `${run.name}: elite of cell`,
    async (chosen) => {
      const [{ elite }, { elite: actor }] = await getRollouts(...rollouts(chosen));
      return { elite, actor: { ...actor, run: beside.run } };
    });
}

/** Play the distilled policy with the descriptor in the form, and the nearest elite. */
export async function requestDescriptor() {
  if (!canPlay()) return;
  if (comparesRuns()) return compareAt(readDescriptor());
  const descriptor = readDescriptor();
  map.select(-1);
  await play(`descriptor ${descriptor.join(", ")}`, "Distilled policy, requested descriptor", "Nearest elite, of cell",
    (chosen) => getRollout("/api/request", { ...chosen, descriptor: descriptor.join(",") }));
}

/**
 * Request recordings of elite and actor with `getRecordings({ iteration, seed })`, and play them.
 * `what` names them in the heading. `actorTitle` and `elitePrefix` are used in the titles of the
 * stages.
 */
async function play(what, actorTitle, elitePrefix, getRecordings) {
  interrupt(); // the last recording stays visible, but faded, until the next one is there
  const count = state.rollouts;
  showMessage(null);
  const chosen = { iteration: iteration(), seed: seed() };
  const title = `${what}, iteration ${chosen.iteration}` + (state.run.seeds.length > 1 ? `, seed ${chosen.seed}` : "");
  $("watching").textContent = `${title}: simulating …`;
  document.body.dataset.watching = "waiting";
  try {
    const recordings = await getRecordings(chosen);
    if (count !== state.rollouts) return;
    $("watching").textContent = title;
    const { elite, actor } = recordings;
    const titles = { actor: actorTitle, elite: elite ? `${elitePrefix} ${elite.cell}` : "Elite" };
    if (elite) map.select(elite.cell);
    if (actor?.run) {
      titles.actor = `${actor.run.name}: elite of cell ${actor.cell}`;
      besideMap.select(actor.cell);
    }
    showRecordings(recordings, titles, chosen);
  } catch (error) {
    if (count !== state.rollouts) return;
    clearStages();
    document.body.dataset.watching = "failed";
    const cleared = state.rollouts;
    if (!exported) await attempt(catchUp); // training may have just removed the checkpoint
    if (cleared === state.rollouts) showMessage(error);
  }
}

/** Show recordings of the elite and of the actor, and play them from the start. */
function showRecordings({ elite, actor }, titles, chosen) {
  showRecording("elite", elite, titles.elite, "The archive is empty.");
  showRecording("actor", actor, titles.actor, noActor());
  frameBoth();
  // The trajectory of the actor is drawn last, above that of the elite.
  const recordings = [["elite", elite], ["actor", actor]].filter(([, recording]) => recording);
  const film = elite && state.stages && !actor?.run ? { ...chosen, cell: elite.cell } : null;
  if (film && actor && String(actor.requested) !== String(elite.stored_descriptor)) film.descriptor = actor.requested.join(",");
  state.shown = { ...chosen, film, trajectories: recordings.map(([colour, recording]) => ({ colour, ...recording })) };
  showTrajectories();
  $("selection").textContent = recordings
    .map(([who, { fitness, reached, error }]) => `${titles[who]}: fitness ${formatNumber(fitness)}, reached `
      + `${formatVector(reached)}, error ${formatNumber(error)}.`)
    .join(" ");
  enablePlayback(state.stages !== null);
  enableFilm(true);
  document.body.dataset.watching = "ready";
  setFrames(Math.max(...recordings.map(([, { steps }]) => steps + 1)));
  if (state.stages) startPlayback();
  const { top, bottom } = $("stages").getBoundingClientRect();
  // In a narrow window, the stages are below the map.
  if (top > innerHeight || bottom < 0) $("watch-panel").scrollIntoView({ behavior: "smooth" });
}

/** Stop the playback, and cancel the latest request if it is still waiting for its response. */
function interrupt() {
  state.rollouts++;
  cancelRollout();
  stopPlayback();
  state.shown = null;
  showTrajectories();
  enablePlayback(false);
  enableFilm(false);
}

/** Stop the playback and remove the recordings of elite and actor from their stages. */
export function clearStages() {
  interrupt();
  const { run, beside } = state;
  const titles = comparesRuns() ? [run, beside.run].map(({ name }) => `${name}: elite`) : ["Elite", SAME_DESCRIPTOR];
  showRecording("elite", null, titles[0], "");
  showRecording("actor", null, titles[1], "");
  setFrames(1);
  $("watching").textContent = exported ? "Click a marked cell to play it." : "Click a cell to play its elite.";
  document.body.dataset.watching = "nothing";
}
