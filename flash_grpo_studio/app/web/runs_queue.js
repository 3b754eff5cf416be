// Moving a run in the queue. The API puts a run before another one; here "up", "down" and "top" become that.

import { api } from "./api.js";

const PAGE = 500;

/** The queue around a run: all before it, and two behind it. */
async function queueAround(id) {
  const queue = [];
  let cursor = "";
  for (;;) {
    const page = await api.get(`/jobs?state=queued&sort=queue&limit=${PAGE}${cursor && `&cursor=${cursor}`}`);
    queue.push(...page.jobs);
    const place = queue.findIndex((job) => job.id === id);
    const enough = place >= 0 && place + 2 < queue.length;
    if (enough || !page.next) return { queue, place };
    cursor = encodeURIComponent(page.next);
  }
}

/**
 * Move a run one place up or down or to the top, in the queue as it is now, whatever the list shows. Returns its new
 * place from 1, or null where there was nothing to do.
 */
export async function move(id, where) {
  const { queue, place } = await queueAround(id);
  if (place < 0) return null;
  if (where !== "down") {
    if (place === 0) return null;
    const target = where === "top" ? 0 : place - 1;
    await api.post(`/jobs/${id}/reorder`, { before: queue[target].id });
    return target + 1;
  }
  const [next, afterNext] = [queue[place + 1], queue[place + 2]];
  if (!next) return null;
  if (afterNext) await api.post(`/jobs/${id}/reorder`, { before: afterNext.id });
  else if (next.priority === queue[place].priority) await api.post(`/jobs/${id}/reorder`, { before: null });
  // The last one waits with less priority; putting it before this one is the only way to let it pass.
  else await api.post(`/jobs/${next.id}/reorder`, { before: id });
  return place + 2;
}
