// What nodes showed last: kept while the page is open, asked of ComfyUI's history after it was loaded again. Nothing of it
// is written into a workflow.

import { api } from "../../scripts/api.js";
import { app } from "../../scripts/app.js";

const LOOKED_AT = 20; // newest entries of the history; each holds a whole workflow
const kept = new Map();

const root = () => app.rootGraph ?? app.graph;
const placeOf = (node) => `${node.graph?.id}/${node.id}`;

export function remember(node, output) {
  kept.set(placeOf(node), output);
}

export function recalled(node) {
  return kept.get(placeOf(node));
}

/** The node of an id as the server knows it: within subgraphs, the ids on the way to it with colons. */
export function nodeOf(id) {
  const path = String(id).split(":");
  let graph = root();
  for (const step of path.slice(0, -1)) graph = graph?.getNodeById(step)?.subgraph;
  return graph?.getNodeById(path.at(-1)) ?? undefined;
}

/** The newest outputs of these nodes in the history of this workflow, by node. */
export async function fromHistory(nodes) {
  const found = new Map();
  const workflow = root().id;
  for (const entry of (await history()).reverse()) {
    if (entry?.prompt?.[3]?.extra_pnginfo?.workflow?.id !== workflow) continue;
    for (const [id, output] of Object.entries(entry.outputs ?? {})) {
      const node = nodeOf(id);
      if (nodes.includes(node) && !found.has(node)) found.set(node, output);
    }
  }
  for (const [node, output] of found) remember(node, output);
  return found;
}

async function history() {
  try {
    const answer = await api.fetchApi(`/history?max_items=${LOOKED_AT}`);
    return answer.ok ? Object.values(await answer.json()) : [];
  } catch {
    return []; // then the nodes show nothing until they run
  }
}
