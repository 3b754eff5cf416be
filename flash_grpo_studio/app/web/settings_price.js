// <fg-price>: what a device-hour costs, by which pages tell device-hours as a price. Administrators set it.

import { api } from "./api.js";
import { money } from "./format.js";
import { read } from "./form_fields.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

const FIELD = { type: "number", nullable: true, minimum: 0, maximum: 1e9, above: null, below: null };

class Price extends View {
  state = { rate: null, problem: "", said: "" };

  async start() {
    await this.act(async () => this.set({ rate: await api.get("/price") }));
    if (location.hash === "#fg-rate") this.querySelector("#fg-rate")?.focus();
  }

  render() {
    const { rate, error, said } = this.state;
    return html`<section class="fg-card" aria-labelledby="fg-price-title"><h2 id="fg-price-title">${t("settings.price.title")}</h2>
      <p>${t("settings.price.text")}</p> ${errorBox(error)}
      ${rate ? (rate.may_change ? this.#form(rate) : html`<p>${this.#words(rate)}</p>`) : ""}
      <p role="status" class="fg-good">${said}</p></section>`;
  }

  #words({ device_hour_rate: value, currency }) {
    return value === null ? t("settings.price.none") : t("settings.price.is", { price: money(value, currency) });
  }

  #form({ device_hour_rate: value, currency }) {
    const { problem } = this.state;
    return html`<form data-on="submit:save" novalidate aria-labelledby="fg-price-title"><div class="fg-grid">
        <div class="fg-field"><label for="fg-rate">${t("settings.price.rate")}</label>
          <input id="fg-rate" name="rate" inputmode="decimal" autocomplete="off" value="${value ?? ""}" aria-describedby="fg-rate-help fg-rate-problem"
            ${problem ? html`aria-invalid="true"` : ""}>
          <p class="fg-small" id="fg-rate-help">${t("settings.price.rate_help")}</p>
          <p class="fg-problem" id="fg-rate-problem">${problem}</p></div>
        <div class="fg-field"><label for="fg-currency">${t("settings.price.currency")}</label>
          <input id="fg-currency" name="currency" maxlength="12" autocomplete="off" value="${currency ?? ""}" placeholder="EUR"></div></div>
      <button class="fg-button">${t("settings.price.save")}</button></form>`;
  }

  async save(event, form) {
    const { rate, currency } = form.elements;
    const found = read(FIELD, rate.value);
    const label = currency.value.trim();
    const problem = found.problem ?? (found.value !== null && !label ? t("settings.price.no_currency") : "");
    this.set({ problem, said: "" });
    if (problem) return (found.problem ? rate : currency).focus();
    const body = { device_hour_rate: found.value, currency: label || null };
    const kept = await this.act(() => api.patch("/price", body), form.querySelector("button"));
    if (kept) this.set({ rate: kept, said: t("settings.price.saved", { words: this.#words(kept) }) });
  }
}

customElements.define("fg-price", Price);
