// Controls of the page: what happens when one of them is used.

import { filterByFitness, map, showArchive, showColours } from "./archive.js";
import { besideMap, shadeBeside, showBeside } from "./beside.js";
import { forgetThemeColours } from "./colours.js";
import { $ } from "./dom.js";
import { saveFilm } from "./film.js";
import { newestPlayable } from "./follow.js";
import { clickMode } from "./form.js";
import { attempt, showMessage } from "./messages.js";
import { curves, showCurves } from "./metrics.js";
import { showFrame, startPlayback, stopPlayback } from "./playback.js";
import { setCamera } from "./stages.js";
import { state } from "./state.js";
import { changeTour, clearTour, nextStop, stopTour, toggleTour } from "./tour.js";
import { checkPaths, togglePaths } from "./trails.js";
import { clearStages, compare, playPlace, requestDescriptor } from "./watch.js";

const stages = () => Object.values(state.stages ?? {});

/** Connect all controls of the page with the functions that they call. */
export function connectControls() {
  connectArchive();
  connectMap();
  connectTour();
  connectBeside();
  connectPlayback();
  $("request").addEventListener("submit", (event) => {
    event.preventDefault();
    stopTour();
    requestDescriptor();
  });
  $("curve").addEventListener("change", showCurves);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    forgetThemeColours();
    map.repaint();
    besideMap.repaint();
    curves.forEach((curve) => curve.repaint());
    stages().forEach((stage) => stage.repaint());
  });
}

function connectArchive() {
  $("seed").addEventListener("change", () => attempt(async () => {
    stopTour();
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
  $("map").addEventListener("pick", ({ detail: { cell, values, extend } }) => {
    if (extend || clickMode() === "tour") return changeTour(cell, values);
    stopTour();
    playPlace(cell, values);
  });
  $("map").addEventListener("archive", checkPaths);
  $("axes").addEventListener("change", () => {
    for (const each of [map, besideMap]) each.setAxes($("axes").value.split(",").map(Number));
  });
  $("zoom-in").addEventListener("click", () => map.zoomBy(1.5));
  $("zoom-out").addEventListener("click", () => map.zoomBy(1 / 1.5));
  $("zoom-reset").addEventListener("click", map.showWhole);
}

function connectTour() {
  $("tour-play").addEventListener("click", toggleTour);
  $("tour-clear").addEventListener("click", clearTour);
  $("paths").addEventListener("click", togglePaths);
  $("frame").addEventListener("ended", nextStop);
}

function connectBeside() {
  $("map").addEventListener("shade", ({ detail }) => shadeBeside(detail));
  $("map").addEventListener("trajectories", ({ detail }) => besideMap.setTrajectories(detail));
  $("beside-map").addEventListener("pick", ({ detail: { cell, values } }) => {
    stopTour();
    $("right").value = "beside";
    compare(state.beside.archive, cell, values);
  });
  $("beside-seed").addEventListener("change", () => attempt(async () => {
    clearStages();
    besideMap.select(-1);
    await showBeside();
    showColours();
    showCurves();
  }));
  $("right").addEventListener("change", clearStages);
}

function connectPlayback() {
  $("film").addEventListener("click", saveFilm);
  $("play").addEventListener("click", () => (state.playback.playing ? stopPlayback() : startPlayback()));
  $("frame").addEventListener("input", () => {
    stopPlayback();
    showFrame(Number($("frame").value));
  });
  $("camera").addEventListener("change", () => {
    setCamera($("camera").value);
  });
}
