// State that the modules of the page share, and what is chosen in its controls.

import { $ } from "./dom.js";
import { exported, playableCells } from "./requests.js";

export const state = {
  run: null, // description of the run
  allSeeds: [], // seeds of the run; an exported page may contain only some of them
  archive: null, // archive of the chosen seed and iteration; null if it cannot be shown
  followsNewest: true, // whether the page shows each new archive of a run that is training
  fitnessRange: null, // fitness of the newest archives, the colour scale of all iterations; null if they are empty
  colour: "fitness", // chosen colour, also if the current archive has no such values
  metrics: null, // { iteration, evaluations, values }
  stages: null, // { elite, actor }; null if there is nothing to draw
  noStages: "", // why there is nothing to draw
  playback: { frames: 1, playing: false, frame: 0, last: 0, request: 0 },
  shown: null, // { seed, iteration, trajectories } of the recordings that are shown
  paths: null, // { iteration, seed, found, text } of the paths of all elites, if they are shown
  tour: { stops: [], at: -1 }, // stops { cell, values }, and the one that is played
  beside: null, // { run, archive, iteration, metrics } of the second run; null if the page shows one run
  rollouts: 0, // number of rollouts requested so far; responses to earlier ones are dropped
};

/** Return the number of the seed that the user chose. */
export const seed = () => Number($("seed").value);

/** Return the number of the second run's seed that the user chose. */
export const besideSeed = () => Number($("beside-seed").value);

/** Return the number of the iteration that the user chose. */
export const iteration = () => state.run.iterations[Number($("iteration").value)];

/** Return a text with the name of descriptor axis `i` and its unit in brackets, if any. */
export const axisLabel = (i) => {
  const { name, unit } = state.run.axes[i];
  return unit ? `${name} (${unit})` : name;
};

/**
 * Return the set of cells of an archive that can be played, which the map marks: in an
 * exported page those with a recording, in a reduced run those with a policy. Returns null if every
 * elite can be played.
 */
export function markedCells(archive = state.archive) {
  if (exported) return playableCells(seed(), iteration());
  return archive?.kept ? new Set(archive.kept) : null;
}
