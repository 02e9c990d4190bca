// The page: what is chosen, what is asked of the source for it, and which part shows the answer.

import { cancelRollout, exported, get, getRollout, playable, setRun } from "./source.js";
import { createMap } from "./map.js";
import { createStage } from "./stage.js";
import { createCurve } from "./curves.js";
import { extent, forgetColours, ofName, text, viridis } from "./drawing.js";

const $ = (id) => document.getElementById(id);
const POLL = 3000; // milliseconds between two looks at a run that may still be training

let run = null; // what the run is
let allSeeds = []; // of the run; an exported page may have some of them
let archive = null; // of the chosen seed and iteration; null if it cannot be shown
let isNewest = true; // whether the newest archive is chosen, and the next one will be
let lost = false; // whether the message on the page is about the server
let metrics = null; // { iteration, evaluations, values }
let range = null; // of fitness in the newest archives: colours mean the same at all iterations; null if all are empty
let wanted = "fitness"; // the colour that was chosen, also while it is not known
let asked = 0; // counts questions: a late answer to an earlier one is dropped
const archives = new Map(); // seen before, by seed and iteration

const seed = () => Number($("seed").value);
const iteration = () => run.iterations[Number($("time").value)];
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const vector = (values) => (values ? values.map((v) => text(v)).join(", ") : "–");

// ------------------------------------------------------------------------------------ messages

function say(error) {
  $("message").textContent = error ? String(error.message ?? error) : "";
  $("message").hidden = !error;
}

/** Run a task of the page; what goes wrong is said, not thrown. */
async function attempt(task) {
  try {
    await task();
  } catch (error) {
    say(error);
  }
}

// ---------------------------------------------------------------------------------------- map

const COLOURS = [
  ["fitness", "fitness"],
  ["actor_error", "error of the distilled policy"],
  ["error", "error of the elite, evaluated again"],
  ["actor_fitness", "fitness of the distilled policy"],
  ["origin", "variation"],
  ["born", "iteration of birth"],
];

const map = createMap($("map"), $("tip"), { onPick: pick, onMove: choose, describe: describeCell });

function describeCell(cell) {
  const lines = [`cell ${cell}`];
  if (archive.fitness[cell] === null) return `${lines[0]}, empty`;
  lines.push(`fitness ${text(archive.fitness[cell])}`, `descriptor ${vector(archive.descriptors[cell])}`);
  lines.push(`by ${run.origins[archive.origin[cell]]}, iteration ${archive.born[cell]}`);
  if (exported) lines.push(playable(seed(), iteration()).has(cell) ? "has a recording" : "has no recording here");
  if (archive.actor_error?.[cell] != null) lines.push(`error of the distilled policy ${text(archive.actor_error[cell])}`);
  return lines.join("\n");
}

async function showArchive() {
  const [number, when] = [seed(), iteration()];
  $("time-value").textContent = `${when} of ${run.total}`;
  $("time").setAttribute("aria-valuetext", `iteration ${when} of ${run.total}`);
  const keyOf = () => `${seed()} ${iteration()} ${run.evaluated}`;
  const key = keyOf();
  if (!archives.has(key)) {
    try {
      const found = await get("/api/archive", { iteration: when, seed: number });
      if (archives.size > 400) archives.clear();
      archives.set(key, found);
    } catch (error) {
      if (key === keyOf()) hideArchive(when);
      throw error;
    }
  }
  if (key !== keyOf()) return; // the slider has moved on
  archive = archives.get(key);
  const fitness = archive.fitness.filter((v) => v !== null);
  const total = fitness.reduce((sum, v) => sum + v, 0);
  $("status").textContent = fitness.length
    ? `iteration ${when}: ${fitness.length} of ${archive.fitness.length} cells (${percent(fitness.length / archive.fitness.length)}), QD-score ${text(total)}`
    : `iteration ${when}: the archive is empty. No evaluation was valid yet, so there is nothing to watch.`;
  if (fitness.length && (!range || when === run.iterations.at(-1))) range = extent([...fitness, ...(range ?? [])]);
  const plays = run.kept.includes(when);
  $("plays").textContent = plays ? "" : `Only the map: policies are kept of ${run.kept.join(" and ") || "no iteration"}.`;
  map.setArchive(archive);
  map.setMarked(playable(number, when));
  showJourneys();
  offerColours();
  showColours();
  filter();
}

