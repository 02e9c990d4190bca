// What all drawings share: colours, sharp canvases, numbers for people, when to draw.

// Viridis at every sixteenth: dark is low, light is high, also in grey and for colour-blind people.
const VIRIDIS = [
  "440154", "48186a", "472d7b", "424086", "3b528b", "33638d", "2c728e", "26828e", "21918c",
  "1fa088", "28ae80", "3fbc73", "5ec962", "84d44b", "addc30", "d8e219", "fde725",
].map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)));

/** The colour of a share between 0 and 1. */
export function viridis(share) {
  const place = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const i = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mix = VIRIDIS[i].map((v, k) => Math.round(v + (place - i) * (VIRIDIS[i + 1][k] - v)));
  return `rgb(${mix})`;
}

// The first is for the initial policies, the others are Okabe and Ito's.
const NAMES = ["#9a9a9a", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c510a"];
export const ofName = (i) => NAMES[i % NAMES.length];

const known = new Map();

/** A colour of the style sheet, as it is in the present theme. */
export function ofPage(name) {
  if (!known.has(name)) known.set(name, look(name));
  return known.get(name);
}
export const forgetColours = () => known.clear();

function look(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

/** A function that has `draw` called once in the next frame, however often it is called before. */
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

/** A canvas as sharp as the screen: its context, width and height in CSS pixels. */
export function sharp(canvas) {
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

/** A number as people read it. */
export function text(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size < 1e-3) return value.toExponential(1);
  return String(Number(value.toPrecision(digits)));
}

/** The least and the greatest of some numbers; 0 and 1 of none. */
export function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const v of values) {
    if (v === null || v === undefined) continue;
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return low <= high ? [low, high] : [0, 1];
}

/** Round numbers between two, about as many as asked for, each with its text. */
export function ticks(low, high, count) {
  const rough = (high - low) / count;
  if (!(rough > 0)) return [[low, text(low)]];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((k) => k * power >= rough) * power;
  const first = Math.ceil(low / step);
  const result = [];
  for (let i = first; i * step <= high + step * 1e-9; i++) {
    const value = Number((i * step).toPrecision(12));
    result.push([value, label(value, step)]);
  }
  return result;
}

/** A number with the digits that tell it from its neighbours, a step away. */
function label(value, step) {
  const [unit, name] = Math.abs(value) >= 1e6 ? [1e6, "M"] : Math.abs(value) >= 1e4 ? [1e3, "k"] : [1, ""];
  const decimals = Math.max(Math.ceil(-Math.log10(step / unit) - 1e-9), 0);
  if (decimals > 4 && value === 0) return "0";
  if (decimals > 4) return value.toExponential(Math.min(Math.max(Math.ceil(Math.log10(Math.abs(value) / step) - 1e-9), 1), 9));
  return (value / unit).toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }) + name;
}
