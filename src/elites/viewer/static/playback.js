// Playback of the recordings: the current frame, play and pause.

import { $ } from "./dom.js";
import { state } from "./state.js";

const MAX_GAP = 0.25; // seconds that playback advances at most between two frames of the screen

/**
 * Show a frame of the recordings of elite and actor. `frame` may lie between two recorded frames.
 */
export function showFrame(frame) {
  const { playback, run, stages } = state;
  playback.frame = Math.min(Math.max(frame, 0), playback.frames - 1);
  const rounded = Math.round(playback.frame);
  const seconds = (f) => (f * (run.scene?.dt ?? 1)).toFixed(1);
  $("frame").value = rounded;
  $("frame-value").textContent = `${seconds(rounded)} of ${seconds(Math.max(playback.frames - 1, 0))} s`;
  $("frame").setAttribute("aria-valuetext", `${seconds(rounded)} seconds`);
  for (const stage of Object.values(stages ?? {})) stage.showFrame(playback.frame);
}

/** Set the number of frames of the playback, and show the first frame. */
export function setFrames(frames) {
  state.playback.frames = frames;
  $("frame").max = frames - 1;
  showFrame(0);
}

/** Enable or disable the controls of the playback. */
export const enablePlayback = (enabled) => ($("frame").disabled = $("play").disabled = !enabled);

/** Play the recordings from the current frame, or from the first frame if the end is reached. */
export function startPlayback() {
  const { playback } = state;
  if (playback.frame >= playback.frames - 1) showFrame(0);
  playback.playing = true;
  playback.last = performance.now();
  $("play").textContent = "Pause";
  playback.request = requestAnimationFrame(advance);
}

/** Pause the playback at the current frame. */
export function stopPlayback() {
  state.playback.playing = false;
  cancelAnimationFrame(state.playback.request);
  $("play").textContent = "Play";
}

/**
 * Show the frame for the time `now`, in milliseconds, and schedule the next one. After the last frame,
 * the slider gets the event "ended".
 */
function advance(now) {
  const { playback, run } = state;
  if (!playback.playing) return;
  const passed = Math.min((now - playback.last) / 1000, MAX_GAP);
  playback.last = now;
  showFrame(playback.frame + (passed / run.scene.dt) * Number($("speed").value));
  if (playback.frame >= playback.frames - 1) {
    stopPlayback();
    return $("frame").dispatchEvent(new Event("ended"));
  }
  playback.request = requestAnimationFrame(advance);
}
