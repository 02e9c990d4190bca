// Data of the page: requested from the server or, in an exported page, contained in the page itself.

const element = document.getElementById("recorded");
const recorded = element ? JSON.parse(element.textContent) : null;

/** Whether this is an exported page, which has no server. */
export const exported = recorded !== null;

const sender = {
  run: null, // id of the run that the page shows
  page: Math.random().toString(36).slice(2), // different for every open page
  count: 0, // number of rollouts requested so far
  pending: null, // AbortController of the latest rollout request
};

/**
 * Set the id of the run that the page shows. The server rejects requests with the id of another
 * run.
 */
export const setRun = (id) => (sender.run = id);

const address = (path, query) => (Object.keys(query).length ? `${path}?${new URLSearchParams(query)}` : path);

/**
 * Return the data of an endpoint, from the server or from the exported page. `run` is the id of the
 * run that is asked for. If that fails, throws an Error with a message for the user.
 */
export async function get(path, query = {}, run = sender.run) {
  if (!exported) return fetchJson(address(path, run && path !== "/api/run" ? { ...query, run } : query));
  if (address(path, query) in recorded) return recorded[address(path, query)];
  throw new Error("This is an exported page. It contains recordings of the marked cells only.");
}

/**
 * Return the recordings of a rollout from an endpoint. Cancels the previous request if it is still
 * waiting for its response.
 */
export async function getRollout(path, query) {
  if (exported) return get(path, query);
  return (await getRollouts([path, query, sender.run]))[0];
}

/**
 * Return the recordings of several rollouts, each given as [path, query, id of the run]. Cancels the
 * previous requests if they are still waiting for their responses.
 */
export async function getRollouts(...rollouts) {
  cancelRollout();
  sender.pending = new AbortController();
  sender.count++;
  const { page, count, pending } = sender;
  return Promise.all(rollouts.map(([path, query, run]) =>
    fetchJson(address(path, { ...query, run, page, count }), pending.signal)));
}

/** Cancel the latest request for a rollout. */
export const cancelRollout = () => sender.pending?.abort();

async function fetchJson(url, signal) {
  let [response, data] = [null, {}];
  try {
    response = await fetch(url, { signal });
    if (response.headers.get("content-type")?.includes("json")) data = await response.json();
  } catch {
    throw new Error("The server does not respond. Start 'elites view' again.");
  }
  if (!response.ok) throw new Error(data.error ?? `The server responded with status ${response.status}.`);
  return data;
}

/**
 * Return the set of cells that an exported page can play at a seed and iteration. Returns null if
 * there is a server, which can play all cells.
 */
export function playableCells(seed, iteration) {
  if (!exported) return null;
  const cells = new Set();
  for (const key of Object.keys(recorded)) {
    const [path, query] = key.split("?");
    const parameters = new URLSearchParams(query);
    const matches = (name, value) => Number(parameters.get(name)) === value;
    if (path === "/api/watch" && matches("seed", seed) && matches("iteration", iteration)) {
      cells.add(Number(parameters.get("cell")));
    }
  }
  return cells;
}
