// The draft of a new run: kept with the user on the server, so that a reload and another browser have it, and in this
// browser too, where it stays while the server is away or takes it not.

import { api, ApiError } from "./api.js";
import { freshForm } from "./form_state.js";

const STORE = "flash-grpo-draft:";
const KEPT_HERE = 10;

/** Where a form was kept: on the server, in this browser alone, nowhere, or not at all as another window was there first. */
export const ON_SERVER = "server";
export const HERE = "here";
export const NOWHERE = "nowhere";
export const THEIRS = "theirs";

export class Draft {
  #search;
  #path;
  #version = 0;
  #sending = null;
  #work = Promise.resolve();

  constructor(search) {
    this.#search = search;
    this.#path = `/drafts/new?address=${encodeURIComponent(search)}`;
  }

  /** What was kept, as {form, time in seconds, theirs}; null where there is nothing. */
  async open() {
    const here = readHere(this.#search);
    const there = await this.#ask();
    if (there === null) return here && usable(here.form, here.time / 1000);
    this.#version = there.version;
    const unsent = here && here.unsent !== false;
    // A page that went away while it sent has not heard that its form arrived.
    const ours = here && there.form && [here.form.key, here.sending].includes(there.form.key);
    if (unsent && (here.version ?? 0) !== there.version && there.form && !ours) {
      this.#version = here.version ?? 0; // until a person has said whose is to stay
      return { ...usable(here.form, here.time / 1000), theirs: true };
    }
    if (unsent) return usable(here.form, here.time / 1000);
    return there.form && usable(there.form, there.changed);
  }

  async #ask() {
    try {
      return await api.get(this.#path);
    } catch (error) {
      if (error instanceof ApiError) return null; // who may read only, or a database that is away
      throw error;
    }
  }

  /** Keep a form in this browser, before this returns: a page that goes away waits for no answer. */
  hold(form) {
    const sending = this.#sending;
    return writeHere(this.#search, { form, time: Date.now(), version: this.#version, sending, unsent: true });
  }

  /** Keep a form; resolves to where it is kept. One after the other, in the order they came. */
  save(form) {
    const here = this.hold(form);
    this.#work = this.#work.then(() => this.#send(form, here));
    return this.#work;
  }

  async #send(form, here) {
    this.#sending = form.key;
    try {
      this.#version = (await api.put(this.#path, { version: this.#version, form })).version;
    } catch (error) {
      if (error.status === 409) return this.#refused(form, here);
      return here ? HERE : NOWHERE;
    }
    writeHere(this.#search, { form, time: Date.now(), version: this.#version, unsent: false });
    return ON_SERVER;
  }

  /** Another window was there first. What it has launched or dropped is no draft any more, and this one goes on. */
  async #refused(form, here) {
    const there = await this.#ask();
    if (there === null) return here ? HERE : NOWHERE;
    if (there.form) return THEIRS;
    this.#version = 0;
    return this.#send(form, here);
  }

  /** Take what the other window made of it; null where it is gone. */
  async takeTheirs() {
    const there = await api.get(this.#path);
    this.#version = there.version;
    dropHere(this.#search);
    return there.form && usable(there.form, there.changed);
  }

  /** Write one's own over what the other window made. */
  async keepMine(form) {
    this.#version = (await api.get(this.#path)).version;
    return this.save(form);
  }

  /** Forget it: it was launched, or is begun anew. */
  async drop() {
    dropHere(this.#search);
    await this.#work;
    dropHere(this.#search);
    try {
      await api.remove(this.#path);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error; // without it the next page begins with what was launched
    }
  }
}

function usable(form, time) {
  return form && typeof form.set === "object" ? { form: { ...freshForm(), ...form }, time, theirs: false } : null;
}

function readHere(search) {
  try {
    const kept = JSON.parse(localStorage.getItem(STORE + search));
    return kept && typeof kept.form?.set === "object" ? kept : null;
  } catch {
    return null;
  }
}

/** False where the browser has no room for it. */
function writeHere(search, kept) {
  try {
    localStorage.setItem(STORE + search, JSON.stringify(kept));
    forgetOldest();
    return true;
  } catch {
    return false;
  }
}

function dropHere(search) {
  localStorage.removeItem(STORE + search);
}

function forgetOldest() {
  const names = Object.keys(localStorage).filter((name) => name.startsWith(STORE));
  if (names.length <= KEPT_HERE) return;
  const age = (name) => JSON.parse(localStorage.getItem(name))?.time ?? 0;
  names.sort((one, other) => age(one) - age(other));
  for (const name of names.slice(0, names.length - KEPT_HERE)) localStorage.removeItem(name);
}
