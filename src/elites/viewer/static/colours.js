// Colours: scales for values, a list for names, and the colours of the style sheet.

// Viridis at 17 points. Dark is low and light is high, also in grey and for colour-blind people.
const VIRIDIS = [
  "440154", "48186a", "472d7b", "424086", "3b528b", "33638d", "2c728e", "26828e", "21918c",
  "1fa088", "28ae80", "3fbc73", "5ec962", "84d44b", "addc30", "d8e219", "fde725",
].map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)));

/** Return the colour of a number between 0 and 1 on the scale Viridis, as a CSS colour. */
function viridis(share) {
  const position = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const i = Math.min(Math.floor(position), VIRIDIS.length - 2);
  const mix = VIRIDIS[i].map((v, k) => Math.round(v + (position - i) * (VIRIDIS[i + 1][k] - v)));
  return `rgb(${mix})`;
}

// The first is for the initial policies. The others are the colours of Okabe and Ito.
const NAMED = ["#9a9a9a", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c510a"];

// Limbs of a robot, as in the films of `elites render`. The trunk has the colour of its stage.
const LIMBS = ["#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"];

/** Return the CSS colour of limb number `i` of a robot, counted from 1. */
export const limbColour = (i) => LIMBS[(i - 1) % LIMBS.length];

/**
 * Return the CSS colour of a number on a scale { low, high, reversed }. Large numbers are light, or
 * small ones if the scale is reversed.
 */
export function scaleColour(value, { low, high, reversed }) {
  const share = (value - low) / (high - low || 1);
  return viridis(reversed ? 1 - share : share);
}

/** Return the CSS colour of variation number `i`. */
export const namedColour = (i) => NAMED[i % NAMED.length];

const known = new Map();

/** Return the CSS colour of the style sheet's variable `--name` in the current theme. */
export function themeColour(name) {
  if (!known.has(name)) known.set(name, readThemeColour(name));
  return known.get(name);
}

/** Clear the cache of theme colours. Must be called when the theme changes. */
export const forgetThemeColours = () => known.clear();

function readThemeColour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}
