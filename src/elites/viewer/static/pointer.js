// Gestures of a mouse or of fingers on a canvas: click, drag and pinch.

const CLICK_DISTANCE = 4; // pixels that the pointer may move during a click

/**
 * Call `onDrag(dx, dy)`, `onPinch(factor, x, y, dx, dy)` and `onClick(x, y, shift)` for gestures on a canvas.
 * Positions are in CSS pixels of the canvas; a pinch is centred between the two fingers. A gesture that
 * has moved does not end as a click. Returns a function that says whether a drag or pinch is under way.
 */
export function onGesture(canvas, { onDrag, onPinch, onClick }) {
  const pointers = new Map(); // position of each pressed pointer, by its id
  let isClick = false; // whether the gesture can still become a click

  function pinch() {
    const [[x0, y0], [x1, y1]] = pointers.values();
    return { distance: Math.max(Math.hypot(x1 - x0, y1 - y0), 1), x: (x0 + x1) / 2, y: (y0 + y1) / 2 };
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || pointers.size === 2) return;
    pointers.set(event.pointerId, positionOn(canvas, event));
    canvas.setPointerCapture(event.pointerId);
    isClick = pointers.size === 1;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const now = positionOn(canvas, event);
    const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
    if (isClick && Math.hypot(dx, dy) <= CLICK_DISTANCE) return;
    isClick = false;
    if (pointers.size === 1) {
      pointers.set(event.pointerId, now);
      onDrag(dx, dy);
    } else {
      const from = pinch();
      pointers.set(event.pointerId, now);
      const to = pinch();
      onPinch(to.distance / from.distance, to.x, to.y, to.x - from.x, to.y - from.y);
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!pointers.delete(event.pointerId)) return;
    if (isClick) onClick?.(...positionOn(canvas, event), event.shiftKey);
    isClick = false;
  });
  for (const name of ["pointercancel", "lostpointercapture"]) {
    canvas.addEventListener(name, (event) => {
      if (pointers.delete(event.pointerId)) isClick = false;
    });
  }
  return () => pointers.size > 0 && !isClick;
}

/** Return the position [x, y] of a pointer event in CSS pixels of a canvas. */
export function positionOn(canvas, event) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}