/** Rather nothing than another iteration's archive under this one's number. */
function hideArchive(when) {
  archive = null;
  map.setArchive(null);
  $("legend").replaceChildren();
  $("plays").textContent = "";
  $("status").textContent = `iteration ${when} cannot be shown`;
}

/** Only what is known of this archive can be shown. */
function offerColours() {
  for (const option of $("colour").options) {
    const known = archive[option.value]?.some((v) => v !== null && v !== -1) ?? false;
    option.disabled = !known && option.value !== "fitness";
  }
  const offered = [...$("colour").options].find((option) => option.value === wanted);
  $("colour").value = offered.disabled ? "fitness" : wanted;
}

function showColours() {
  if (!archive) return;
  const name = $("colour").value;
  const values = archive[name];
  const legend = $("legend");
  legend.replaceChildren();
  if (name === "origin") {
    map.setShade({ kind: "name", values });
    run.origins.forEach((label, i) => {
      const count = values.filter((v) => v === i).length;
      if (!count) return;
      const item = document.createElement("span");
      const patch = document.createElement("i");
      patch.style.background = ofName(i);
      item.append(patch, `${label} (${count})`);
      legend.append(item);
    });
    return explainMarks();
  }
  const own = extent(values.filter((_, cell) => archive.fitness[cell] !== null));
  const [low, high] = name === "fitness" ? range ?? own : own;
  map.setShade({ kind: "number", values, low, high });
  const bar = document.createElement("canvas");
  Object.assign(bar, { width: 160, height: 1 });
  const context = bar.getContext("2d");
  for (let x = 0; x < 160; x++) {
    context.fillStyle = viridis(x / 159);
    context.fillRect(x, 0, 1, 1);
  }
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", "colour scale, dark is low and light is high");
  const [less, more] = [own[0] < low ? "≤ " : "", own[1] > high ? "≥ " : ""];
  legend.append(`${less}${text(low)}`, bar, `${more}${text(high)}  ${titleOfColour(name)}`);
  explainMarks();
  if (name !== wanted) {
    const of = run.evaluated === null ? "once 'elites evaluate' was run" : `at iteration ${run.evaluated}`;
    legend.append(`(${titleOfColour(wanted)}: known ${of})`);
  }
}

const titleOfColour = (name) => COLOURS.find(([key]) => key === name)[1];

function explainMarks() {
  if (exported && playable(seed(), iteration()).size) $("legend").append("○ has a recording");
}

/** Fade what is less or more fit than the sliders say; one pushes the other along. */
function filter(event) {
  if (!archive) return;
  const [bottom, top] = range ?? [0, 1];
  const [from, to] = [$("fitness-low"), $("fitness-high")];
  if (Number(from.value) > Number(to.value)) {
    if (event?.target === from) to.value = from.value;
    else from.value = to.value;
  }
  const value = (slider) => bottom + (Number(slider.value) / 1000) * (top - bottom);
  for (const slider of [from, to]) {
    $(`${slider.id}-value`).textContent = text(value(slider));
    slider.setAttribute("aria-valuetext", `fitness ${text(value(slider))}`);
  }
  // At its end a slider leaves nothing out, also what lies beyond the scale.
  const least = from.value === from.min ? -Infinity : value(from);
  const most = to.value === to.max ? Infinity : value(to);
  map.setFilter((cell) => archive.fitness[cell] >= least && archive.fitness[cell] <= most);
}

/** The keyboard moves the choice; Enter plays it. */
function choose(cell) {
  map.select(cell);
  $("chosen").textContent = describeCell(cell).replaceAll("\n", ", ");
}

/** Whether the policies of the chosen iteration are there to be played; if not, that is said. */
function canPlay() {
  if (run.kept.includes(iteration())) return true;
  say(exported
    ? `This is an exported page: its recordings are of iteration ${run.kept.join()}.`
    : $("plays").textContent);
  return false;
}

