// A copy of flash_grpo_studio/app/web/player/screen.js, made by `make comfyui-pack`; edit that file instead.
// What is on the screen: of each side a sheet that is seen and one that is drawn. Sheets are turned when the two sides
// have the same frame, both in one step, so that no frame of one side is ever seen with another frame of the other.

import { overlap } from "./math.js";

const NONE = -1;

export class Screen {
  #sides;
  #seen = [NONE, NONE];
  #drawn = [NONE, NONE];
  rates = [24, 24];
  /** Without the link each side shows what it has; only the tests that show what the link does want that. */
  linked = true;

  /** Each side has draw(), which puts its video's present frame on the hidden sheet, and turn(). */
  constructor(sides) {
    this.#sides = sides;
  }

  /** A video stands at the frame that begins at `time`. Whether the screen has changed by it. */
  offer(place, time) {
    this.#sides[place].draw();
    this.#drawn[place] = time;
    const other = 1 - place;
    if (!this.linked) this.#turn([place]);
    else if (this.#fits(place, other, this.#drawn[other])) this.#turn([place, other]);
    else if (this.#fits(place, other, this.#seen[other])) this.#turn([place]);
    else return false;
    return true;
  }

  /** Both videos stand where they are wanted. */
  show(times) {
    for (const side of this.#sides) side.draw();
    this.#drawn = [...times];
    this.#turn([0, 1]);
  }

  /** Nothing on the screen belongs to what comes. */
  clear() {
    for (const side of this.#sides) side.clear();
    [this.#seen, this.#drawn] = [[NONE, NONE], [NONE, NONE]];
  }

  #fits(place, other, time) {
    return time !== NONE && overlap(this.#drawn[place], this.rates[place], time, this.rates[other]);
  }

  #turn(places) {
    for (const place of places) {
      this.#sides[place].turn();
      this.#seen[place] = this.#drawn[place];
      this.#drawn[place] = NONE;
    }
  }
}
