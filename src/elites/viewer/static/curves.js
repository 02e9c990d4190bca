// Learning curves: each seed a line, the one that is shown on the map a thick one.

import { extent, ofPage, oncePerFrame, sharp, text, ticks } from "./drawing.js";

const MARGIN = { left: 48, right: 6, top: 26, bottom: 18 };

export function createCurve(canvas) {
  let data = null; // { title, x [n], values [n][seeds], seed }
  let pointer = null;
  const plan = oncePerFrame(draw);

  function draw() {
    const { context, width, height } = sharp(canvas);
    if (!data) return;
    const [ink, soft, line, chosen] = ["ink", "soft", "line", "elite"].map(ofPage);
    const { title, x, values, seed } = data;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = ink;
    context.textAlign = "left";
    const flat = values.flat().filter((v) => v !== null);
    if (!flat.length) {
      context.fillText(`${title}: nothing yet`, 4, 10);
      return;
    }
    let [low, high] = extent(flat);
    if (low > 0 && low < 0.5 * high) low = 0;
    if (high === low) high = low + 1;
    const first = Math.min(0, x[0]);
    const last = Math.max(x[x.length - 1], first + 1);
    const at = (i, v) => [
      MARGIN.left + ((x[i] - first) / (last - first)) * (width - MARGIN.left - MARGIN.right),
      height - MARGIN.bottom - ((v - low) / (high - low)) * (height - MARGIN.top - MARGIN.bottom),
    ];
    context.lineWidth = 1;
    context.strokeStyle = line;
    context.fillStyle = soft;
    context.textAlign = "right";
    for (const [value, label] of ticks(low, high, 3)) {
      const [, y] = at(0, value);
      context.beginPath();
      context.moveTo(MARGIN.left, y);
      context.lineTo(width - MARGIN.right, y);
      context.stroke();
      context.fillText(label, MARGIN.left - 4, y);
    }
    context.textAlign = "center";
    for (const [value, label] of ticks(first, last, 3)) {
      const place = MARGIN.left + ((value - first) / (last - first)) * (width - MARGIN.left - MARGIN.right);
      if (place < width - 14) context.fillText(label, place, height - 8);
    }
    const order = values[0].map((_, s) => s).filter((s) => s !== seed);
    for (const s of [...order, seed]) {
      context.beginPath();
      let pen = false;
      for (let i = 0; i < x.length; i++) {
        if (values[i][s] === null) pen = false;
        else {
          context[pen ? "lineTo" : "moveTo"](...at(i, values[i][s]));
          pen = true;
        }
      }
      context.strokeStyle = s === seed ? chosen : soft;
      context.globalAlpha = s === seed ? 1 : 0.5;
      context.lineWidth = s === seed ? 2 : 1;
      context.stroke();
    }
    context.globalAlpha = 1;
    let i = x.length - 1;
    if (pointer !== null) {
      const wanted = first + ((pointer - MARGIN.left) / (width - MARGIN.left - MARGIN.right)) * (last - first);
      i = x.findIndex((v) => v >= wanted);
      if (i < 0) i = x.length - 1;
      context.strokeStyle = ink;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(at(i, low)[0], MARGIN.top);
      context.lineTo(at(i, low)[0], height - MARGIN.bottom);
      context.stroke();
    }
    context.fillStyle = ink;
    context.textAlign = "left";
    const value = title.includes("%") ? text(values[i][seed], 3) : text(values[i][seed]);
    const when = pointer === null ? "" : ` at ${text(x[i])}`;
    context.fillText(`${title}  ${value}${when}`, 4, 9);
    const label = `${title} of the seed shown: ${value} after ${text(x[i])} evaluations`;
    if (pointer === null) canvas.setAttribute("aria-label", label);
  }

  canvas.addEventListener("pointermove", (event) => {
    pointer = event.clientX - canvas.getBoundingClientRect().left;
    plan();
  });
  canvas.addEventListener("pointerleave", () => {
    pointer = null;
    plan();
  });
  new ResizeObserver(plan).observe(canvas);
  return { set(next) { data = next; plan(); }, redraw: plan };
}
