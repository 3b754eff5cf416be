// A copy of flash_grpo_studio/app/web/player/zoom.js, made by `make comfyui-pack`; edit that file instead.
// Zoom and pan of both pictures at once: wheel, key, arrows; what fingers do is in gestures.js.

import { zoomAbout, zoomWithin } from "./math.js";

const WHEEL = 0.002;
const PAN = 0.1;
export const AT_KEY = 2;

/** Where in its pane a pointer is, in parts of the pane from its centre. */
export function pointIn(stage, event) {
  const panes = stage.panes.map((pane) => pane.root.getBoundingClientRect());
  const within = ({ left, right, top, bottom }) =>
    event.clientX >= left && event.clientX <= right && event.clientY >= top && event.clientY <= bottom;
  const box = panes.find(within) ?? panes[0];
  return { x: (event.clientX - box.left) / box.width - 0.5, y: (event.clientY - box.top) / box.height - 0.5, box };
}

/** A picture zooms under the wheel only where it has the focus or Ctrl is held: else the page scrolls. */
export function wheelZoom(stage, host, zoom, set) {
  stage.root.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !host.matches(":focus-within")) return;
      event.preventDefault();
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      set(zoomAbout(zoom(), Math.exp(-event.deltaY * lines * WHEEL), pointIn(stage, event)));
    },
    { passive: false },
  );
}

/** In or out, by key or button, about the centre. */
export function toggled(zoom) {
  return zoom.scale > 1 ? { scale: 1, x: 0, y: 0 } : zoomAbout(zoom, AT_KEY, { x: 0, y: 0 });
}

export function panned(zoom, right, down) {
  return zoomWithin({ scale: zoom.scale, x: zoom.x + right * PAN, y: zoom.y + down * PAN });
}
