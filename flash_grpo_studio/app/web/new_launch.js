// The panel that says what a click will do, and the launch itself: one job per state of the form, however often clicked.

import { api, ApiError } from "./api.js";
import { PROMPT_KEYS } from "./form_state.js";
import { bytes } from "./format.js";
import { problemsOf } from "./new_check.js";
import { plannedPrice, plannedTime } from "./new_estimate.js";
import { goalTitle } from "./new_goal.js";
import { rewardTitle } from "./new_rewards.js";
import { said } from "./server_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox } from "./view.js";

export function launchPanel(page, place) {
  const { form, planning, launching, launchError, launchSaid } = page.state;
  const config = page.config();
  const rewards = Object.entries(config.rewards ?? {}).filter(([, weight]) => weight).map(([name]) => rewardTitle(page, name));
  const blocked = page.state.plan?.plan.memory.fits === false;
  return html`<div class="fg-card fg-launch" data-key="launch-${place}">
    <h2>${goalTitle(form.preset)}</h2>
    <p>${t("new.launch.does", { model: config.model, rewards: rewards.join(t("new.launch.and")) || "–", updates: t("new.launch.updates", { count: config.updates }), devices: t("new.launch.devices", { count: Number(form.devices) }) })}</p>
    ${verdict(page)} ${problemList(page)} ${errorBox(launchError)}
    <button type="button" class="fg-button fg-primary fg-wide" id="launch-${place}" data-on="click:launch" aria-describedby="launch-facts-${place}"
      ${blocked ? html`aria-disabled="true"` : ""} aria-busy="${Boolean(launching)}">${launching ? t("new.launch.busy") : t("new.launch")}</button>
    <p class="fg-small" id="launch-facts-${place}">${planning ? t("new.launch.planning") : t("new.launch.afterwards")}</p>
    <p class="fg-hidden" role="status">${launchSaid ?? ""}</p>
  </div>`;
}

/** Time, price, memory and disk in one line; or why there is no plan. */
function verdict(page) {
  const { plan, planError } = page.state;
  if (planError) return html`<p class="fg-notice">${said(planError.message)} ${said(planError.whatToDo)}</p>`;
  if (!plan) return null;
  const { memory, disk } = plan.plan;
  const fits = page.needsGpu()
    ? html`<li class="fg-warned">⚠ ${t("new.plan.no_gpu")}</li>`
    : memory.fits === null ? null : memory.fits
    ? html`<li class="fg-good">✓ ${t("new.plan.fits")}</li>`
    : html`<li class="fg-bad"><strong>✗ ${t("new.plan.does_not_fit")}</strong> <a href="#step-review">${t("new.plan.what_to_change")}</a></li>`;
  return html`<ul class="fg-verdict${page.stale ? " fg-stale" : ""}"><li>${plannedTime(plan) ?? t("new.plan.no_time")}</li>
    ${plan.price ? html`<li>${plannedPrice(plan)}</li>` : null}
    <li>${t("new.plan.memory_short", { memory: bytes(memory.peak_gb * 1e9) })}</li>
    <li>${t("new.plan.disk_short", { disk: bytes(disk.most_gb * 1e9) })}</li>${fits}</ul>`;
}

function problemList(page) {
  const { problems, general } = page.state;
  const keys = Object.keys(problems);
  if (!keys.length && !general.length) return null;
  return html`<div class="fg-error"><p><strong>${t("new.problems", { count: keys.length + general.length })}</strong></p><ul>
    ${general.map((message) => html`<li>${said(message)}</li>`)}
    ${keys.map((key) => html`<li><a href="#field-${key}" data-on="click:gotoProblem" data-field="${key}">${page.field(key)?.label ?? t(`new.field.${key}`)}</a>: ${said(problems[key])}</li>`)}
  </ul></div>`;
}

