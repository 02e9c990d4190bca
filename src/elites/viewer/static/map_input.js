// Pointer, wheel and keyboard on the map.

import { bringIntoView, cellAt, isInFrame, moveView, neighbour, resetView, valuesAt, zoomView } from "./map_view.js";
import { onGesture, positionOn } from "./pointer.js";

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/**
 * React to the pointer on the map: drag and pinch move the view, a click calls `onPick`, hovering
 * shows the tooltip.
 */
export function onMapPointer(map, tooltip, repaint, { onPick }) {
  const { canvas } = map;
  function move(dx, dy) {
    moveView(map, dx, dy);
    tooltip.hide();
    repaint();
  }
  const isBusy = onGesture(canvas, {
    onDrag: move,
    onPinch(factor, x, y, dx, dy) {
      move(dx, dy);
      zoomView(map, factor, x, y);
    },
    onClick(x, y, shift) {
      if (!map.run || !map.archive || !isInFrame(map, x, y)) return;
      tooltip.hide(); // it would cover the drawn trajectory
      onPick(cellAt(map, x, y), valuesAt(map, x, y), shift);
    },
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!map.run || isBusy()) return;
    const [x, y] = positionOn(canvas, event);
    const cell = cellAt(map, x, y);
    if (cell >= 0) tooltip.show(cell);
    else tooltip.hide();
  });
  for (const name of ["pointerleave", "blur"]) canvas.addEventListener(name, tooltip.hide);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    tooltip.hide();
    zoomView(map, Math.exp(-event.deltaY * 0.0015), ...positionOn(canvas, event));
    repaint();
  }, { passive: false });
}

/**
 * React to the keyboard on the map: arrows select a cell, Enter picks it, also with the shift key, "n" selects the next cell
 * with a recording. Plus, minus and 0 zoom.
 */
export function onMapKeyboard(map, tooltip, repaint, { onPick, onSelect }) {
  function select(cell) {
    onSelect(cell);
    bringIntoView(map, cell);
    tooltip.hide(); // the view may have moved
    tooltip.show(cell);
  }
  function zoom(factor) {
    zoomView(map, factor);
    repaint();
  }
  function play(event) {
    if (map.selected < 0 || event.repeat) return;
    tooltip.hide();
    onPick(map.selected, { ...map.cells.centroids[map.selected] }, event.shiftKey);
  }
  function selectMarked() {
    const order = [...(map.marked ?? [])].sort((a, b) => a - b);
    if (order.length) select(order.find((cell) => cell > map.selected) ?? order[0]);
  }
  map.canvas.addEventListener("keydown", (event) => {
    if (!map.run || !map.archive) return;
    if (event.key in ARROWS || event.key === "Enter" || event.key === " ") event.preventDefault();
    if (event.key in ARROWS) {
      const cell = neighbour(map, ARROWS[event.key]);
      if (cell >= 0) select(cell);
    } else if (event.key === "n") selectMarked();
    else if (event.key === "Escape") tooltip.hide();
    else if (event.key === "Enter" || event.key === " ") play(event);
    else if (event.key === "+" || event.key === "=") zoom(1.4);
    else if (event.key === "-") zoom(1 / 1.4);
    else if (event.key === "0") {
      resetView(map);
      repaint();
    }
  });
}
