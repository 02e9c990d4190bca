// Messages at the bottom of the page.

import { $ } from "./dom.js";

/**
 * Show the message of an error, or a text, at the bottom of the page. Hides the message if `error`
 * is null.
 */
export function showMessage(error) {
  $("message").textContent = error ? String(error.message ?? error) : "";
  $("message").hidden = !error;
}

/** Run a function, and show the message of the error that the function throws, if any. */
export async function attempt(task) {
  try {
    await task();
  } catch (error) {
    showMessage(error);
  }
}
