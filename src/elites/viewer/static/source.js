// Where the page has its data from: the server, or, in an exported page, from itself.

const element = document.getElementById("recorded");
const recorded = element ? JSON.parse(element.textContent) : null;

export const exported = recorded !== null;

const page = Math.random().toString(36).slice(2); // tells this page from others, also of the same run
let count = 0;
let waiting = null; // for the answer to the last rollout that was asked for

let run = null;
/** From now on, only answers about this run are wanted. */
export const setRun = (id) => (run = id);

const address = (path, query) => (Object.keys(query).length ? `${path}?${new URLSearchParams(query)}` : path);

/** The answer to a question; an Error with a sentence for people if there is none. */
export async function get(path, query = {}) {
  if (!exported) return fetched(address(path, run && path !== "/api/run" ? { ...query, run } : query));
  if (address(path, query) in recorded) return recorded[address(path, query)];
  throw new Error("This is an exported page: it holds the recordings of the marked cells alone.");
}

/** The same for a rollout: one that was asked for before and has not come is not computed any more. */
export async function getRollout(path, query) {
  if (exported) return get(path, query);
  waiting?.abort();
  waiting = new AbortController();
  return fetched(address(path, { ...query, run, page, count: ++count }), waiting.signal);
}

/** A rollout that was asked for is not wanted any more. */
export const cancelRollout = () => waiting?.abort();

async function fetched(place, signal) {
  let [response, answer] = [null, {}];
  try {
    response = await fetch(place, { signal });
    if (response.headers.get("content-type")?.includes("json")) answer = await response.json();
  } catch {
    throw new Error("The server does not answer: 'elites view' has ended.");
  }
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
