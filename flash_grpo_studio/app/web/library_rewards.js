// Rewards: their cards, and trying them on a video of one's own, which explains the score.

import { api } from "./api.js";
import { worded } from "./form_fields.js";
import { number } from "./format.js";
import { watchJob } from "./job_watch.js";
import { fieldError } from "./library_download.js";
import { rewardFacts } from "./new_rewards.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, stateBadge } from "./view.js";

const STEPS = ["upload", "normalise", "score"];

export function rewardsTab(page) {
  const { rewards } = page.state;
  return html`${tryPanel(page)} <h2>${t("library.rewards.all")}</h2>
    <div class="fg-grid">${rewards.map((card) => html`<article class="fg-card" data-key="${card.name}" id="reward-card-${card.name}"><h3>${worded("rewards", card.name, card).title}</h3>
      <p class="fg-small"><code>${card.name}</code> · ${range(card)}</p>${card.available ? null : html`<p class="fg-small">${t("new.rewards.later")}</p>`} ${rewardFacts(card)}</article>`)}</div>`;
}

function range({ range: [low, high], higher_is_better: up }) {
  const span = t("library.rewards.range", { low: low ?? "−∞", high: high ?? "∞" });
  return `${span}, ${up ? t("library.rewards.higher") : t("library.rewards.lower")}`;
}

function tryPanel(page) {
  const { rewards, trial } = page.state;
  const picked = trial?.picked ?? [];
  return html`<section class="fg-card" aria-labelledby="try-title" data-key="try"><h2 id="try-title">${t("library.try.title")}</h2>
    <p>${t("library.try.intro")}</p>
    <div class="fg-columns"><div class="fg-field"><label for="try-video">${t("library.try.video")}</label>
      <input type="file" id="try-video" accept="video/*,.gif,.mkv"></div>
    <div class="fg-field"><label for="try-prompt">${t("library.try.prompt")}</label>
      <input id="try-prompt" maxlength="4000" autocomplete="off"></div></div>
    <fieldset class="fg-plain"><legend>${t("library.try.rewards")}</legend><div class="fg-row">${rewards.filter((card) => card.available).map(
      (card) => html`<label class="fg-check"><input type="checkbox" name="try-reward" value="${card.name}" ${card.name === "sharpness" ? html`checked` : ""}>
        <span>${worded("rewards", card.name, card).title}</span></label>`)}</div></fieldset>
    ${errorBox(trial?.error)}
    <button type="button" class="fg-button fg-primary" data-on="click:tryReward" aria-busy="${Boolean(trial?.busy)}">${t("library.try.start")}</button>
    ${trial?.step ? steps(trial) : null} ${trial?.video ? result(page, trial, picked) : null}</section>`;
}

function steps({ step, job, busy }) {
  const at = STEPS.indexOf(step);
  return html`<ol class="fg-steps">${STEPS.map((name, place) => {
    const done = place < at || (place === at && !busy);
    return html`<li ${place === at && busy ? html`aria-current="step"` : ""}>${done ? "✓" : place === at ? "…" : "○"} ${t(`library.try.${name}`)}
      ${place === at && job && busy ? html` <span role="status">${stateBadge(job.state)}</span> <span class="fg-small">${job.waiting_reason ?? ""}</span>` : null}</li>`;
  })}</ol>`;
}

function result(page, { video }, picked) {
  return html`<div class="fg-columns fg-try-result" data-key="${video.id}"><video class="fg-video" controls loop muted playsinline preload="metadata" src="${video.url}"></video>
    <div>${picked.map((name) => scoreOf(page, name, video.scores[name]))}</div></div>`;
}

/** A score with what its card says about it. */
function scoreOf(page, name, value) {
  const card = page.state.rewards.find((entry) => entry.name === name);
  const words = worded("rewards", name, card);
  const [low, high] = card.range;
  const bounded = low !== null && high !== null && typeof value === "number";
  return html`<div class="fg-score"><h3>${words.title}: <strong>${typeof value === "number" ? number(value) : "–"}</strong></h3>
    ${bounded ? html`<meter min="${low}" max="${high}" value="${value}" aria-label="${words.title}"></meter>` : null}
    <p class="fg-small">${range(card)}</p><p>${words.measures}</p>
    <p class="fg-small"><strong>${t("new.rewards.exploits")}:</strong> ${words.exploits.join(" ")}</p></div>`;
}

export const tryActions = {
  async loadRewards() {
    this.set({ rewards: await api.get("/rewards") });
  },

  async tryReward() {
    if (this.state.trial?.busy) return;
    const file = this.querySelector("#try-video").files[0];
    const prompt = this.querySelector("#try-prompt").value.trim();
    const picked = [...this.querySelectorAll('input[name="try-reward"]:checked')].map((box) => box.value);
    const missing = !file ? ["try-video", "library.try.no_video"] : !picked.length ? ["try-prompt", "library.try.no_reward"] : null;
    if (missing) {
      this.set({ trial: { error: { message: t(missing[1]) } } });
      this.querySelector(missing[0] === "try-video" ? "#try-video" : 'input[name="try-reward"]').focus();
      return;
    }
    const trial = { busy: true, picked, step: "upload" };
    this.set({ trial });
    try {
      trial.video = await this.scored(trial, file, prompt, picked);
    } catch (error) {
      trial.error = fieldError(error, {});
      trial.step = null;
    }
    trial.busy = false;
    this.update();
  },

  async scored(trial, file, prompt, rewards) {
    const body = new FormData();
    body.append("file", file);
    const upload = await api.upload("/uploads", body);
    const words = prompt ? { prompt } : {};
    const normal = await this.finished(trial, "normalise", { kind: "normalisation", file_id: upload.id, ...words });
    const [video] = (await api.get(`/jobs/${normal.id}/videos`)).videos;
    await this.finished(trial, "score", { kind: "scoring", video_ids: [video.id], rewards, ...words });
    return api.get(`/videos/${video.id}`);
  },

  /** Submit a job and wait for its end; throws its message where it failed. */
  async finished(trial, step, ask) {
    Object.assign(trial, { step, job: await api.post("/jobs", ask) });
    this.update();
    return new Promise((resolve, reject) => {
      const told = (job) => {
        trial.job = job;
        this.update();
        if (["failed", "cancelled", "lost"].includes(job.state)) reject(Object.assign(new Error(job.message || t(`state.${job.state}`)), { id: job.id }));
      };
      watchJob(this, trial.job.id, told, resolve);
    });
  },
};