function pick(cell, place) {
  if (!canPlay()) {
    if (cell >= 0) choose(cell);
    return;
  }
  const wantsAsking = new FormData($("ask")).get("mode") === "ask";
  if (exported && !playable(seed(), iteration()).has(cell)) {
    if (cell >= 0) choose(cell);
    return say("This is an exported page: it holds the recordings of the marked cells alone.");
  }
  if (cell >= 0 && !wantsAsking && archive.fitness[cell] !== null) return watch(cell);
  if (!run.conditioned) {
    if (cell >= 0) choose(cell);
    return say(cell >= 0 ? `Cell ${cell} is empty, and ${unasked()}` : unasked());
  }
  for (const [axis, value] of Object.entries(place)) {
    const fine = 10 ** Math.floor(Math.log10((run.high[axis] - run.low[axis]) / 1000));
    const round = Number((Math.round(value / fine) * fine).toPrecision(12));
    const inside = Math.min(Math.max(round, run.low[axis]), run.high[axis]);
    $("ask-numbers").children[axis].querySelector("input").value = inside;
  }
  return ask();
}

// -------------------------------------------------------------------------------- watch and ask

const SAME = "Distilled policy, asked for the same";
const unasked = () => `${run.algorithm} trains no policy that can be asked for a descriptor.`;

let stages = null; // { elite, actor } or null for a task that cannot be drawn
let stageless = ""; // why there are none
let clip = { frames: 1, playing: false, moment: 0, last: 0, request: 0 };
let shownOf = null; // { seed, iteration, journeys } of what is on the stages

async function watch(cell) {
  choose(cell);
  await play(`cell ${cell}`, SAME, "Elite of cell",
    () => getRollout("/api/watch", { iteration: iteration(), seed: seed(), cell }));
}

async function ask() {
  const wish = [...$("ask-numbers").querySelectorAll("input")].map((input) => input.value);
  map.select(-1);
  await play(`(${wish.join(", ")})`, "Distilled policy, asked for this", "Nearest elite, of cell",
    () => getRollout("/api/ask", { iteration: iteration(), seed: seed(), descriptor: wish.join(",") }));
}

async function play(place, actorTitle, eliteOf, question) {
  interrupt(); // what is seen stays, faded, until there is something else
  const mine = asked;
  say(null);
  const of = { seed: seed(), iteration: iteration() };
  const what = `${place}, iteration ${of.iteration}` + (run.seeds.length > 1 ? `, seed ${of.seed}` : "");
  $("watching").textContent = `${what}: simulating …`;
  document.body.dataset.watching = "waiting";
  try {
    const { elite, actor } = await question();
    if (mine !== asked) return;
    $("watching").textContent = what;
    const eliteTitle = elite ? `${eliteOf} ${elite.cell}` : "Elite";
    if (elite) map.select(elite.cell);
    show("elite", elite, eliteTitle, "The archive is empty.");
    show("actor", actor, actorTitle, unasked());
    if (stages) frameTogether();
    // What was asked of the distilled policy is drawn last, and seen.
    const journeys = [["elite", elite], ["actor", actor]].filter(([, recording]) => recording);
    shownOf = { ...of, journeys: journeys.map(([colour, recording]) => ({ colour, ...recording })) };
    showJourneys();
    clip.frames = Math.max(...[elite, actor].map((r) => (r ? r.steps + 1 : 0)));
    $("moment").max = clip.frames - 1;
    $("moment").disabled = $("play").disabled = stages === null;
    $("chosen").textContent = [
      elite && `${eliteTitle}: fitness ${text(elite.fitness)}, reached ${vector(elite.reached)}.`,
      actor && `${actorTitle}: fitness ${text(actor.fitness)}, reached ${vector(actor.reached)}, error ${text(actor.distance)}.`,
    ].filter(Boolean).join(" ");
    document.body.dataset.watching = "ready";
    moveTo(0);
    if (stages) start();
    const { top, bottom } = $("stages").getBoundingClientRect();
    if (top > innerHeight || bottom < 0) $("watch-panel").scrollIntoView({ behavior: "smooth" }); // a narrow window
  } catch (error) {
    if (mine !== asked) return;
    clearStages();
    document.body.dataset.watching = "failed";
    const failed = asked;
    if (!exported) await attempt(catchUp); // its checkpoint may just have given way to a newer one
    if (failed === asked) say(error);
  }
}

/** Nothing plays, and an answer that is still to come is not wanted any more. */
function interrupt() {
  asked++;
  cancelRollout();
  stop();
  shownOf = null;
  showJourneys();
  $("moment").disabled = $("play").disabled = true;
}

