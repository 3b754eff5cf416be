// The player's mode and frame in the address, so that a link shows the very moment it was copied at.

import { asked, go } from "./page_url.js";

const CALM_MS = 400; // a browser allows few changes of the address, and a video that plays has many frames

export class Moments {
  #timer = null;
  #first = true;

  /** The player's state changed; a frame is written down once it stands still. */
  keep(state) {
    clearTimeout(this.#timer);
    if (state.mode !== asked("mode")) go({ mode: state.mode }, { step: false });
    this.#timer = setTimeout(() => go({ frame: state.frame || null }, { step: false }), CALM_MS);
  }

  /** What the address asks for: the mode always, the frame of the pair it was copied with. */
  restore(player) {
    const found = {};
    if (asked("mode")) found.mode = asked("mode");
    if (this.#first && /^\d{1,6}$/.test(asked("frame"))) found.frame = Number(asked("frame"));
    this.#first = false;
    player.restore(found);
  }
}
