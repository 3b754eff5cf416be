// The rewards of a new run: cards with what they measure and how they are cheated, weights as shares, watching only.

import { worded } from "./form_fields.js";
import { setKey } from "./form_state.js";
import { bytes, duration, number, percent } from "./format.js";
import { problemOf, section } from "./new_goal.js";
import { html } from "./template.js";
import { t } from "./texts.js";

/** A reward's name for people. */
export function rewardTitle(page, name) {
  const card = page.state.rewards.find((entry) => entry.name === name);
  return card ? worded("rewards", name, card).title : name;
}

export function rewardsSection(page) {
  const { rewards, order } = page.state;
  const config = page.config();
  const place = (card) => order?.indexOf(card.name) ?? -1;
  const sorted = [...rewards].sort((one, other) => place(one) - place(other));
  const strange = Object.keys(config.rewards).filter((name) => !rewards.some((card) => card.name === name));
  const changed = page.isChanged("rewards") || page.isChanged("reward_options");
  return section("rewards", 4, html`<p>${t("new.rewards.intro")}</p> ${shares(page, config.rewards)} ${problemOf(page, "rewards")}
    ${problemOf(page, "reward_options")}
    ${changed ? html`<p class="fg-changed-note"><span>${t("form.changed", { value: JSON.stringify(page.baseline().rewards) })}</span>
      <button type="button" class="fg-button fg-quiet" data-on="click:resetRewards">${t("form.reset")}</button></p>` : null}
    <div class="fg-grid" id="new-rewards">${sorted.map((card) => choice(page, card, config))}</div>
    ${strange.map((name) => html`<p class="fg-small">${t("new.rewards.strange", { name, weight: config.rewards[name] })}</p>`)}`);
}

/** One bar that shows what the run optimises, told in words too. */
function shares(page, weights) {
  const total = Object.values(weights).reduce((sum, weight) => sum + Math.abs(weight), 0);
  const parts = Object.entries(weights).filter(([, weight]) => weight);
  if (!total) return html`<p class="fg-notice">${t("new.rewards.none")}</p>`;
  return html`<ul class="fg-shares">${parts.map(
    ([name, weight], place) => html`<li class="fg-share-${place % 4}" style="flex-grow: ${Math.abs(weight) / total}"><strong>${percent(Math.abs(weight) / total)}</strong>
      ${rewardTitle(page, name)}${weight < 0 ? html` (${t("new.rewards.less")})` : null}</li>`,
  )}</ul>`;
}

/** Facts of a reward's card. */
export function rewardFacts(card) {
  const words = worded("rewards", card.name, card);
  const { pocket_seconds: pocket, video_seconds: video, memory_mb: memory } = card.cost;
  return html`<p>${words.measures}</p>
    <p class="fg-row"><span class="fg-badge">${t(`new.badge.${card.badge}`)}</span> ${rewardStatus(card)}
      ${card.available && card.verified ? null : html`<span class="fg-badge fg-warned">⚠ ${t("new.unverified")}</span>`}</p>
    <details class="fg-more"><summary>${t("new.rewards.more")}<span class="fg-hidden">: ${words.title}</span></summary>
      <p><strong>${t("new.rewards.exploits")}</strong></p><ul>${words.exploits.map((line) => html`<li>${line}</li>`)}</ul>
      <p class="fg-small">${t("new.rewards.licence", { licence: card.licence })}<br>
      ${t("new.rewards.cost", { pocket: pocket === null ? "–" : number(pocket, 4), video: video === null ? "–" : duration(video), memory: memory === null ? "–" : bytes(memory * 1e6) })}
      ${[...origin(card), ...needs(card)].map((line) => html`<br>${line}`)}</p></details>`;
}

/** Whether a reward can be used as it is, or what it needs first. */
export function rewardStatus(card) {
  const { state, bytes: size } = card.status;
  if (state === "later") return null; // said in a sentence of its own
  const warned = state === "ready" ? "" : " fg-warned";
  return html`<span class="fg-badge${warned}">${state === "ready" ? "✓" : "⚠"} ${t(`new.rewards.status.${state}`, { size: bytes(size) })}</span>`;
}

/** Where a reward comes from and how far it was compared with its origin. */
function origin(card) {
  return [
    t(`new.rewards.per.${card.per}`),
    card.paper ? t("new.rewards.paper", { paper: card.paper }) : null,
    ...card.weights.map(({ repo, files }) => t("new.rewards.weights", { repo, size: bytes(files.reduce((sum, { size }) => sum + (size ?? 0), 0)) })),
    card.upstream_equality ? t("new.rewards.equality", { found: found(card.upstream_equality) }) : null,
    card.real_weights ? t("new.rewards.real_weights", { found: found(card.real_weights) }) : null,
  ].filter(Boolean);
}

/** "verified: how", or "unverified", as people read it. */
function found(text) {
  const [state, ...how] = text.split(": ");
  const word = state === "verified" ? t("new.rewards.found.yes") : t("new.rewards.found.no");
  return how.length ? `${word} (${how.join(": ")})` : word;
}

/** What a reward needs of the machine. */
function needs(card) {
  return [
    card.device === "gpu" ? t("new.rewards.gpu") : null,
    card.memory_mb === null ? null : t("new.rewards.device_memory", { memory: bytes(card.memory_mb * 2 ** 20) }),
    card.requires ? t("new.rewards.requires", { extra: card.requires }) : null,
    card.groupwise ? t("new.rewards.groupwise") : null,
  ].filter(Boolean);
}

