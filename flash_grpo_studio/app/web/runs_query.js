// What the list of runs shows, as it stands in the address: ?state=…&state=…&kind=…&text=…&sort=…&owner=me

/** States people look for together; each belongs to one group. */
export const GROUPS = {
  waiting: ["queued", "paused"],
  running: ["starting", "running", "pausing", "cancelling"],
  done: ["succeeded"],
  failed: ["failed", "lost"],
  cancelled: ["cancelled"],
};
export const KINDS = [
  "alignment", "evaluation", "preview", "scoring", "normalisation", "composition", "contact_sheet", "export", "push", "download",
];
export const SORTS = ["-created", "created", "-changed", "changed", "name", "-name", "state", "queue"];
const STATES = Object.values(GROUPS).flat();

/** The wish in the address; what is not known there is left out, so that an old or mistyped link still shows a list. */
export function readQuery(search) {
  const found = new URLSearchParams(search);
  const sort = found.get("sort");
  return {
    states: found.getAll("state").filter((state) => STATES.includes(state)),
    kinds: found.getAll("kind").filter((kind) => KINDS.includes(kind)),
    text: (found.get("text") || "").slice(0, 200),
    sort: SORTS.includes(sort) ? sort : SORTS[0],
    mine: found.get("owner") === "me",
  };
}

function parameters({ states, kinds, text, sort, mine }) {
  const found = new URLSearchParams();
  for (const state of states) found.append("state", state);
  for (const kind of kinds) found.append("kind", kind);
  if (text) found.set("text", text);
  if (mine) found.set("owner", "me");
  if (sort !== SORTS[0]) found.set("sort", sort);
  return found;
}

/** The address that shows a wish; the plain one if it asks for nothing special. */
export function addressOf(query) {
  const found = parameters(query).toString();
  return found ? `/runs?${found}` : "/runs";
}

/** The request to the API that answers a wish. */
export function requestOf(query, limit, cursor = null) {
  const found = parameters(query);
  found.set("limit", limit);
  if (cursor) found.set("cursor", cursor);
  return `/jobs?${found}`;
}

/** Whether anything is left out of the list. */
export function isFiltered({ states, kinds, text, mine }) {
  return states.length + kinds.length > 0 || text !== "" || mine;
}

/** The states after a group was switched on or off; all groups together are the same as none. */
export function toggledStates(states, group) {
  const own = GROUPS[group];
  const on = own.every((state) => states.includes(state));
  const next = on ? states.filter((state) => !own.includes(state)) : [...new Set([...states, ...own])];
  return next.length === STATES.length ? [] : next;
}
