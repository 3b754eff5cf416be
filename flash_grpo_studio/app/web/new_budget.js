// The budget of a new run, in device-minutes or as a price: one is the other by the studio's rate, and the minutes are kept.

import { fieldControl, read } from "./form_fields.js";
import { money, number } from "./format.js";
import { setRateLink } from "./new_estimate.js";
import { html } from "./template.js";
import { t } from "./texts.js";

const EXACT = 1e4; // of a minute, so that a price typed comes back as it was typed

/** What `text` in device-minutes is as a price, both as texts; what cannot be read stays. */
export function priceText(text, rate) {
  const minutes = Number(text);
  return text.trim() === "" || !Number.isFinite(minutes) ? text : String(Math.round((minutes / 60) * rate * EXACT) / EXACT);
}

/** The other way round. */
export function minutesText(text, rate) {
  const found = read({ type: "number", nullable: true, minimum: null, above: null, maximum: null, below: null }, text);
  return found.problem || found.value === null ? text : String((found.value / rate) * 60);
}

/** The control of the job's field `budget`, with the unit it is given in. */
export function budgetControl(page, field) {
  const { form, rate } = page.state;
  const priced = Boolean(rate?.device_hour_rate);
  const inPrice = priced && form.budgetUnit === "price";
  const usual = page.usualJobValue("budget");
  const written = (text) => (inPrice ? priceText(text, rate.device_hour_rate) : text);
  const shown = {
    text: written(form.budget), from: usual === "" ? "–" : written(usual), changed: form.budget !== usual,
    problem: page.state.problems.budget ?? page.localProblems().budget,
  };
  const label = inPrice ? t("new.budget.in_price", { currency: rate.currency }) : field.label;
  return html`<div data-key="budget">${priced ? units(form, rate) : null} ${fieldControl({ ...field, label }, shown)}
    ${priced ? equivalent(form, rate, inPrice) : setRateLink(page)}</div>`;
}

function units(form, { currency }) {
  const words = { minutes: t("new.budget.minutes"), price: currency };
  return html`<fieldset class="fg-plain"><legend class="fg-small">${t("new.budget.unit")}</legend><div class="fg-row">${Object.entries(words).map(
    ([unit, name]) => html`<label class="fg-check"><input type="radio" data-sync name="budget-unit" value="${unit}" id="budget-${unit}"
      data-on="change:chooseBudgetUnit" ${form.budgetUnit === unit ? html`checked` : ""}> <span>${name}</span></label>`,
  )}</div></fieldset>`;
}

function equivalent(form, rate, inPrice) {
  const minutes = Number(form.budget);
  if (form.budget.trim() === "" || !(minutes > 0)) return null;
  const other = inPrice
    ? t("new.budget.is_minutes", { minutes: number(minutes, 1) })
    : t("new.budget.is_price", { price: money((minutes / 60) * rate.device_hour_rate, rate.currency) });
  return html`<p class="fg-small" id="new-budget-is">${other}</p>`;
}

export const budgetActions = {
  chooseBudgetUnit(event) {
    this.state.form.budgetUnit = event.target.value;
    this.touched();
  },

  /** What the form keeps of a job's field that a person has typed. */
  jobText(key, text) {
    const { form, rate } = this.state;
    const inPrice = key === "budget" && form.budgetUnit === "price" && rate?.device_hour_rate;
    return inPrice ? minutesText(text, rate.device_hour_rate) : text;
  },

  /** A job's field as it was: of the cloned run, else of the untouched form. */
  usualJobValue(key) {
    const { cloneOf, origin } = this.state;
    return (cloneOf?.asked ?? origin)[key];
  },
};
