// Controls of the page: what happens when one of them is used.

import { filterByFitness, map, showArchive, showColours } from "./archive.js";
import { forgetThemeColours } from "./colours.js";
import { $ } from "./dom.js";
import { saveFilm } from "./film.js";
import { newestPlayable } from "./follow.js";
import { attempt, showMessage } from "./messages.js";
import { curves, showCurves } from "./metrics.js";
import { showFrame, startPlayback, stopPlayback } from "./playback.js";
import { state } from "./state.js";
import { clearStages, pick, requestDescriptor } from "./watch.js";

const stages = () => Object.values(state.stages ?? {});

/** Connect all controls of the page with the functions that they call. */
export function connectControls() {
  connectArchive();
  connectMap();
  connectPlayback();
  $("request").addEventListener("submit", (event) => {
    event.preventDefault();
    requestDescriptor();
  });
  $("curve").addEventListener("change", showCurves);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    forgetThemeColours();
    map.repaint();
    curves.forEach((curve) => curve.repaint());
    stages().forEach((stage) => stage.repaint());
  });
}

function connectArchive() {
  $("seed").addEventListener("change", () => attempt(async () => {
    clearStages();
    map.select(-1);
    showMessage(null);
    await showArchive();
    showCurves();
  }));
  $("iteration").addEventListener("input", () => attempt(async () => {
    if (document.body.dataset.watching === "waiting") clearStages();
    state.followsNewest = Number($("iteration").value) >= newestPlayable();
    showMessage(null);
    await showArchive();
  }));
  $("colour").addEventListener("change", () => {
    state.colour = $("colour").value;
    showColours();
  });
  for (const id of ["fitness-low", "fitness-high"]) $(id).addEventListener("input", filterByFitness);
}

function connectMap() {
  $("map").addEventListener("pick", ({ detail: { cell, values } }) => pick(cell, values));
  $("axes").addEventListener("change", () => map.setAxes($("axes").value.split(",").map(Number)));
  $("zoom-in").addEventListener("click", () => map.zoomBy(1.5));
  $("zoom-out").addEventListener("click", () => map.zoomBy(1 / 1.5));
  $("zoom-reset").addEventListener("click", map.showWhole);
}

function connectPlayback() {
  $("film").addEventListener("click", saveFilm);
  $("play").addEventListener("click", () => (state.playback.playing ? stopPlayback() : startPlayback()));
  $("frame").addEventListener("input", () => {
    stopPlayback();
    showFrame(Number($("frame").value));
  });
  $("camera").addEventListener("change", () => {
    stages().forEach((stage) => stage.setCameraMode($("camera").value));
  });
}
