// Which events inside a node are the graph's: the wheel that nothing in the node uses, drags with the middle button, and
// drags that begin beside what the node shows.

import { app } from "../../scripts/app.js";

export function shareWithCanvas(root) {
  root.addEventListener("wheel", (event) => wheel(event, root), { passive: false });
  root.addEventListener("pointerdown", (event) => {
    const graphs = event.button === 1 || event.target === root;
    event.stopPropagation(); // a node that is drawn by HTML would be dragged by it
    if (graphs) app.canvas.processMouseDown(event);
  });
  // A key the player answers must not also be ComfyUI's shortcut.
  root.addEventListener("keydown", (event) => event.defaultPrevented && event.stopPropagation());
}

function wheel(event, root) {
  event.stopPropagation();
  const within = event.composedPath().slice(0, event.composedPath().indexOf(root) + 1);
  if (event.defaultPrevented || (!event.ctrlKey && within.some(scrolls))) return;
  event.preventDefault();
  app.canvas.processMouseWheel(event);
}

function scrolls(part) {
  return part instanceof HTMLElement && part.scrollHeight > part.clientHeight && getComputedStyle(part).overflowY === "auto";
}
