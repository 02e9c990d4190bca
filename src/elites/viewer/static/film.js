// Save the shown recordings as a film.

import { $ } from "./dom.js";
import { attempt } from "./messages.js";
import { exported, get } from "./requests.js";
import { state } from "./state.js";

/** Enable the button if there is something to film, and a server that can draw it. */
export function enableFilm(enabled) {
  $("film").hidden = exported;
  $("film").disabled = !enabled || !state.shown?.film;
}

/** Ask the server for a GIF of elite and actor, and offer it as a download. */
export async function saveFilm() {
  const button = $("film");
  const { film } = state.shown;
  button.disabled = true;
  button.textContent = "Drawing …";
  await attempt(async () => {
    const { gif } = await get("/api/film", film);
    const bytes = Uint8Array.from(atob(gif), (letter) => letter.charCodeAt(0));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytes], { type: "image/gif" })); // a data: address may be too long
    link.download = `${state.run.name}_${film.cell}.gif`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the download has begun by then
  });
  button.textContent = "Save film";
  enableFilm(true);
}
