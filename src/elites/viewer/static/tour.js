// A tour: cells that are played one after the other.

import { map } from "./archive.js";
import { $ } from "./dom.js";
import { stopPlayback } from "./playback.js";
import { state } from "./state.js";
import { playPlace } from "./watch.js";

const PAUSE = 700; // milliseconds between two stops

/** Add a place of the map to the tour, or remove it if the tour has its cell already. */
export function changeTour(cell, values) {
  const { tour } = state;
  if (cell < 0) return;
  stopTour();
  const others = tour.stops.filter((stop) => stop.cell !== cell);
  tour.stops = others.length < tour.stops.length ? others : [...others, { cell, values }];
  showTour();
}

/** Remove all stops of the tour. */
export function clearTour() {
  stopTour();
  state.tour.stops = [];
  showTour();
}

/** Play the tour from its first stop, or stop it if it is playing. */
export function toggleTour() {
  const { tour } = state;
  if (tour.at >= 0) {
    stopTour();
    return stopPlayback();
  }
  tour.at = 0;
  return playStop();
}

/** End the tour. What is playing goes on. */
export function stopTour() {
  state.tour.at = -1;
  showTour();
}

/** Play the next stop of the tour after a pause, if the tour is playing. Ends it after the last one. */
export function nextStop() {
  const { tour } = state;
  const from = tour.at;
  if (from < 0) return;
  if (from + 1 >= tour.stops.length) return stopTour();
  setTimeout(() => {
    if (tour.at !== from || state.playback.playing) return; // stopped, or played once more
    tour.at++;
    playStop();
  }, PAUSE);
}

async function playStop() {
  const { tour } = state;
  const { cell, values } = tour.stops[tour.at];
  showTour();
  await playPlace(cell, values);
  if (!state.playback.playing) stopTour(); // it cannot be played
}

/** Show the stops on the map, and how far the tour is. */
export function showTour() {
  const { stops, at } = state.tour;
  map.setStops(stops.map((stop) => stop.cell));
  $("tour-play").textContent = at >= 0 ? "Stop tour" : "Play tour";
  $("tour-play").disabled = !stops.length || !state.stages;
  $("tour-clear").disabled = !stops.length;
  const size = `${stops.length} ${stops.length === 1 ? "cell" : "cells"}`;
  $("tour-text").textContent = at >= 0 ? `stop ${at + 1} of ${stops.length}` : stops.length ? size : "";
}
