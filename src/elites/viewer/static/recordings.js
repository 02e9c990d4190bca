// A recording on its stage: title, robot and numbers.

import { $, createElement } from "./dom.js";
import { formatNumber, formatVector } from "./numbers.js";
import { state } from "./state.js";

/**
 * Show a recording with its title and numbers. `who` is "elite" or "actor". If `recording` is null,
 * shows the text `reason` instead.
 */
export function showRecording(who, recording, title, reason) {
  $(`${who}-title`).textContent = title;
  state.stages?.[who].load(recording);
  const note = recording && state.stages ? "" : recording ? state.noStages : reason || state.noStages;
  $(`${who}-note`).textContent = note;
  $(`${who}-note`).hidden = !note;
  const rows = recording ? numbersOf(recording) : [];
  const elements = rows.flatMap(([name, value]) => [createElement("dt", name), createElement("dd", value)]);
  $(`${who}-numbers`).replaceChildren(...elements);
}

/**
 * Return the rows [name, value] of the table below a stage: fitness, descriptors, error and steps
 * of a recording.
 */
function numbersOf(recording) {
  const run = recording.run ?? state.run;
  const rows = [];
  const known = recording.stored_fitness ?? evaluatedFitness(recording.requested);
  const differs = known !== undefined && recording.fitness !== null
    && Math.abs(known - recording.fitness) > 1e-4 * Math.abs(known);
  const source = recording.stored_fitness === undefined ? "evaluated" : "stored";
  if (!recording.valid) rows.push(["failed", "the simulation diverged"]);
  rows.push(["fitness", formatNumber(recording.fitness) + (differs ? ` (${source}: ${formatNumber(known)})` : "")]);
  const [stored, requested] = [recording.stored_descriptor, recording.requested].map(formatVector);
  if (recording.stored_descriptor) rows.push(["descriptor", stored]);
  if (requested !== stored) rows.push(["requested", requested]);
  rows.push(["reached", formatVector(recording.reached)]);
  rows.push(["error", formatNumber(recording.error)]);
  rows.push(["steps", stepsOf(recording)]);
  if (!run.deterministic) rows.push(["note", "The task is stochastic: every episode differs."]);
  else if (differs) rows.push(["note", roundingNote(run)]);
  return rows;
}

/** Return a text on how long an episode was, and how it ended if it ended early. */
function stepsOf({ steps, ending }) {
  return ending ? `${ending} at step ${steps}` : `${steps}, the whole episode`;
}

/** Return a text that explains why a recording differs from the evaluation during training. */
function roundingNote({ trained_on: device, repeatable }) {
  if (!repeatable) {
    return "This simulator may round an episode differently in another row of a batch. Re-evaluation can therefore "
      + "differ from the archive. The descriptor error of the archive shows by how much.";
  }
  if (device) return `Trained on ${device}. This recording was computed on the CPU, which rounds differently.`;
  return "This recording was rounded differently from the evaluation. Small differences grow in a robot's motion.";
}

/**
 * Return the fitness of the actor from the evaluation tables, if the requested descriptor is that
 * of an elite. Returns undefined if it was not evaluated there.
 */
function evaluatedFitness(requested) {
  const { archive } = state;
  if (!archive?.actor_fitness) return undefined;
  const cell = archive.descriptors.findIndex((d) => d.every((v, i) => v === requested[i]));
  return archive.actor_fitness[cell] ?? undefined;
}
