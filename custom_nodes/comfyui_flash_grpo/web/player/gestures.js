// A copy of flash_grpo_studio/app/web/player/gestures.js, made by `make comfyui-pack`; edit that file instead.
// Fingers and mouse on the stage: one moves the divider, the zoomed picture, holds the other video or swipes to the next
// pair; two zoom.

import { zoomAbout, zoomWithin } from "./math.js";
import { pointIn } from "./zoom.js";

const SWIPE = 50; // px
const NEAR_DIVIDER = 30; // px
const HOLD_MS = 150; // a finger that stays this long holds; one that moves before swipes

export class Gestures {
  #stage;
  #act;
  #view;
  #pointers = new Map();
  #what = null;
  #start = null;
  #pinch = null;
  #timer = 0;

  constructor(stage, head, act, view) {
    [this.#stage, this.#act, this.#view] = [stage, act, view];
    const { root } = stage;
    root.addEventListener("pointerdown", (event) => this.#down(event));
    root.addEventListener("pointermove", (event) => this.#move(event));
    for (const type of ["pointerup", "pointercancel"]) root.addEventListener(type, (event) => this.#up(event));
    root.addEventListener("contextmenu", (event) => this.#what === "hold" && event.preventDefault());
    swipes(head, act);
  }

  #down(event) {
    if (event.button || event.target.closest("button")) return;
    this.#pointers.set(event.pointerId, event);
    this.#stage.root.setPointerCapture(event.pointerId);
    if (this.#pointers.size === 2) return this.#two();
    if (this.#pointers.size > 2) return;
    this.#start = { x: event.clientX, y: event.clientY, zoom: this.#view().zoom };
    this.#what = this.#meant(event);
    if (this.#what === "wipe") this.#wipe(event);
    if (this.#what === "hold") this.#timer = setTimeout(() => this.#act.peek(true), event.pointerType === "touch" ? HOLD_MS : 0);
  }

  #meant(event) {
    const { mode, zoom } = this.#view();
    const zoomed = zoom.scale > 1;
    if (mode === "wipe" && (!zoomed || this.#nearDivider(event))) return "wipe";
    if (zoomed) return "pan";
    if (mode === "flicker") return "hold";
    return event.pointerType === "mouse" ? null : "swipe";
  }

  #nearDivider(event) {
    const box = this.#stage.divider.getBoundingClientRect();
    return Math.abs(event.clientX - (box.left + box.right) / 2) <= NEAR_DIVIDER;
  }

  #move(event) {
    if (!this.#pointers.has(event.pointerId)) return;
    this.#pointers.set(event.pointerId, event);
    if (this.#pinch) return this.#pinched();
    if (this.#what === "wipe") this.#wipe(event);
    if (this.#what === "pan") this.#pan(event);
    if (this.#what === "hold" && event.pointerType === "touch" && Math.abs(event.clientX - this.#start.x) > SWIPE / 3 && !this.#view().peek) {
      clearTimeout(this.#timer);
      this.#what = "swipe";
    }
  }

  #wipe(event) {
    const box = this.#stage.root.getBoundingClientRect();
    this.#act.wipe((100 * (event.clientX - box.left)) / box.width);
  }

  #pan(event) {
    const { box } = pointIn(this.#stage, event);
    const { x, y, zoom } = this.#start;
    this.#act.zoomTo(
      zoomWithin({ scale: zoom.scale, x: zoom.x + (event.clientX - x) / box.width, y: zoom.y + (event.clientY - y) / box.height }),
    );
  }

  #two() {
    clearTimeout(this.#timer);
    this.#act.peek(false);
    this.#what = null;
    this.#pinch = { ...this.#span(), zoom: this.#view().zoom };
  }

  #span() {
    const [one, other] = [...this.#pointers.values()];
    const middle = { clientX: (one.clientX + other.clientX) / 2, clientY: (one.clientY + other.clientY) / 2 };
    const distance = Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
    return { distance: Math.max(1, distance), point: pointIn(this.#stage, middle) };
  }

  #pinched() {
    if (this.#pointers.size < 2) return;
    const { distance, point } = this.#span();
    const from = this.#pinch;
    const zoomed = zoomAbout(from.zoom, distance / from.distance, from.point);
    this.#act.zoomTo(
      zoomWithin({ scale: zoomed.scale, x: zoomed.x + point.x - from.point.x, y: zoomed.y + point.y - from.point.y }),
    );
  }

  #up(event) {
    if (!this.#pointers.delete(event.pointerId)) return;
    clearTimeout(this.#timer);
    if (this.#what === "swipe" && event.type === "pointerup") swiped(this.#start, event, this.#act);
    if (this.#what === "hold") this.#act.peek(false);
    this.#what = null;
    if (this.#pointers.size === 0) this.#pinch = null;
  }
}

function swiped(start, event, act) {
  const [x, y] = [event.clientX - start.x, event.clientY - start.y];
  if (Math.abs(x) < SWIPE || Math.abs(x) < 2 * Math.abs(y)) return;
  if (x < 0) act.next();
  else act.previous();
}

/** Above the pictures a swipe means the next pair in every mode; in Wipe the pictures themselves move the divider. */
function swipes(head, act) {
  let start = null;
  head.addEventListener("pointerdown", (event) => {
    start = event.pointerType === "mouse" ? null : { x: event.clientX, y: event.clientY };
  });
  head.addEventListener("pointerup", (event) => {
    if (start) swiped(start, event, act);
    start = null;
  });
  head.addEventListener("pointercancel", () => (start = null));
}
