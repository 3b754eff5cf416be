// Size and compute of a new run: three named sizes of the preset, devices, a budget, and for which device to plan.

import { fieldControl } from "./form_fields.js";
import { equal, setKey } from "./form_state.js";
import { bytes } from "./format.js";
import { budgetControl } from "./new_budget.js";
import { section } from "./new_goal.js";
import { html } from "./template.js";
import { t } from "./texts.js";

const SIZE_KEYS = ["updates", "group_size", "evaluate_every", "checkpoint_every"];
const FACTORS = { quick: [0.25, 2 / 3], balanced: [1, 1], best: [2, 4 / 3] };

/** What a named size changes of a preset: updates and group size, and evaluations that still happen in a short run. */
export function sizeOf(name, whole) {
  const [longer, wider] = FACTORS[name];
  const updates = Math.max(2, Math.round(whole.updates * longer));
  const often = (every) => Math.min(every, Math.max(1, Math.floor(updates / 2)));
  return {
    updates,
    group_size: Math.max(Math.min(4, whole.group_size), Math.round(whole.group_size * wider)),
    evaluate_every: often(whole.evaluate_every),
    checkpoint_every: often(whole.checkpoint_every),
  };
}

export function chosenSize(page) {
  const whole = page.state.presets[page.state.form.preset]?.whole;
  const config = page.config();
  const now = Object.fromEntries(SIZE_KEYS.map((key) => [key, config[key]]));
  return Object.keys(FACTORS).find((name) => equal(sizeOf(name, whole), now)) ?? "custom";
}

/** Settings of the job itself, beside the configuration. */
export function jobFields() {
  const none = { nullable: false, minimum: null, maximum: null, above: null, below: null, options: null, items: null };
  const made = (key, type, more) => ({
    ...none, key, type, group: "job", label: t(`form.job.${key}`), help: t(`form.job.${key}.help`), ...more,
  });
  return [
    made("devices", "integer", { minimum: 1, maximum: 1024 }),
    made("budget", "number", { above: 0, nullable: true }),
    made("name", "string", {}),
    made("shared", "boolean", {}),
    made("priority", "integer", { minimum: -1000, maximum: 1000 }),
    made("max_retries", "integer", { minimum: 0, maximum: 100 }),
  ];
}

export function jobControl(page, key) {
  const { form, problems } = page.state;
  const usual = page.usualJobValue(key);
  const shown = { text: String(form[key]), problem: problems[key] ?? page.localProblems()[key], changed: form[key] !== usual, from: usual === "" ? "–" : String(usual) };
  return fieldControl(jobFields().find((field) => field.key === key), shown);
}

export function sizeSection(page) {
  const whole = page.state.presets[page.state.form.preset].whole;
  const chosen = chosenSize(page);
  const cards = [...Object.keys(FACTORS), ...(chosen === "custom" ? ["custom"] : [])].map((name) => {
    const size = name === "custom" ? page.config() : sizeOf(name, whole);
    return html`<label class="fg-card fg-choice" data-key="${name}"><input type="radio" data-sync name="size" id="size-${name}" value="${name}"
      data-on="change:chooseSize" ${name === chosen ? html`checked` : ""}> <strong>${t(`new.size.${name}`)}</strong>
      <span class="fg-small fg-block">${t(`new.size.${name}.about`)}</span>
      <span class="fg-small fg-block">${t("new.size.facts", { updates: size.updates, group: size.group_size })}</span></label>`;
  });
  return section("size", 5, html`<fieldset class="fg-plain"><legend class="fg-hidden">${t("new.size.legend")}</legend>
      <div class="fg-grid fg-sizes">${cards}</div></fieldset>
    <div class="fg-grid">${jobControl(page, "devices")} ${budgetControl(page, page.field("budget"))}</div> ${planFor(page)}`);
}

function planFor(page) {
  const { choices, form } = page.state;
  const here = page.ownDevice();
  const own = here ? t("new.size.here", { name: here.model || here.kind, memory: bytes(here.memory_mb * 2 ** 20) }) : t("new.size.no_device");
  return html`<div class="fg-field"><label for="new-plan-for">${t("new.size.plan_for")}</label>
    <select id="new-plan-for" data-sync="${form.planFor}" data-on="change:choosePlanFor" aria-describedby="new-plan-for-help">
      <option value="" ${form.planFor ? "" : html`selected`}>${own}</option>
      ${choices.gpus.map((name) => html`<option value="${name}" ${name === form.planFor ? html`selected` : ""}>${name}</option>`)}
    </select><p class="fg-small" id="new-plan-for-help">${t("new.size.plan_for_help")}</p></div>`;
}

export const sizeActions = {
  chooseSize(event) {
    const { form, presets } = this.state;
    if (event.target.value === "custom") return;
    for (const [key, value] of Object.entries(sizeOf(event.target.value, presets[form.preset].whole))) {
      delete form.raw[key];
      setKey(form, presets, key, value);
    }
    this.touched();
  },

  choosePlanFor(event) {
    this.state.form.planFor = event.target.value;
    this.touched();
  },

  /** The studio's best device: a GPU before a CPU, much memory before little. */
  ownDevice() {
    const all = this.state.workers.filter((worker) => worker.state === "active").flatMap((worker) => worker.devices);
    const rank = (device) => (device.kind === "cpu" ? 0 : 1e9) + (device.memory_mb ?? 0);
    return all.filter((device) => device.memory_mb).sort((one, other) => rank(other) - rank(one))[0] ?? null;
  },

  /** Whether the plan is for a GPU and this studio has reported none. */
  needsGpu() {
    const { plan, form } = this.state;
    const own = this.ownDevice();
    return plan?.plan.kind === "gpu" && !form.planFor && own?.kind === "cpu" && plan.plan.memory.fits !== false;
  },

  /** For which device the API shall plan. */
  planTarget() {
    const { choices, form } = this.state;
    if (form.planFor) return { gpu: form.planFor };
    const own = this.ownDevice();
    if (!own) return {};
    const memory = { memory_gb: (own.memory_mb * 2 ** 20) / 1e9 };
    if (own.kind === "cpu") return memory;
    const words = new Set((own.model ?? "").replaceAll("-", " ").split(" "));
    const fitting = choices.gpus.filter((name) => name.split("-").every((part) => words.has(part)));
    return fitting.length ? { ...memory, gpu: fitting.sort((one, other) => other.length - one.length)[0] } : memory;
  },
};
