// Paths of all elites, as faint lines on the map and on the floor of the stages.

import { map } from "./archive.js";
import { $ } from "./dom.js";
import { showMessage } from "./messages.js";
import { exported, get } from "./requests.js";
import { frameBoth, setCamera } from "./stages.js";
import { iteration, seed, state } from "./state.js";

/** Show or hide the paths of all elites. The server computes them in chunks, which appear one by one. */
export async function togglePaths() {
  if (state.paths) return hidePaths();
  const chosen = { iteration: iteration(), seed: seed() };
  const own = { ...chosen, found: [], text: "Computing paths … Stop" };
  state.paths = own;
  setCamera("fixed");
  showPaths();
  try {
    for (let start = 0; start !== null; ) {
      const { paths, done, total, next } = await get("/api/paths", { ...chosen, start });
      if (own !== state.paths) return;
      own.found.push(...paths);
      own.text = next === null ? "Hide all paths" : `${done} of ${total} paths … Stop`;
      showPaths();
      start = next;
    }
  } catch (error) {
    if (own === state.paths) hidePaths();
    showMessage(error);
  }
}

/** Hide the paths if they belong to another archive than the one that is shown, and update the button. */
export function checkPaths() {
  const { paths, run } = state;
  if (paths && (paths.iteration !== iteration() || paths.seed !== seed())) hidePaths();
  $("paths").hidden = exported || !run.has_paths;
  $("paths").disabled = !run.playable.includes(iteration());
}

function hidePaths() {
  state.paths = null;
  showPaths();
}

/** Draw the paths that are known so far. */
function showPaths() {
  const found = state.paths?.found ?? [];
  $("paths").textContent = state.paths?.text ?? "Show all paths";
  map.setPaths([...found]);
  for (const stage of Object.values(state.stages ?? {})) stage.setPaths(found);
  frameBoth();
}
