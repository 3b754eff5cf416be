// Base of the studio's elements: a state, a `render` that turns it into markup, and events by `data-on` attributes.

import { ApiError, poll } from "./api.js";
import { said } from "./server_words.js";
import { html, patch } from "./template.js";
import { t } from "./texts.js";

/** Resolves once the words are there; no element renders before. */
export const ready = Promise.withResolvers
  ? Promise.withResolvers()
  : (() => {
      const found = {};
      found.promise = new Promise((resolve, reject) => Object.assign(found, { resolve, reject }));
      return found;
    })();

export class View extends HTMLElement {
  /** What is shown; change it through `set`. */
  state = {};
  #stops = [];
  #scheduled = false;

  async connectedCallback() {
    await ready.promise;
    if (!this.isConnected) return;
    for (const type of ["click", "change", "input", "submit", "keydown", "toggle"]) {
      this.addEventListener(type, (event) => this.#dispatch(type, event), type === "toggle");
    }
    this.update();
    await this.start();
  }

  disconnectedCallback() {
    for (const stop of this.#stops) stop();
    this.#stops = [];
  }

  /** Called once, after the first rendering; load data and begin polls here. */
  async start() {}

  /** Markup of the present state. */
  render() {
    return html``;
  }

  /** Change the state and show it in the next frame. */
  set(changes) {
    Object.assign(this.state, changes);
    this.update();
  }

  update() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    queueMicrotask(() => {
      this.#scheduled = false;
      patch(this, this.render());
      this.rendered();
    });
  }

  /** Called after every rendering. */
  rendered() {}

  /** Poll until the element goes; errors become `state.error`, which goes away with the next success. */
  every(seconds, look) {
    const stop = poll(
      async () => {
        await look();
        // What a person asked for and was refused stays until the next action; the next look says nothing about it.
        if (this.state.error?.ofLook) this.set({ error: null });
      },
      seconds,
      (error) => this.fail(Object.assign(error, { ofLook: true })),
    );
    this.#stops.push(stop);
    return stop;
  }

  /** Remember something to undo when the element goes. */
  onStop(stop) {
    this.#stops.push(stop);
  }

  /** Show what went wrong. A server that is away has its own banner, and who must log in gets the form. */
  fail(error) {
    if (error instanceof ApiError && (error.code === "away" || error.status === 401)) return;
    if (!(error instanceof ApiError)) console.error(error);
    this.set({ error });
  }

  /** Do something a person asked for: the button is busy meanwhile, an error is shown, and the result returned. */
  async act(work, button = null) {
    if (button?.getAttribute("aria-busy") === "true") return null;
    button?.setAttribute("aria-busy", "true");
    try {
      const result = await work();
      this.set({ error: null });
      return result;
    } catch (error) {
      this.fail(error);
      return null;
    } finally {
      button?.removeAttribute("aria-busy");
    }
  }

  /** The innermost view around an element: one view within another handles its own events. */
  #owner(element) {
    let found = element.parentElement;
    while (found && !(found instanceof View)) found = found.parentElement;
    return found;
  }

  /** An element with data-on="click:save change:check" calls this.save(event, element) and this.check(…). */
  #dispatch(type, event) {
    const target = event.target.closest?.("[data-on]");
    if (!target || this.#owner(target) !== this) return;
    for (const pair of target.dataset.on.split(" ")) {
      const [kind, method] = pair.split(":");
      if (kind === type) {
        if (type === "submit") event.preventDefault();
        this[method](event, target);
      }
    }
  }
}

/** A box with what happened, why and what to do; empty without an error. */
export function errorBox(error) {
  if (!error) return html``;
  const id = error.id ? html`<p class="fg-small">${t("error.id")} <code>${error.id}</code></p>` : null;
  return html`<div class="fg-error" role="alert">
    <p><strong>${said(error.message)}</strong></p>
    ${error.whatToDo ? html`<p>${said(error.whatToDo)}</p>` : null} ${id}
  </div>`;
}

/** A state with its own shape and words, never by colour alone. */
export function stateBadge(state) {
  return html`<span class="fg-state fg-state-${state}"><span aria-hidden="true"></span>${t(`state.${state}`)}</span>`;
}
