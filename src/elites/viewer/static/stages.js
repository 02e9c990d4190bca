// The two stages, on which the robots of the elite and of the distilled policy are drawn.

import { $ } from "./dom.js";
import { createStage } from "./stage.js";
import { state } from "./state.js";

const STAGES = ["elite", "actor"];

/** Create the stages of elite and actor. The cameras of the two turn together. */
export function buildStages() {
  if (state.stages) return;
  const { run } = state;
  if (!run.scene) {
    state.noStages = `${run.task} has no body model and no scene, so there is nothing to draw.`;
  } else {
    try {
      const stages = {};
      for (const [who, other] of [STAGES, [...STAGES].reverse()]) {
        const onCamera = (orbit) => stages[other]?.setOrbit(orbit);
        stages[who] = createStage($(`${who}-stage`), run.scene, who, onCamera);
      }
      state.stages = stages;
      setCamera(run.scene.camera ?? "follow");
    } catch {
      state.noStages = "This browser does not support WebGL, which is needed to draw the robot.";
    }
  }
  $("playback").hidden = state.stages === null;
  for (const who of STAGES) $(`${who}-stage`).hidden = state.stages === null;
}

/** Let the cameras of both stages follow the robot ("follow") or stand still ("fixed"). */
export function setCamera(mode) {
  $("camera").value = mode;
  for (const stage of Object.values(state.stages ?? {})) stage.setCameraMode(mode);
}

/** Place the fixed cameras so that they see the paths of both robots. */
export function frameBoth() {
  if (!state.stages) return;
  const { elite, actor } = state.stages;
  const box = elite.pathBox().union(actor.pathBox());
  for (const stage of [elite, actor]) stage.setFixedView(box);
}