/** Nothing on the stages. */
function clearStages() {
  interrupt();
  show("elite", null, "Elite", "");
  show("actor", null, SAME, "");
  clip = { ...clip, frames: 1, moment: 0 };
  $("moment").max = 0;
  $("watching").textContent = exported ? "Click a marked cell." : "Click a cell of the map.";
  document.body.dataset.watching = "nothing";
  moveTo(0);
}

/** Ways are drawn on the map they belong to. */
function showJourneys() {
  const here = shownOf && shownOf.seed === seed() && shownOf.iteration === iteration();
  map.setJourneys(here ? shownOf.journeys : []);
}

/** A camera that stays sees the ways of both. */
function frameTogether() {
  const box = stages.elite.extent().union(stages.actor.extent());
  for (const stage of Object.values(stages)) stage.setStay(box);
}

function show(who, recording, title, none) {
  $(`${who}-title`).textContent = title;
  const numbers = $(`${who}-numbers`);
  numbers.replaceChildren();
  stages?.[who].load(recording);
  const words = recording && stages ? "" : (recording ? stageless : none || stageless);
  $(`${who}-none`).textContent = words;
  $(`${who}-none`).hidden = !words;
  if (!recording) return;
  const add = (name, value) => {
    const [term, text] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = name;
    text.textContent = value;
    numbers.append(term, text);
  };
  if (!recording.valid) add("failed", "the simulation diverged");
  const before = who === "elite" ? "stored" : "evaluated";
  const stored = recording.stored_fitness ?? evaluatedFitness(recording);
  const differs = stored !== undefined && recording.fitness !== null && Math.abs(stored - recording.fitness) > 1e-4 * Math.abs(stored);
  add("fitness", text(recording.fitness) + (differs ? ` (${before}: ${text(stored)})` : ""));
  if (recording.stored_descriptor) add("descriptor", vector(recording.stored_descriptor));
  if (vector(recording.asked) !== vector(recording.stored_descriptor)) add("asked for", vector(recording.asked));
  add("reached", vector(recording.reached));
  add("distance", text(recording.distance));
  add("steps", `${recording.steps} of ${run.episode_length}`);
  if (!run.deterministic) add("note", "the task is random: every episode is another");
  else if (differs && run.trained_on) {
    add("note", `trained on ${run.trained_on}; replayed here on the CPU, where numbers are rounded otherwise`);
  } else if (differs) {
    add("note", "numbers are rounded otherwise than in the evaluation, and a robot makes much of little");
  }
}

/** What the actor reached when the run was evaluated, asked for the same. */
function evaluatedFitness({ asked }) {
  if (!archive?.actor_fitness) return undefined;
  const cell = archive.descriptors.findIndex((d) => d.every((v, i) => v === asked[i]));
  return archive.actor_fitness[cell] ?? undefined;
}

function moveTo(frame) {
  clip.moment = Math.min(Math.max(frame, 0), clip.frames - 1);
  const shown = Math.round(clip.moment);
  $("moment").value = shown;
  const seconds = (f) => (f * (run.scene?.dt ?? 1)).toFixed(1);
  $("moment-value").textContent = `${seconds(shown)} of ${seconds(Math.max(clip.frames - 1, 0))} s`;
  $("moment").setAttribute("aria-valuetext", `${seconds(shown)} seconds`);
  if (stages) for (const stage of Object.values(stages)) stage.show(clip.moment);
}

function start() {
  if (clip.moment >= clip.frames - 1) moveTo(0);
  clip.playing = true;
  clip.last = performance.now();
  $("play").textContent = "Pause";
  clip.request = requestAnimationFrame(advance);
}
function stop() {
  clip.playing = false;
  cancelAnimationFrame(clip.request);
  $("play").textContent = "Play";
}
function advance(now) {
  if (!clip.playing) return;
  const passed = Math.min((now - clip.last) / 1000, 0.25); // a tab that slept does not jump ahead
  clip.last = now;
  moveTo(clip.moment + (passed / run.scene.dt) * Number($("speed").value));
  if (clip.moment >= clip.frames - 1) return stop();
  clip.request = requestAnimationFrame(advance);
}

