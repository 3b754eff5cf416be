// Checking and planning what the form asks for, a moment after the last change, by the API.

import { api, ApiError } from "./api.js";
import { askOf } from "./form_state.js";

const CHECK_AFTER = 350;

export const checkActions = {
  checkSoon() {
    this.stale = true;
    clearTimeout(this.checkTimer);
    this.checkTimer = setTimeout(() => this.check(), CHECK_AFTER);
  },

  ask() {
    return askOf(this.state.form, this.freshSplit());
  },

  /** Validate and plan now; resolves when the newest state of the form was answered. */
  check() {
    clearTimeout(this.checkTimer);
    this.stale = false; // a later change makes it so again
    const turn = (this.checkTurn = (this.checkTurn ?? 0) + 1);
    this.checking = this.checkNow(() => turn === this.checkTurn);
    return this.checking;
  },

  async checkNow(current) {
    if (this.state.form.source === "own") await this.parsePrompts();
    const local = this.localProblems();
    const ask = this.ask();
    this.set({ planning: true });
    try {
      const verdict = await api.post("/validate", Object.keys(local).length ? this.usable(ask, local) : ask);
      if (!current()) return;
      this.takeProblems(verdict.problems, local);
      if (verdict.valid && !Object.keys(local).length) await this.plan(ask, current);
      else this.set({ plan: null, planError: null });
    } catch (error) {
      if (!current()) return;
      if (error instanceof ApiError && error.status === 422) this.takeProblems(problemsOf(error), local);
      else if (error.code !== "away") this.set({ planError: error });
    } finally {
      if (current()) this.set({ planning: false });
    }
  },

  /** The request without job fields that cannot be read, so that the others are still checked. */
  usable(ask, local) {
    const unusable = (key) => key in local || (["prompts", "heldout"].includes(key) && "own_prompts" in local);
    return Object.fromEntries(Object.entries(ask).filter(([key]) => !unusable(key)));
  },

  async plan(ask, current) {
    try {
      const found = await api.post("/plan", { ...ask, ...this.planTarget(), own: !this.state.form.planFor });
      if (current()) this.set({ plan: found, planError: null });
    } catch (error) {
      if (!current()) return;
      if (error instanceof ApiError && error.code === "away") return;
      this.set({ plan: null, planError: error });
    }
  },

  /** Sort the API's problems to their fields; what belongs to none is said as a whole. */
  takeProblems(list, local = this.localProblems()) {
    const problems = {};
    const general = [];
    for (const { field, message } of list) {
      const key = this.placeOf(field, message);
      if (key) problems[key] ??= message;
      else general.push(message);
    }
    this.set({ problems: { ...problems, ...local }, general });
  },

  placeOf(field, message) {
    const parts = (field || "").split(".").filter((part) => part !== "overrides" && part !== "alignment");
    const places = [parts[0], message.split(/[ :]/)[0]];
    const own = this.state.form.source !== "built-in";
    for (const place of places) {
      if (place === "prompts" && own) return "own_prompts";
      if (place === "heldout") return "own_prompts";
      if (place === "preset" || (place && this.field(place))) return place;
    }
    return "";
  },
};

/** The problems that an error of the API names, one at least. */
export function problemsOf(error) {
  const fields = Array.isArray(error.fields) ? error.fields : [];
  return fields.length ? fields : [{ field: "", message: error.message }];
}
