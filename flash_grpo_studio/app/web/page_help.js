// Help: what each reward, curve and warning means, which keys there are, and what to do when something fails. Every entry
// has an anchor (#reward-NAME, #curve-NAME, #warning-CODE, #failure-CAUSE), so that other pages link to it.

import { api } from "./api.js";
import { loadCatalogueWords, worded } from "./form_fields.js";
import { bytes, number } from "./format.js";
import { rewardStatus } from "./new_rewards.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

const CURVES = [
  "reward", "evaluation", "grad_norm", "branch_weight", "branch_reward", "drift", "clip_fraction", "kl", "dead_groups",
  "loss", "seconds", "memory", "learning_rate",
];
const WARNINGS = [
  "rollouts", "disk", "drift", "determinism", "groups", "rewards", "dead_groups", "gradients", "ranks", "self_tests",
  "early_stop", "no_gain", "damaged_checkpoint", "changed_config", "repeated_prompts", "cut_prompts", "unreadable_video",
  "left_out", "no_licence",
];
const FAILURES = ["device_memory", "memory", "disk", "nan", "missing", "refused", "device", "died", "other"];
const STEPS = ["choose", "start", "watch", "judge", "use"];
const WORDS = ["run", "update", "rollout", "group", "branch", "heldout", "left", "cost"];
const KEYS = [["Tab", "tab"], ["Enter", "enter"], ["Esc", "escape"], ["← → ↑ ↓", "arrows"]];
const PAGE_KEYS = {
  compare: [["N P", "next_pair"], ["K", "player_play"]],
  vote: [["← →", "vote_sides"], ["T B N", "vote_tie"], ["U R N", "vote_after"]],
};
const SECTIONS = ["begin", "words", "rewards", "curves", "warnings", "failures", "keys", "more"];

class Help extends View {
  state = { rewards: null };
  #jumped = false;

  async start() {
    await this.act(async () => {
      const [rewards] = await Promise.all([api.get("/rewards"), loadCatalogueWords()]);
      this.set({ rewards });
    });
    const jump = () => this.#jump();
    window.addEventListener("hashchange", jump);
    this.onStop(() => window.removeEventListener("hashchange", jump));
  }

  render() {
    const { rewards, error } = this.state;
    return html`<div class="fg-stack"><h1>${t("page.help")}</h1> ${errorBox(error)}
      <nav class="fg-card" aria-label="${t("help.contents")}"><ul class="fg-contents">${SECTIONS.map(
        (name) => html`<li><a href="#${name}">${t(`help.${name}`)}</a></li>`,
      )}</ul></nav>
      ${section("begin", html`<ol>${STEPS.map((step) => html`<li>${t(`help.step.${step}`)}</li>`)}</ol>
        <p><a class="fg-button" href="/example">${t("home.see_example")}</a></p>`)}
      ${section("words", WORDS.map((word) => term(`word-${word}`, t(`help.word.${word}`), html`<p>${t(`help.word.${word}_text`)}</p>`)))}
      ${section("rewards", html`<p>${t("help.rewards_text")}</p>${rewards ? rewards.map(reward) : html`<p class="fg-muted">${t("home.loading")}</p>`}`)}
      ${section("curves", CURVES.map((name) => term(`curve-${name}`, t(`curve.${name}`), html`<p>${t(`curve.${name}.meaning`)}</p>
        <p><strong>${t("curve.healthy")}</strong> ${t(`curve.${name}.healthy`)}</p>`)))}
      ${section("warnings", html`<p>${t("help.warnings_text")}</p>${WARNINGS.map((code) => term(`warning-${code}`, html`<code>${code}</code>`, html`<p>${t(`help.warning.${code}`)}</p>
        <p><strong>${t("help.to_do")}</strong> ${t(`run.advice.${code}`)}</p>`))}`)}
      ${section("failures", html`<p>${t("help.failures_text")}</p>${FAILURES.map((cause) => term(`failure-${cause}`, t(`run.cause.${cause}`), html`<p><strong>${t("help.to_do")}</strong> ${t(`run.remedy.${cause}`)}</p>`))}`)}
      ${section("keys", html`<p>${t("help.keys_text")}</p>${keys(KEYS)}${Object.entries(PAGE_KEYS).map(
        ([page, known]) => html`<h3 id="keys-${page}" class="fg-below">${t(`page.${page}`)}</h3>${keys(known)}`,
      )}`)}
      ${section("more", html`<ul><li><a href="/docs">${t("settings.api_docs")}</a></li><li><code>flash-grpo --help</code> ${t("help.more_cli")}</li>
        <li><code>flash-grpo doctor</code> ${t("help.more_check")}</li></ul>`)}</div>`;
  }

  rendered() {
    // The entries are not there yet when the browser looks for the one in the address.
    if (this.#jumped || !this.state.rewards) return;
    this.#jumped = true;
    this.#jump();
  }

  #jump() {
    const found = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!found) return;
    found.scrollIntoView();
    found.focus({ preventScroll: true });
  }
}

function section(name, content) {
  return html`<section class="fg-card" id="${name}" tabindex="-1" aria-labelledby="fg-${name}"><h2 id="fg-${name}">${t(`help.${name}`)}</h2>${content}</section>`;
}

function term(id, title, content) {
  return html`<div class="fg-term" id="${id}" tabindex="-1"><h3>${title}</h3>${content}</div>`;
}

function keys(known) {
  return html`<dl class="fg-facts">${known.map(
    ([key, name]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${t(`help.key.${name}`)}</dd></div>`,
  )}</dl>`;
}

function range([low, high]) {
  if (low === null && high === null) return t("help.range.open");
  if (low === null) return t("help.range.to", { high: number(high) });
  return high === null ? t("help.range.from", { low: number(low) }) : t("help.range.both", { low: number(low), high: number(high) });
}

function reward(card) {
  const words = worded("rewards", card.name, card);
  const badges = [t(`new.badge.${card.badge}`), card.available ? "" : t("help.later"), card.available && card.requires ? t("help.requires", { extra: card.requires }) : ""];
  const facts = [
    range(card.range),
    card.cost.video_seconds === null ? "" : t("help.reward_time", { seconds: number(card.cost.video_seconds) }),
    card.cost.memory_mb === null ? "" : t("help.reward_memory", { size: bytes(card.cost.memory_mb * 2 ** 20) }),
    t("help.licence", { licence: card.licence }),
  ];
  const options = Object.entries(card.options);
  return term(`reward-${card.name}`, html`${words.title} <code>${card.name}</code> ${badges.filter(Boolean).map((badge) => html`<span class="fg-badge">${badge}</span> `)}${rewardStatus(card)}`,
    html`<p>${words.measures}</p><p class="fg-small">${facts.filter(Boolean).join(" · ")}</p>
      <p><strong>${t("help.exploits")}</strong></p><ul>${words.exploits.map((exploit) => html`<li>${exploit}</li>`)}</ul>
      ${options.length ? html`<p><strong>${t("help.options")}</strong></p><ul>${options.map(
        ([name, option]) => html`<li><code>${name}</code> (${String(option.default)}): ${words.option_words?.[name] ?? option.help}</li>`,
      )}</ul>` : ""}`);
}

customElements.define("fg-help", Help);