function buildStages() {
  if (stages) return;
  if (!run.scene) {
    stageless = `${run.task} has no body model to draw, only numbers.`;
  } else {
    try {
      const other = { elite: "actor", actor: "elite" };
      stages = {};
      for (const who of ["elite", "actor"]) {
        const tell = (camera) => stages[other[who]]?.setCamera(camera);
        stages[who] = createStage($(`${who}-stage`), run.scene, who, tell);
      }
    } catch {
      stages = null;
      stageless = "This browser has no WebGL to draw with, only numbers.";
    }
  }
  $("transport").hidden = stages === null;
  for (const who of ["elite", "actor"]) {
    $(`${who}-stage`).hidden = stages === null;
  }
  clearStages();
}

// ---------------------------------------------------------------------------------------- curves

const TITLES = { qd_score: "QD-score", coverage: "coverage in %", max_fitness: "max. fitness", rejected: "rejected", seconds: "seconds" };
const titleOf = (name) => TITLES[name] ?? name.replace("added.", "added by ").replaceAll("_", " ").replace(".", ", ");
const curves = [0, 1, 2, 3].map((i) => createCurve($(`curve-${i}`)));

function showCurves() {
  if (!metrics?.evaluations?.length) return;
  $("missing").textContent = metrics.missing ? `without ${metrics.missing}, which metrics.csv lacks` : "";
  const fixed = ["qd_score", "coverage", "max_fitness"];
  const rest = Object.keys(metrics.values).filter((name) => !fixed.includes(name));
  if ($("curve").options.length !== rest.length) {
    fill($("curve"), rest.map((name) => [name, titleOf(name)]), $("curve").value);
  }
  [...fixed, $("curve").value].forEach((name, i) => {
    const scale = name === "coverage" ? 100 : 1;
    const values = metrics.values[name]?.map((row) => row.map((v) => (v === null ? null : v * scale)));
    curves[i].set(values && { title: titleOf(name), x: metrics.evaluations, values, seed: allSeeds.indexOf(seed()) });
  });
}

async function getMetrics() {
  if (exported && metrics) return false;
  const known = () => metrics?.iteration?.at(-1) ?? 0;
  const before = known();
  const news = await get("/api/metrics", { after: before });
  if (!news.iteration?.length || known() !== before) return false; // none, or somebody else got them
  if (!metrics) metrics = news;
  else {
    metrics.iteration.push(...news.iteration);
    metrics.evaluations.push(...news.evaluations);
    metrics.missing = news.missing;
    for (const name of Object.keys(metrics.values)) metrics.values[name].push(...(news.values[name] ?? []));
  }
  return true;
}

// ------------------------------------------------------------------------------------- the whole

function fill(select, options, value) {
  select.replaceChildren(...options.map(([key, label]) => new Option(label, key)));
  if (options.some(([key]) => String(key) === String(value))) select.value = value;
}

/** Offer these iterations; who looks at the newest goes along, unless something plays or is about to. */
function setTime(iterations) {
  const slider = $("time");
  const when = iteration();
  run.iterations = iterations;
  slider.max = iterations.length - 1;
  const busy = clip.playing || document.body.dataset.watching === "waiting";
  slider.value = isNewest && !busy ? newest() : Math.max(iterations.indexOf(when), 0);
}

/** The place of the newest iteration that can be played: the archive is there before its checkpoint is. */
function newest() {
  const played = run.iterations.indexOf(run.kept.at(-1));
  return played >= 0 ? played : run.iterations.length - 1;
}

function refuseEmpty({ iterations }) {
  if (!iterations.length) throw new Error("The run has no snapshot of its archive yet: wait for its first checkpoint.");
}

