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
window.showPaths = ({ paths, around }) => {
  window.stage.setPaths(around);
  const box = window.stage.pathBox();
  window.stage.setPaths(paths);
  window.stage.setCameraMode("fixed");
  window.stage.setFixedView(box);
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
    _show(page, scene, poses, path=None)
    return _picture(page)


def pictures_of_paths(page, scene: dict, poses: np.ndarray, paths: list) -> list[np.ndarray]:
    """Return the picture of a scene without paths, and with each one alone. All have one camera."""
    place = poses[0, :2].tolist()
    _show(page, scene, poses, path=[place, place], requested=place, reached=place)
    pictures = []
    for shown in ([], *([path] for path in paths)):
        page.evaluate("given => window.showPaths(given)", {"paths": shown, "around": paths})
        pictures.append(_picture(page))
    return pictures


def _show(page, scene: dict, poses: np.ndarray, **recording) -> None:
    recording["poses"] = pack_poses(np.array([poses, poses]))
    page.evaluate("given => window.show(given)", {"scene": scene, "recording": recording})


def _picture(page) -> np.ndarray:
    drawn(page)
    image = Image.open(io.BytesIO(page.locator("canvas").screenshot()))
    return np.asarray(image.convert("RGB")).astype(int)
