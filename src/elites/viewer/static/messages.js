// Messages at the bottom of the page.

import { $ } from "./dom.js";

/** Show an error or a text, or hide the message if there is none. */
export function showMessage(error) {
  $("message").textContent = error ? String(error.message ?? error) : "";
  $("message").hidden = !error;
}

/** Run a function and show its error, if it throws one. */
export async function attempt(task) {
  try {
    await task();
  } catch (error) {
    showMessage(error);
  }
}
