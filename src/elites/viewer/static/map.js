// The map of the archive: its state, its tooltip, and the functions that other modules call.

import { oncePerFrame } from "./canvas.js";
import { cellOutlines, drawMap } from "./map_drawing.js";
import { onMapKeyboard, onMapPointer } from "./map_input.js";
import { publishMargin, resetView, zoomView } from "./map_view.js";

/**
 * Create a map of an archive on a canvas, and return the functions that change the map. A click or
 * Enter calls `onPick(cell, values)` with the values by axis, and the arrow keys call
 * `onSelect(cell)`. `describe(cell)` returns the text of the tooltip.
 */
export function createMap(canvas, tooltipElement, { onPick, onSelect, describe }) {
  const map = {
    canvas,
    run: null, // bounds and names of the axes
    cells: null, // centroids, and corners or the size of a grid
    archive: null, // columns with a value for each cell
    shade: null, // { kind: "number" | "name", values, low, high }
    outlines: [], // Path2D of each cell in the unit square
    axes: [0, 1], // the two axes that are shown
    passes: () => true, // whether a cell passes the filter
    selected: -1,
    marked: null, // cells that can be played, if not all of them can
    trajectories: [], // { colour, requested, reached, path }
    view: { zoom: 1, x: 0, y: 0 }, // visible part of the unit square
  };
  const repaint = oncePerFrame(() => drawMap(map));
  const tooltip = createTooltip(canvas, tooltipElement, describe);
  publishMargin(canvas);
  onMapPointer(map, tooltip, repaint, { onPick });
  onMapKeyboard(map, tooltip, repaint, { onPick, onSelect });
  new ResizeObserver(() => {
    tooltip.hide();
    repaint();
  }).observe(canvas);

  /** Change properties of the map and draw it again. */
  function update(changes) {
    Object.assign(map, changes);
    repaint();
  }
  return {
    setCells(run, cells) {
      Object.assign(map, { run, cells });
      update({ outlines: cellOutlines(map) });
    },
    setArchive: (archive) => update({ archive }),
    setShade: (shade) => update({ shade }),
    setFilter: (passes) => update({ passes }),
    setAxes: (axes) => update({ axes }),
    setMarked: (marked) => update({ marked }),
    setTrajectories: (trajectories) => update({ trajectories }),
    select: (selected) => update({ selected }),
    showWhole() {
      resetView(map);
      repaint();
    },
    zoomBy(factor) {
      zoomView(map, factor);
      repaint();
    },
    repaint,
  };
}

/**
 * Return { show, hide } for the tooltip of the map. `show(cell, x, y)` shows the text of a cell
 * beside the position of the pointer.
 */
function createTooltip(canvas, element, describe) {
  /**
   * Return where the tooltip starts, in pixels along one axis: after the position `at`, or before
   * it if there is too little room. `own` is the size of the tooltip, `room` that of the canvas.
   */
  const beside = (at, own, room) => Math.max(at + 14 + own > room ? at - own - 10 : at + 14, 0);
  return {
    show(cell, x, y) {
      element.textContent = describe(cell);
      element.hidden = false;
      const box = canvas.getBoundingClientRect();
      element.style.left = `${beside(x, element.offsetWidth, box.width)}px`;
      element.style.top = `${beside(y, element.offsetHeight, box.height)}px`;
    },
    hide() {
      element.hidden = true;
    },
  };
}