export const launchActions = {
  async launch() {
    if (this.launching) return;
    this.launching = true;
    this.set({ launching: true, launchError: null, launchSaid: "" });
    const { key } = this.state.form;
    try {
      if (this.stale) await this.check();
      else await this.checking;
      if (key !== this.state.form.key) return; // changed in the meantime: that is not what was clicked for
      if (this.refused()) return;
      const job = await this.submit();
      this.launched = true;
      this.saving = clearTimeout(this.saving);
      await this.draft.drop();
      location.assign(`/run?id=${job.id}`);
    } catch (error) {
      this.launchFailed(error);
    } finally {
      // After success the page goes away; a second click in between must find it busy.
      if (!this.launched) {
        this.launching = false;
        this.set({ launching: false });
      }
    }
  },

  /** Whether something keeps the form from being launched; the person is brought there. */
  refused() {
    const { problems, general, plan } = this.state;
    if (Object.keys(problems).length || general.length || Object.keys(this.state.rawWeights).length) {
      this.set({ launchSaid: t("new.problems", { count: Object.keys(problems).length + general.length }) });
      this.focusProblem();
      return true;
    }
    if (plan?.plan.memory.fits !== false) return false;
    this.set({ launchSaid: t("new.plan.does_not_fit") });
    this.querySelector("#new-fit")?.focus();
    return true;
  },

  submit() {
    const { form, cloneOf } = this.state;
    const ask = { ...this.ask(), idempotency_key: form.key };
    if (!form.clone || !cloneOf) return api.post("/jobs", ask);
    const whole = this.state.presets[form.preset].whole;
    const before = Object.keys(cloneOf.overrides);
    if ("prompts" in ask && before.some((key) => PROMPT_KEYS.includes(key))) return api.post("/jobs", ask);
    // A clone's overrides are merged with the original's, so what was taken back is said too.
    const back = before.filter((key) => !(key in ask.overrides) && !key.includes(".") && key in whole).map((key) => [key, whole[key]]);
    const edits = { prompts: null, heldout: null, rewards: null, budget: null, name: null, ...ask };
    edits.overrides = { ...Object.fromEntries(back), ...(before.some((key) => key.includes(".")) ? partsOf(this.config()) : {}), ...ask.overrides };
    return api.post(`/jobs/${form.clone}/clone`, edits);
  },

  launchFailed(error) {
    if (error instanceof ApiError && error.status === 422) {
      this.takeProblems(problemsOf(error));
      this.refused();
      return;
    }
    if (!(error instanceof ApiError)) console.error(error);
    this.set({ launchError: error });
  },

  gotoProblem(event, link) {
    event.preventDefault();
    this.focusProblem(link.dataset.field);
  },

  /** Bring a person to a problem, the first one unless `key` names another; Advanced opens where it is inside. */
  async focusProblem(key = null) {
    const wanted = key ?? Object.keys(this.state.problems)[0];
    const places = { own_prompts: { own: "#new-text", set: "#new-set, #source-set" }[this.state.form.source], model: "#new-model", preset: 'input[name="preset"]:checked', prompts: "#new-categories input, #field-prompts", rewards: "#problem-rewards", reward_options: "#problem-reward_options" };
    const selector = places[wanted] ?? `#field-${wanted}`;
    if (wanted && !this.querySelector(selector)) {
      const advanced = this.querySelector("#new-advanced");
      advanced.open = true;
      this.set({ advanced: true, search: "", onlyChanged: false });
      const box = this.querySelector("#new-search");
      if (box) box.value = "";
    }
    await new Promise((resolve) => requestAnimationFrame(resolve));
    const target = wanted ? this.querySelector(selector) : this.querySelector(".fg-launch .fg-error, [aria-invalid='true']");
    if (target && !target.matches("a, input, select, textarea, button")) target.tabIndex = -1;
    target?.focus();
    target?.scrollIntoView({ block: "center" });
  },
};

function partsOf(config) {
  return { rewards: config.rewards, reward_options: config.reward_options };
}
