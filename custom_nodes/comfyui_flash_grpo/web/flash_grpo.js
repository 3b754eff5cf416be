// What this pack adds to ComfyUI's page: each of its nodes says on itself what it did, and Compare videos plays.

import { api } from "../../scripts/api.js";
import { app } from "../../scripts/app.js";
import { CompareView } from "./compare_view.js";
import { dress } from "./look.js";
import { NoteView } from "./note_view.js";
import { fromHistory, nodeOf, recalled, remember } from "./results.js";
import { refreshButton } from "./studio_list.js";

const VIEWS = {
  FlashGrpoCompareVideos: CompareView,
  FlashGrpoLoadCheckpoint: NoteView,
  FlashGrpoPickCheckpoints: NoteView,
  FlashGrpoScoreVideo: NoteView,
  FlashGrpoPocketTextEncode: NoteView,
  FlashGrpoSamplePair: NoteView,
  FlashGrpoLaunchJob: NoteView,
  FlashGrpoJobStatus: NoteView,
};
const views = new Map();

function attach(node) {
  const View = VIEWS[node.comfyClass];
  if (!View) return;
  if (node.comfyClass === "FlashGrpoLoadCheckpoint") refreshButton(node, () => views.get(node));
  const view = new View(node);
  views.set(node, view);
  const { onExecuted, onRemoved } = node;
  node.onExecuted = function (output) {
    onExecuted?.apply(this, arguments);
    remember(node, output);
    view.show(output);
  };
  node.onRemoved = function () {
    onRemoved?.apply(this, arguments);
    views.delete(node);
  };
}

/** Show again what the nodes of a graph that was just loaded had to show. */
async function restore() {
  const missing = [];
  for (const [node, view] of views) {
    if (!node.graph) continue;
    const output = recalled(node);
    if (output) view.show(output);
    else missing.push(node);
  }
  if (!missing.length) return;
  for (const [node, output] of await fromHistory(missing)) views.get(node)?.show(output);
}

function listen() {
  const viewOf = (id) => views.get(nodeOf(id));
  api.addEventListener("execution_start", () => {
    for (const view of views.values()) view.begin();
  });
  api.addEventListener("execution_error", ({ detail }) => viewOf(detail.node_id)?.fail(detail.exception_message));
  api.addEventListener("flash_grpo.progress", ({ detail }) => viewOf(detail.node)?.progress(detail));
}

app.registerExtension({
  name: "flash_grpo",
  setup() {
    dress();
    listen();
  },
  nodeCreated: attach,
  afterConfigureGraph() {
    restore();
  },
});
