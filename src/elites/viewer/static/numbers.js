// Numbers as text, ranges of numbers, and the ticks of axes.

/** Return a number as text with a few digits, or a dash if the number is missing or not finite. */
export function formatNumber(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size < 1e-3) return value.toExponential(1);
  return String(Number(value.toPrecision(digits)));
}

/** Return several numbers as text, separated by commas, or a dash if `values` is missing. */
export const formatVector = (values) => (values ? values.map((v) => formatNumber(v)).join(", ") : "–");

/** Return a share between 0 and 1 as text in percent. */
export const formatPercent = (share) => `${(100 * share).toFixed(1)} %`;

/** Return [least, greatest] of some numbers, or [0, 1] if there are none. */
export function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const v of values) {
    if (v === null || v === undefined) continue;
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return low <= high ? [low, high] : [0, 1];
}

/** Return the value below which a share of some numbers lies, or 0 if there are none. */
export function quantile(values, share) {
  const sorted = values.filter((v) => v !== null && v !== undefined).sort((a, b) => a - b);
  return sorted[Math.floor(share * (sorted.length - 1))] ?? 0;
}

/** Return the ticks of an axis from `low` to `high`: about `count` pairs [round number, text]. */
export function ticks(low, high, count) {
  const rough = (high - low) / count;
  if (!(rough > 0)) return [[low, formatNumber(low)]];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((k) => k * power >= rough) * power;
  const first = Math.ceil(low / step);
  const result = [];
  for (let i = first; i * step <= high + step * 1e-9; i++) {
    const value = Number((i * step).toPrecision(12));
    result.push([value, tickLabel(value, step)]);
  }
  return result;
}

/**
 * Return the text of a tick, with as many digits as are needed to tell ticks at a distance of
 * `step` apart.
 */
function tickLabel(value, step) {
  const size = Math.abs(value);
  const [unit, suffix] = size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
  const decimals = Math.max(Math.ceil(-Math.log10(step / unit) - 1e-9), 0);
  if (decimals > 4 && value === 0) return "0";
  if (decimals > 4) {
    const digits = Math.ceil(Math.log10(size / step) - 1e-9);
    return value.toExponential(Math.min(Math.max(digits, 1), 9));
  }
  const options = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return (value / unit).toLocaleString("en", options) + suffix;
}
