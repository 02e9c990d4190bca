// Where the page has its data from: the server, or, in an exported page, from itself.

const element = document.getElementById("recorded");
const recorded = element ? JSON.parse(element.textContent) : null;

export const exported = recorded !== null;

/** The answer to a question; an Error with a sentence for people if there is none. */
export async function get(path, query = {}) {
  const address = Object.keys(query).length ? `${path}?${new URLSearchParams(query)}` : path;
  if (exported) {
    if (address in recorded) return recorded[address];
    throw new Error("This is an exported page: it holds the recordings of the marked cells alone.");
  }
  let response;
  try {
    response = await fetch(address);
  } catch {
    throw new Error("The server does not answer: 'elites view' has ended.");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `The server answered ${response.status}.`);
  return answer;
}

/** Cells that an exported page can play, as a set; null with a server, which plays all. */
export function playable(seed, iteration) {
  if (!exported) return null;
  const cells = new Set();
  for (const address of Object.keys(recorded)) {
    const [path, query] = address.split("?");
    const asked = new URLSearchParams(query);
    const is = (name, value) => Number(asked.get(name)) === value;
    if (path === "/api/watch" && is("seed", seed) && is("iteration", iteration)) cells.add(Number(asked.get("cell")));
  }
  return cells;
}
