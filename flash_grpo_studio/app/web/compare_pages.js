// The pairs of two sides in one order, fetched page by page as they are needed, and what all of them say together.

import { api } from "./api.js";

export const PAGE = 100;
const KEPT = 30; // pages; who scrolls on and on must not fill the memory

export class PairPages {
  #pages = new Map();
  #asked = new Map();

  /** query: before, after, reward, sort and search. */
  constructor(query) {
    this.query = query;
    this.total = null;
    this.comparison = null;
  }

  /** The pair at a place if it is here already. */
  at(place) {
    return this.#pages.get(Math.floor(place / PAGE))?.[place % PAGE];
  }

  /** Place of a key among the pairs that are here; -1 if it is not. */
  placeOf(key) {
    for (const [page, pairs] of this.#pages) {
      const found = pairs.findIndex((pair) => pair.key === key);
      if (found >= 0) return page * PAGE + found;
    }
    return -1;
  }

  /** The pair at a place, fetched with its neighbours where needed. */
  async get(place) {
    if (!this.at(place)) await this.fetch(Math.floor(place / PAGE));
    return this.at(place);
  }

  /** The pair of a key with its `place`, which is null where it is not in this list. */
  find(key) {
    return api.get(`/comparison/pair?${this.#parameters({ key })}`);
  }

  /** Fetch a page; asked for twice at once, it is fetched once. */
  fetch(page) {
    if (!this.#asked.has(page)) {
      this.#asked.set(page, this.#load(page).finally(() => this.#asked.delete(page)));
    }
    return this.#asked.get(page);
  }

  async #load(page) {
    const found = await api.get(`/comparison?${this.#parameters({ limit: PAGE, offset: page * PAGE })}`);
    const { pairs, ...rest } = found;
    this.#pages.delete(page);
    this.#pages.set(page, pairs);
    if (this.#pages.size > KEPT) this.#pages.delete(this.#pages.keys().next().value);
    this.total = rest.total;
    this.comparison = rest;
  }

  /** How many pairs there are by now. */
  async count() {
    return (await api.get(`/comparison?${this.#parameters({ limit: 1 })}`)).total;
  }

  #parameters(more) {
    const found = new URLSearchParams();
    for (const [name, value] of Object.entries({ ...this.query, ...more })) if (value !== "") found.set(name, value);
    return found;
  }
}
