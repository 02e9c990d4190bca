"""How fast the page of a run is, in a real browser: one JSON line.

    python benchmarks/viewer.py runs/ant_omni-dcg_me

Needs the packages of the `dev` extra and a Chromium. `paint_ms` is the time to draw the map once,
`scrub_ms` the time between two frames while the time slider moves through all snapshots, again and
again, `watch_s` the time from a click to the first frame, for several cells.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

SCRUB = """async () => {
  const slider = document.getElementById("iteration");
  const times = [];
  let last = performance.now();
  for (let k = 0; k < 120; k++) {
    const steps = Number(slider.max) + 1;
    slider.value = k % (2 * steps) < steps ? k % steps : steps - 1 - (k % steps);
    slider.dispatchEvent(new Event("input"));
    const now = await new Promise(requestAnimationFrame);
    if (k > 2 * steps) times.push(now - last);
    last = now;
  }
  slider.value = slider.max;
  slider.dispatchEvent(new Event("input"));
  return times;
}"""


PAINTS = """
  globalThis.paints = [];
  new PerformanceObserver((list) => paints.push(...list.getEntries().map((e) => e.duration)))
    .observe({ type: "measure" });
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--cells", type=int, default=8, help="how many to click")
    options = parser.parse_args()
    command = [sys.executable, "-m", "elites", "view", str(options.run), "--no-browser"]
    start = time.perf_counter()
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = re.findall(r"http://\S+", server.stdout.readline())[0]
        served = time.perf_counter() - start
        print(json.dumps({**measure(address, options.cells), "start_s": round(served, 2)}))
    finally:
        server.terminate()
        server.wait()


def measure(address: str, clicks: int) -> dict[str, object]:
    chromium = os.environ.get("ELITES_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(120_000)
        page.add_init_script(PAINTS)
        page.goto(address)
        page.wait_for_selector("body[data-ready=yes]")
        about = page.evaluate("() => fetch('/api/run').then((r) => r.json())")
        query = f"iteration={about['playable'][-1]}&seed={page.locator('#seed').input_value()}"
        archive = page.evaluate(f"() => fetch('/api/archive?{query}').then((r) => r.json())")
        where = page.evaluate("() => fetch('/api/cells').then((r) => r.json())")["centroids"]
        filled = [i for i, value in enumerate(archive["fitness"]) if value is not None]
        scrub = page.evaluate(SCRUB)
        watch = []
        box = page.locator("#map").bounding_box()
        assert box is not None
        margin = json.loads(page.locator("#map").get_attribute("data-margin") or "")
        wide = box["width"] - margin["left"] - margin["right"]
        high = box["height"] - margin["top"] - margin["bottom"]
        for cell in filled[:: max(len(filled) // clicks, 1)][:clicks]:
            shares = [
                (v - least) / (most - least)
                for v, least, most in zip(where[cell], about["low"], about["high"], strict=True)
            ]
            x = box["x"] + margin["left"] + shares[0] * wide
            y = box["y"] + margin["top"] + (1 - shares[1]) * high
            begin = time.perf_counter()
            page.mouse.click(x, y)
            page.wait_for_selector("body[data-watching=waiting]")
            page.wait_for_selector("body[data-watching=ready]")
            watch.append(time.perf_counter() - begin)
        paint = page.evaluate("paints")
        browser.close()
    return {
        "benchmark": "viewer",
        "task": about["task"],
        "cells": len(where),
        "snapshots": len(about["iterations"]),
        "paint_ms": {"median": round(statistics.median(paint), 1), "max": round(max(paint), 1)},
        "scrub_ms": {"median": round(statistics.median(scrub), 1), "max": round(max(scrub), 1)},
        "watch_s": {
            "first": round(watch[0], 2),
            "median of the others": round(statistics.median(watch[1:]), 2),
            "max of the others": round(max(watch[1:]), 2),
        },
    }


if __name__ == "__main__":
    main()