async function begin() {
  run = await get("/api/run");
  setRun(run.id);
  document.title = `${run.name} – elites`;
  $("name").textContent = run.name;
  $("about").textContent = `${run.algorithm} on ${run.task}` + (run.descriptor ? `; descriptor: ${run.descriptor}` : "");
  allSeeds = run.all_seeds ?? run.seeds;
  fill($("seed"), run.seeds.map((s) => [s, s]));
  fill($("colour"), COLOURS);
  const pairs = run.low.flatMap((_, i) => run.low.slice(i + 1).map((_, k) => [`${i},${i + k + 1}`, `${i + 1} and ${i + k + 2}`]));
  fill($("pair"), pairs);
  $("pair-label").hidden = pairs.length < 2;
  $("ask-numbers").replaceChildren(...run.low.map((low, i) => {
    const label = document.createElement("label");
    const input = document.createElement("input");
    Object.assign(input, { type: "number", step: "any", min: low, max: run.high[i], value: Number(((low + run.high[i]) / 2).toPrecision(4)), required: true });
    input.setAttribute("aria-label", run.low.length > 1 ? `descriptor ${i + 1}` : "descriptor");
    label.append(run.low.length > 1 ? `${i + 1} ` : "descriptor ", input);
    return label;
  }));
  $("ask").hidden = exported || !run.conditioned;
  refuseEmpty(run);
  $("time").max = run.iterations.length - 1;
  $("time").value = newest();
  const cells = await get("/api/cells");
  range = cells.fitness;
  map.setCells(run, cells);
  buildStages();
  $("seed").value = await bestSeed();
  await showArchive();
  await getMetrics();
  showCurves();
  document.querySelector("main").inert = false;
  document.body.dataset.ready = "yes";
}

/** The seed with the highest QD-score, if the metrics can tell. */
async function bestSeed() {
  if (run.seeds.length === 1) return run.seeds[0];
  await getMetrics();
  const last = metrics?.values.qd_score?.at(-1) ?? [];
  const score = (s) => last[allSeeds.indexOf(s)] ?? -Infinity;
  return run.seeds.reduce((best, s) => (score(s) > score(best) ? s : best), run.seeds[0]);
}

/** What a run that is still training has added since. */
async function catchUp() {
  const news = await get("/api/run");
  if (news.id !== run.id) return location.reload(); // another run is served here now
  refuseEmpty(news);
  const before = iteration();
  const changed = news.evaluated !== run.evaluated || news.kept.join() !== run.kept.join();
  run = { ...run, kept: news.kept, evaluated: news.evaluated, total: news.total };
  setTime(news.iterations);
  if (changed || !archive || iteration() !== before) await showArchive();
  $("time-value").textContent = `${iteration()} of ${run.total}`;
  if (await getMetrics()) showCurves();
}

async function follow() {
  try {
    if (document.hidden) return;
    await catchUp();
    if (lost) say(null);
    lost = false;
  } catch (error) {
    lost = true;
    say(error);
  } finally {
    setTimeout(follow, POLL);
  }
}

$("seed").addEventListener("change", () => attempt(async () => {
  clearStages();
  map.select(-1);
  say(null);
  await showArchive();
  showCurves();
}));
$("time").addEventListener("input", () => attempt(async () => {
  if (document.body.dataset.watching === "waiting") clearStages();
  isNewest = Number($("time").value) >= newest();
  say(null);
  await showArchive();
}));
$("colour").addEventListener("change", () => {
  wanted = $("colour").value;
  showColours();
});
$("pair").addEventListener("change", () => map.setAxes($("pair").value.split(",").map(Number)));
for (const id of ["fitness-low", "fitness-high"]) $(id).addEventListener("input", filter);
$("zoom-in").addEventListener("click", () => map.zoomBy(1.5));
$("zoom-out").addEventListener("click", () => map.zoomBy(1 / 1.5));
$("zoom-reset").addEventListener("click", () => map.whole());
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (canPlay()) ask();
});
$("play").addEventListener("click", () => (clip.playing ? stop() : start()));
$("moment").addEventListener("input", () => {
  stop();
  moveTo(Number($("moment").value));
});
$("camera").addEventListener("change", () => {
  if (stages) for (const stage of Object.values(stages)) stage.setMode($("camera").value);
});
$("curve").addEventListener("change", showCurves);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  forgetColours();
  map.redraw();
  curves.forEach((curve) => curve.redraw());
  if (stages) for (const stage of Object.values(stages)) stage.repaint();
});

/** Begin, and again in a while if it fails: a run that has just been started has little to show. */
async function beginAndFollow() {
  try {
    await begin();
    say(null);
    if (!exported) setTimeout(follow, POLL);
  } catch (error) {
    say(error);
    if (!exported) setTimeout(beginAndFollow, POLL);
  }
}
beginAndFollow();
