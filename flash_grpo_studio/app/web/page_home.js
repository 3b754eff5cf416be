// Home: what runs, on what, what the newest run achieved, and where to begin.

import { api } from "./api.js";
import { percent, timeSpan } from "./format.js";
import { changeOf, pairFigure, playButton, playPairs, prefersStill } from "./home_pair.js";
import { waiting } from "./run_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, stateBadge, View } from "./view.js";

const RUNNING = ["running", "starting", "pausing", "cancelling"];
const MOST_SHOWN = 6;

class Home extends View {
  state = { active: null, states: {}, workers: null, leases: [], newest: undefined, pairs: [], pair: 0, playing: !prefersStill() };
  #key = crypto.randomUUID?.() || `${Date.now()}-${Math.random()}`;
  #finished = null;

  async start() {
    this.every(1, () => this.#loadRuns());
    this.every(3, () => this.#loadDevices());
  }

  async #loadRuns() {
    const states = RUNNING.map((state) => `state=${state}`).join("&");
    const { active: shown, states: known } = this.state;
    const [page, waits] = await Promise.all([
      api.get(`/jobs?${states}&sort=-created&limit=${MOST_SHOWN}`),
      shown === null || known.queued ? api.get(`/jobs?state=queued&sort=queue&limit=${MOST_SHOWN}`) : { jobs: [] },
    ]);
    const underWay = page.total + (page.states.queued || 0);
    this.set({ active: [...page.jobs, ...waits.jobs].slice(0, MOST_SHOWN), underWay, states: page.states });
    // The newest result changes only when a run ends, which the counts tell.
    const finished = page.states.succeeded || 0;
    if (finished !== this.#finished) {
      await this.#loadNewest(finished);
      this.#finished = finished;
    }
  }

  async #loadDevices() {
    const [{ workers }, { leases }] = await Promise.all([api.get("/workers"), api.get("/leases")]);
    this.set({ workers, leases });
  }

