// Base of what a tab of the Run page shows: a view that is handed the job by the page's one poll.

import { View } from "./view.js";

/** A panel looks again when the page has looked, never twice at once. */
export class Panel extends View {
  #looking = false;
  #again = false;
  #shown = "";

  /** job: as it is now; curves: its measurements; fresh: the page has just asked the server. */
  take(job, curves, fresh) {
    const first = !this.job;
    this.job = job;
    this.curves = curves;
    const shown = `${JSON.stringify(job)} ${curves.version} ${location.search}`;
    if (shown !== this.#shown) {
      this.#shown = shown;
      this.update();
    }
    if (first || fresh || this.asks() !== this.asked) this.look();
  }

  /** What of the address decides what is asked; when it changes the panel asks at once. */
  asks() {
    return "";
  }

  /** A mark of the job's progress: while it stays the same, nothing new was written. */
  mark() {
    const { state, attempts, progress } = this.job;
    return [state, attempts.length, progress.update, progress.phase, progress.time, this.asks()].join(" ");
  }

  async look() {
    if (this.#looking) {
      this.#again = true;
      return;
    }
    this.#looking = true;
    this.asked = this.asks();
    try {
      await this.load();
      if (this.state.error) this.set({ error: null });
    } catch (error) {
      this.fail(error);
    }
    this.#looking = false;
    if (this.#again && this.isConnected) {
      this.#again = false;
      if (this.asks() !== this.asked) this.look();
    }
  }

  /** Get what the panel shows beside job and curves. */
  async load() {}

  /** Whether something may have changed since the last time this was asked; true once more after the last change. */
  changed() {
    const mark = this.mark();
    const changed = mark !== this.seen || mark !== this.seenBefore;
    this.seenBefore = this.seen;
    this.seen = mark;
    return changed;
  }
}