function choice(page, card, config) {
  const { name } = card;
  const chosen = name in config.rewards;
  const weight = config.rewards[name];
  const title = worded("rewards", name, card).title;
  return html`<div class="fg-card fg-reward${chosen ? " fg-chosen" : ""}" data-key="${name}">
    <h3><label class="fg-check"><input type="checkbox" data-sync id="reward-${name}" value="${name}" data-on="change:chooseReward"
      ${chosen ? html`checked` : ""} ${card.available || chosen ? "" : html`disabled`}> <span>${title}</span></label></h3>
    ${card.available ? null : html`<p class="fg-small">${t("new.rewards.later")}</p>`}
    ${chosen ? weights(page, card, weight) : null} ${rewardFacts(card)}
    ${chosen ? options(page, card, config.reward_options[name] ?? {}) : null}</div>`;
}

function weights(page, card, weight) {
  const { name } = card;
  const title = worded("rewards", name, card).title;
  const watched = weight === 0;
  const raw = page.state.rawWeights?.[name];
  return html`<div class="fg-row fg-weight">
    <label class="fg-check"><input type="checkbox" data-sync value="${name}" id="watch-${name}" data-on="change:watchReward" ${watched ? html`checked` : ""}>
      <span>${t("new.rewards.watch")}<span class="fg-hidden">: ${title}</span></span></label>
    ${watched ? null : html`<span class="fg-row fg-nowrap"><label for="weight-${name}">${t("new.rewards.weight")}<span class="fg-hidden">: ${title}</span></label>
      <input type="text" inputmode="decimal" class="fg-short" id="weight-${name}" data-reward="${name}" data-sync autocomplete="off"
        value="${raw ?? weight}" data-on="input:weighReward" ${raw === undefined ? "" : html`aria-invalid="true"`}>
      </span>${raw === undefined ? null : html`<span class="fg-problem">${t("form.number")}</span>`}`}
  </div>`;
}

function options(page, card, set) {
  const words = worded("rewards", card.name, card);
  return Object.entries(card.options).map(([option, { default: standard, help }]) => {
    const id = `option-${card.name}-${option}`;
    const value = option in set ? set[option] : standard;
    const control = typeof standard === "boolean"
      ? html`<input type="checkbox" data-sync id="${id}" ${value ? html`checked` : ""} data-reward="${card.name}" data-option="${option}" data-on="change:setOption">`
      : html`<input type="text" data-sync id="${id}" value="${value}" class="fg-short" data-reward="${card.name}" data-option="${option}"
          autocomplete="off" data-on="change:setOption">`;
    return html`<div class="fg-option" data-key="${option}"><label for="${id}"><code>${option}</code> ${words.option_words?.[option] ?? help}</label> ${control}</div>`;
  });
}

export const rewardsActions = {
  /** Chosen rewards first; the order stays while one chooses, so that nothing jumps. */
  orderRewards() {
    const chosen = this.config().rewards ?? {};
    const rank = (card) => (card.name in chosen ? (chosen[card.name] ? 0 : 1) : card.available ? 2 : 3);
    const sorted = [...this.state.rewards].sort((one, other) => rank(one) - rank(other) || one.name.localeCompare(other.name));
    this.state.order = sorted.map((card) => card.name);
    this.state.rawWeights = {};
  },

  setRewards(rewards, options = this.config().reward_options) {
    const { form, presets } = this.state;
    setKey(form, presets, "rewards", rewards);
    const kept = Object.fromEntries(Object.entries(options).filter(([name]) => name in rewards));
    setKey(form, presets, "reward_options", kept);
    delete form.raw.rewards;
    delete this.state.problems.rewards;
    this.touched();
  },

  chooseReward(event) {
    const name = event.target.value;
    const rewards = { ...this.config().rewards };
    if (event.target.checked) rewards[name] = 1;
    else delete rewards[name];
    delete this.state.rawWeights[name];
    const options = { ...this.config().reward_options };
    const usual = this.baseline().reward_options?.[name];
    if (event.target.checked && usual) options[name] = usual;
    this.setRewards(rewards, options);
  },

  watchReward(event) {
    const name = event.target.value;
    delete this.state.rawWeights[name];
    this.setRewards({ ...this.config().rewards, [name]: event.target.checked ? 0 : 1 });
  },

  weighReward(event, control) {
    const name = control.dataset.reward;
    const weight = Number(control.value.replace(",", "."));
    if (control.value.trim() === "" || !Number.isFinite(weight)) {
      this.state.rawWeights[name] = control.value;
      this.touched();
      return;
    }
    delete this.state.rawWeights[name];
    if (weight !== 0) this.setRewards({ ...this.config().rewards, [name]: weight });
  },

  setOption(event, control) {
    const { reward, option } = control.dataset;
    const standard = this.state.rewards.find((card) => card.name === reward).options[option].default;
    let value = control.type === "checkbox" ? control.checked : control.value.trim();
    if (typeof standard === "number" && Number.isFinite(Number(value)) && value !== "") value = Number(value);
    const config = this.config();
    const mine = { ...config.reward_options[reward], [option]: value };
    this.setRewards(config.rewards, { ...config.reward_options, [reward]: mine });
  },

  resetRewards() {
    const base = this.baseline();
    this.state.rawWeights = {};
    this.setRewards(base.rewards, base.reward_options);
  },
};
