// The map of the archive: its state, and the functions that other modules call.

import { oncePerFrame } from "./canvas.js";
import { cellOutlines, drawMap } from "./map_drawing.js";
import { onMapKeyboard, onMapPointer } from "./map_input.js";
import { publishMargin, resetView, zoomView } from "./map_view.js";
import { createTooltip } from "./tooltip.js";

/**
 * Create a map of an archive on a canvas, and return the functions that change the map. A click or
 * Enter calls `onPick(cell, values, extend)` with the values by axis, and whether the shift key is
 * pressed. The arrow keys call `onSelect(cell)`. `describe(cell)` returns the text of the tooltip.
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
    paths: [], // paths of all elites, as descriptors
    stops: [], // cells of the tour
    trajectories: [], // { colour, requested, reached, path }
    view: { zoom: 1, x: 0, y: 0 }, // visible part of the unit square
  };
  const repaint = oncePerFrame(() => drawMap(map));
  const tooltip = createTooltip(map, tooltipElement, describe);
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
    setPaths: (paths) => update({ paths }),
    setStops: (stops) => update({ stops }),
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
