"""Draw scenes on the stage of the page in a browser, without a run and without a server."""

from __future__ import annotations

import io
import json

import numpy as np
from PIL import Image

from browser import drawn
from elites.viewer.api import page_files
from elites.viewer.export import modules
from elites.viewer.recording import pack_poses

_SCRIPT = """
import { createStage } from "elites/stage.js";
window.show = ({ scene, recording }) => {
  const canvas = document.createElement("canvas");
  canvas.style = "width: 240px; height: 180px";
  document.body.replaceChildren(canvas);
  window.stage = createStage(canvas, scene, "elite", () => {});
  window.stage.load(recording);
};
document.body.dataset.ready = "yes";
"""


def open_stage(page) -> None:
    """Load a page that can show one stage."""
    files = page_files()
    page.goto("about:blank")  # forgets the modules of the page before
    page.set_content(
        f"<!doctype html><style>{files['style.css'].decode()}</style>"
        f'<script type="importmap">{json.dumps({"imports": modules(files)})}</script>'
        f'<body><script type="module">{_SCRIPT}</script>'
    )
    page.wait_for_selector("body[data-ready=yes]", state="attached")


def picture_of(page, scene: dict, poses: np.ndarray) -> np.ndarray:
    """Return the picture [height, width, 3] of a scene whose bodies stay at their poses [B, 7]."""
    recording = {"poses": pack_poses(np.array([poses, poses])), "path": None}
    page.evaluate("given => window.show(given)", {"scene": scene, "recording": recording})
    drawn(page)
    image = Image.open(io.BytesIO(page.locator("canvas").screenshot()))
    return np.asarray(image.convert("RGB")).astype(int)
