// What a new run is expected to take and to cost, in words.

import { moneySpan, timeSpan } from "./format.js";
import { html } from "./template.js";
import { t } from "./texts.js";

/** The planned time as a range; null where no speed is known. */
export function plannedTime({ plan: { time } }) {
  return time ? t("new.plan.about", { time: timeSpan({ low: time.low_seconds, high: time.high_seconds }) }) : null;
}

/** The same of one update. */
export function plannedUpdate({ plan: { time } }) {
  return time ? t("new.plan.about", { time: timeSpan({ low: time.update_low_seconds, high: time.update_high_seconds }) }) : null;
}

/** The price of the planned time; null where there is none. */
export function plannedPrice({ price }) {
  return price ? t("new.plan.about", { time: moneySpan(price, price.currency) }) : null;
}

/** Where prices would be told and the studio has no rate, its administrators are shown the way to set one. */
export function setRateLink(page) {
  const { rate } = page.state;
  if (!rate?.may_change || rate.device_hour_rate !== null) return null;
  return html`<a class="fg-small" href="/settings#fg-rate">${t("price.set_rate")}</a>`;
}
