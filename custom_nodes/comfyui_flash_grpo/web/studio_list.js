// A button that asks the studio, now, what it has exported.

import { api } from "../../scripts/api.js";
import { app } from "../../scripts/app.js";

export function refreshButton(node, view) {
  const button = node.addWidget("button", "Refresh checkpoints", null, () => refresh(view()), { serialize: false });
  button.serialize = false;
}

async function refresh(view) {
  view.progress({ text: "Looking for checkpoints …" });
  try {
    const answer = await api.fetchApi("/flash_grpo/refresh", { method: "POST" });
    const { problem, text } = await answer.json();
    await app.refreshComboInNodes();
    if (problem) view.fail(problem);
    else view.say(text);
  } catch {
    view.fail("ComfyUI does not answer. Is it still running?");
  }
}