  async #loadNewest(finished) {
    const found = finished ? await api.get("/jobs?state=succeeded&kind=alignment&sort=-changed&limit=1") : { jobs: [] };
    if (!found.jobs[0]) return this.#showExample();
    const address = `/jobs/${found.jobs[0].id}`;
    const [job, sides, others] = await Promise.all(
      [address, ...["before", "after"].map((side) => `${address}/videos?side=${side}&limit=200`)].map((path) => api.get(path)),
    );
    const other = new Map(others.videos.map((video) => [`${video.prompt_id} ${video.seed}`, video]));
    const pairs = sides.videos.flatMap((before) => {
      const after = other.get(`${before.prompt_id} ${before.seed}`);
      return after && before.prompt ? [{ prompt: before.prompt, seed: before.seed, before: before.url, after: after.url }] : [];
    });
    this.set({ newest: job, pairs, pair: 0 });
  }

  /** Before there is a result of one's own, the one that came with the package. */
  async #showExample() {
    const answer = await fetch("/web/example/example.json");
    const example = await answer.json();
    const folder = "/web/example/";
    const pairs = example.pairs.map((pair) => ({ ...pair, before: folder + pair.before, after: folder + pair.after }));
    this.set({ newest: null, example, pairs, pair: 0 });
  }

  render() {
    const { active, newest, error, states } = this.state;
    const empty = active !== null && Object.values(states).reduce((sum, count) => sum + count, 0) === 0;
    return html`<div class="fg-stack">
      ${empty ? this.#welcome() : html`<div class="fg-row fg-spread"><h1>${t("page.home")}</h1>
        <a class="fg-button fg-primary" href="/new">${t("home.start")}</a></div>`}
      ${errorBox(error)} ${empty ? "" : this.#activeRuns()}
      ${newest === undefined ? "" : this.#result()} ${this.#devices()}</div>`;
  }

  rendered() {
    const key = this.querySelector(".fg-pair")?.dataset.key;
    if (key && key !== this.shown) {
      this.shown = key;
      playPairs(this, this.state.playing);
    }
  }

  #welcome() {
    return html`<section class="fg-hero"><h1>${t("home.welcome")}</h1><p>${t("home.welcome_text")}</p>
      <div class="fg-row"><a class="fg-button fg-primary" href="/new">${t("home.own")}</a>
        <a class="fg-button" href="/example">${t("home.see_example")}</a>
        <button class="fg-button fg-quiet" data-on="click:tryPocket">${t("home.try")}</button></div>
      <p class="fg-small">${t("home.try_text")}</p></section>`;
  }

  #activeRuns() {
    const { active, underWay: total } = this.state;
    if (active === null) return html`<section class="fg-card"><p class="fg-muted">${t("home.loading")}</p></section>`;
    const more = total > active.length ? html`<a href="/runs?sort=queue">${t("home.more_runs", { count: total - active.length })}</a>` : "";
    const cards = active.map((job) => this.#runCard(job));
    const idle = html`<p class="fg-muted">${t("home.idle")} <a href="/runs">${t("home.history")}</a></p>`;
    return html`<section aria-labelledby="fg-active"><h2 id="fg-active">${t("home.active")}</h2>
      ${active.length ? html`<div class="fg-grid">${cards}</div> ${more}` : idle}</section>`;
  }

  #runCard(job) {
    const { update, updates } = job.progress;
    const left = job.estimate.seconds_left;
    const words = waiting(job.waiting_reason);
    return html`<article class="fg-card" data-key="${job.id}"><h3 class="fg-clamp"><a href="/run?id=${job.id}">${job.name}</a></h3>
      <div class="fg-row fg-spread">${stateBadge(job.state)}
        <span class="fg-small">${updates ? html`${update} / ${updates} · ${percent(update / updates)}` : ""}</span></div>
      ${updates ? html`<progress max="${updates}" value="${update}" aria-label="${t("home.progress", { name: job.name })}"></progress>` : ""}
      <p class="fg-small">${words || (left ? t("home.left", { time: timeSpan(left) }) : "")}</p></article>`;
  }

  #devices() {
    const { workers, leases } = this.state;
    if (workers === null) return "";
    const held = new Map(leases.map((lease) => [`${lease.worker_id} ${lease.device}`, lease]));
    const devices = workers.flatMap((worker) =>
      worker.devices.map((device) => {
        const lease = held.get(`${worker.id} ${device.name}`);
        const now = lease
          ? lease.job_id ? html`<a href="/run?id=${lease.job_id}">${lease.job_name}</a>` : t("home.device_other")
          : t(worker.state === "draining" ? "home.device_draining" : "home.device_free");
        return html`<li class="fg-device" data-key="${worker.id} ${device.name}" data-busy="${String(Boolean(lease))}"><strong>${device.name}</strong>
          <span class="fg-small">${worker.host}${device.model ? html` · ${device.model}` : ""}</span> <span>${now}</span></li>`;
      }),
    );
    const none = html`<p class="fg-muted">${t("home.no_device")} <a href="/machines">${t("home.how_worker")}</a></p>`;
    return html`<section aria-labelledby="fg-devices"><div class="fg-row fg-spread"><h2 id="fg-devices">${t("home.devices")}</h2>
      <a href="/machines">${t("page.machines")}</a></div>
      ${devices.length ? html`<ul class="fg-strip">${devices}</ul>` : none}</section>`;
  }

  #result() {
    const { newest, example, pairs, pair, playing } = this.state;
    const found = newest ? newest.result : example;
    const heldout = found?.heldout || {};
    const weights = found?.rewards || {};
    const names = Object.keys(heldout).sort((one, other) => Math.abs(weights[other] || 0) - Math.abs(weights[one] || 0));
    const title = newest ? html`${t("home.newest")}: <a href="/run?id=${newest.id}">${newest.name}</a>` : t("home.example");
    const place = { place: (pair % Math.max(1, pairs.length)) + 1, count: pairs.length };
    const shown = pairs[place.place - 1];
    const figure = shown
      ? pairFigure({ key: `${pair} ${shown.before}`, ...shown }, playButton(playing))
      : html`<p class="fg-muted">${t("home.no_videos")}</p>`;
    return html`<section class="fg-card" aria-labelledby="fg-newest"><h2 id="fg-newest">${title}</h2>
      ${newest ? "" : html`<p class="fg-small">${t("home.example_note")} <a href="/example">${t("home.see_example")}</a></p>`}
      <div class="fg-columns">
        <div>${figure} <div class="fg-row">${pairs.length > 1 ? html`<button class="fg-button" data-on="click:nextPair">${t("home.next_pair", place)}</button>` : ""}
          ${newest && pairs.length ? html`<a class="fg-button" href="/compare?job=${newest.id}">${t("compare.link_pairs")}</a>` : ""}</div></div>
        <div><h3>${t("home.heldout")}</h3><ul class="fg-changes">${names.map(
          (name) => html`<li>${changeOf(name, heldout[name], Boolean(weights[name]))}</li>`,
        )}</ul><p class="fg-small">${t("home.heldout_note")}</p></div></div></section>`;
  }

  togglePair() {
    this.set({ playing: !this.state.playing });
    playPairs(this, this.state.playing);
  }

  nextPair() {
    this.set({ pair: this.state.pair + 1 });
  }

  /** One click to a running alignment; pressed twice, it is still one run. */
  async tryPocket(event, button) {
    const job = await this.act(() => api.post("/jobs", { preset: "pocket", idempotency_key: this.#key }), button);
    if (job) location.assign(`/run?id=${job.id}`);
  }
}

customElements.define("fg-home", Home);
