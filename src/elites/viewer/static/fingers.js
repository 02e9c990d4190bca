// What a mouse or fingers do on a canvas: one drags or clicks, two pinch.

const STILL = 4; // pixels that a click may move

/**
 * `onDrag(dx, dy)`, `onPinch(factor, x, y, dx, dy)` around the middle of two fingers, and `onClick(x, y)`, in
 * pixels of the canvas. A gesture that was ever more than a click ends as none. Returns whether one is under way.
 */
export function onFingers(canvas, { onDrag, onPinch, onClick }) {
  const fingers = new Map(); // where each is, by its number
  let click = false; // whether this may still become one

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  function pair() {
    const [[x0, y0], [x1, y1]] = fingers.values();
    return { apart: Math.max(Math.hypot(x1 - x0, y1 - y0), 1), x: (x0 + x1) / 2, y: (y0 + y1) / 2 };
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || fingers.size === 2) return;
    fingers.set(event.pointerId, at(event));
    canvas.setPointerCapture(event.pointerId);
    click = fingers.size === 1;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const now = at(event);
    const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
    if (click && Math.hypot(dx, dy) <= STILL) return;
    click = false;
    if (fingers.size === 1) {
      fingers.set(event.pointerId, now);
      onDrag(dx, dy);
    } else {
      const from = pair();
      fingers.set(event.pointerId, now);
      const to = pair();
      onPinch(to.apart / from.apart, to.x, to.y, to.x - from.x, to.y - from.y);
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!fingers.delete(event.pointerId)) return;
    if (click) onClick?.(...at(event));
    click = false;
  });
  for (const name of ["pointercancel", "lostpointercapture"]) {
    canvas.addEventListener(name, (event) => {
      if (fingers.delete(event.pointerId)) click = false;
    });
  }
  return () => fingers.size > 0 && !click;
}
