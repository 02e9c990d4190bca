// Drawing on a canvas: resolution, repainting, and texts of limited width.

/**
 * Return a function that schedules one call of `draw` for the next frame. Calling it again before
 * that frame has no effect.
 */
export function oncePerFrame(draw) {
  let planned = false;
  return () => {
    if (planned) return;
    planned = true;
    requestAnimationFrame(() => {
      planned = false;
      draw();
    });
  };
}

/**
 * Clear a canvas, set its resolution to that of the screen, and return { context, width, height }.
 * Width and height are in CSS pixels.
 */
export function prepareCanvas(canvas) {
  const box = canvas.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [Math.max(box.width, 1), Math.max(box.height, 1)];
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** Return a text, cut and followed by an ellipsis if it is wider than `width` pixels. */
export function shorten(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const letters = [...text];
  while (letters.length && context.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}
