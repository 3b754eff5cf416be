// Vote: two videos of one prompt whose sides nobody knows, before a choice. The server decides which is left, and says so
// only when it is asked to reveal what was chosen.

import { api } from "./api.js";
import "./compare_choose.js";
import "./player/player.js";
import { sidesOfRuns } from "./compare_choose.js";
import { parseSide, sideLabels } from "./compare_sides.js";
import { address, asked, go } from "./page_url.js";
import { pageKeys } from "./player_keys.js";
import { showBallot, showPair, speak } from "./player_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";
import { results } from "./vote_results.js";

const CHOICES = ["left", "right", "tie", "bad", "skip"];
const KEYS = { ArrowLeft: "left", ArrowRight: "right", t: "tie", b: "bad", n: "skip" };
const SIGNS = { left: "←", right: "→", tie: "T", bad: "B", skip: "N" };

class Vote extends View {
  state = { ballot: null, played: false, choice: "", undone: false, revealed: null, over: false, gone: "", results: null, said: "" };

  async start() {
    const moved = () => this.#arrive();
    address.addEventListener("change", moved);
    this.onStop(() => address.removeEventListener("change", moved));
    this.onStop(pageKeys(this, (event) => this.#pressed(event)));
    this.addEventListener("fg-sides", ({ detail }) => go(detail));
    this.addEventListener("fg-player-ended-once", () => this.set({ played: true }));
    await this.#arrive();
  }

  async #arrive() {
    const [before, after] = [asked("before"), asked("after")];
    if (!before || !after) return this.#find();
    if (!parseSide(before) || !parseSide(after)) return this.set({ gone: "strange" });
    this.sides = new URLSearchParams({ before, after });
    this.querySelector("fg-choose-sides")?.take(before, after);
    this.set({ gone: "", over: false, results: null });
    await this.#next();
  }

  async #find() {
    await this.act(async () => {
      const jobs = new URLSearchParams(location.search).getAll("job");
      const newest = jobs.length ? [] : (await api.get("/sides")).sides;
      if (!jobs.length && newest.length) jobs.push(newest[0].job_id);
      if (!jobs.length) return this.set({ gone: "empty" });
      const [before, after] = await sidesOfRuns(jobs);
      go({ before, after, job: null }, { step: false });
    });
    if (this.state.error?.status === 404) this.set({ gone: "missing", error: null });
  }

  /** The next pair; at the end the results. */
  async #next() {
    const { sides } = this;
    try {
      const ballot = await api.post("/ballots", Object.fromEntries(sides));
      if (sides !== this.sides) return;
      const said = t("vote.now", { place: ballot.voted + 1, count: ballot.voted + ballot.left_to_vote });
      this.set({ ballot, played: false, choice: "", undone: false, revealed: null, error: null, said });
    } catch (error) {
      if (sides === this.sides) await this.#noNext(error);
    }
  }

  async #noNext(error) {
    if (error.code === "no_pairs_left") return this.#end();
    const gone = { 404: "missing", 422: "strange", 409: "unlike" }[error.status];
    if (!gone) return this.fail(error);
    this.set({ gone, ballot: null, error: gone === "missing" ? null : error });
  }

  async #end() {
    this.set({ ballot: null, over: true, error: null });
    await this.#loadResults();
  }

  async #loadResults() {
    const found = await this.act(() => api.get(`/votes/results?${this.sides}`));
    if (found) this.set({ results: found });
  }

  render() {
    const { gone, ballot, over, error, said } = this.state;
    const body = gone ? this.#gone(gone) : over ? this.#over() : ballot ? this.#ballot(ballot) : html`<p class="fg-muted">${t("vote.loading")}</p>`;
    return html`<div class="fg-stack"><div class="fg-row fg-spread" data-key="head"><h1>${t("page.vote")}</h1>
        ${gone || !this.sides ? "" : html`<a class="fg-button" href="/compare?${this.#address()}">${t("vote.compare")}</a>`}</div>
      ${errorBox(error)} ${body}
      ${gone ? "" : html`<details class="fg-more" data-key="sides"><summary>${t("vote.what")}</summary><fg-choose-sides data-own></fg-choose-sides></details>`}
      <p class="fg-hidden" role="status" data-key="said">${said}</p></div>`;
  }

  #address() {
    return String(this.sides).replaceAll("%40", "@");
  }

  #gone(gone) {
    const [to, words] = {
      empty: ["/new", t("runs.new")],
      unlike: [`/compare?${this.sides && this.#address()}`, t("vote.compare")],
    }[gone] ?? ["/vote", t("compare.to_newest")];
    return html`<section class="fg-card fg-empty" data-key="gone" id="fg-gone"><h2>${t(`compare.${gone}_title`)}</h2><p>${t(`compare.${gone}_text`)}</p>
      <a class="fg-button fg-primary" href="${to}">${words}</a></section>`;
  }

  #over() {
    const { results: found } = this.state;
    return html`<section class="fg-card fg-empty" data-key="over" id="fg-over"><h2>${t("vote.over_title")}</h2><p>${t("vote.over_text")}</p>
        <a class="fg-button fg-primary" href="/compare?${this.#address()}">${t("vote.compare")}</a></section>
      ${found ? html`<section data-key="results" aria-labelledby="fg-results"><h2 id="fg-results">${t("vote.results")}</h2>${results(found, this.#csv())}</section>` : ""}`;
  }

  #csv() {
    return `/api/v1/votes.csv?${this.sides}`;
  }

  #ballot(ballot) {
    const { choice, revealed, results: found } = this.state;
    const count = ballot.voted + ballot.left_to_vote;
    const place = Math.min(count, ballot.voted + 1);
    return html`<section class="fg-stack" data-key="ballot" aria-label="${t("vote.pair")}">
      <div data-key="progress"><label class="fg-row fg-spread" for="fg-voted"><span>${t("vote.progress", { place, count })}</span></label>
        <progress id="fg-voted" max="${count}" value="${ballot.voted + (choice ? 1 : 0)}"></progress></div>
      ${revealed ? "" : html`<p class="fg-vote-prompt" data-key="prompt">“${ballot.prompt}”</p>`}
      ${choice ? this.#chosen(choice, revealed) : this.#choices()}
      <fg-player facts="below" data-own data-key="player"></fg-player></section>
      <details class="fg-more" data-key="results" data-on="toggle:openResults"><summary>${t("vote.results_so_far")}</summary>
        ${found ? results(found, this.#csv()) : html`<p class="fg-muted">${t("vote.loading")}</p>`}</details>`;
  }

  #choices() {
    const { played } = this.state;
    const button = (name) => html`<button type="button" class="fg-button fg-vote-button ${name === "skip" ? "fg-quiet" : ""}" data-key="${name}"
      data-on="click:vote" data-choice="${name}" ${played || name === "skip" ? "" : html`disabled`}>${t(`vote.choice.${name}`)} <kbd aria-hidden="true">${SIGNS[name]}</kbd></button>`;
    return html`<div data-key="choices"><p class="${played ? "" : "fg-notice"}" id="fg-question">${t(played ? "vote.question" : "vote.wait")}</p>
      <div class="fg-row fg-vote" role="group" aria-labelledby="fg-question">${CHOICES.map(button)}</div></div>`;
  }

  #chosen(choice, revealed) {
    const { undone } = this.state;
    const undo = revealed || undone ? "" : html`<button type="button" class="fg-button" data-key="undo" data-on="click:undo">${t("vote.undo")} <kbd aria-hidden="true">U</kbd></button>`;
    const reveal = revealed ? "" : html`<button type="button" class="fg-button" data-key="reveal" data-on="click:reveal">${t("vote.reveal")} <kbd aria-hidden="true">R</kbd></button>`;
    return html`<div data-key="chosen"><p>${t(`vote.chose.${choice}`)} ${revealed ? this.#revealed(revealed) : ""}</p>
      <div class="fg-row fg-vote">${undo} ${reveal}
        <button type="button" class="fg-button fg-primary" id="fg-next" data-key="next" data-on="click:next">${t("vote.next")} <kbd aria-hidden="true">N</kbd></button></div></div>`;
  }

  #revealed({ left, labels }) {
    const [first, second] = left === "before" ? labels : [...labels].reverse();
    return html`<strong id="fg-revealed">${t("vote.revealed_text", { left: first, right: second })}</strong>`;
  }

  rendered() {
    const { ballot, revealed, choice } = this.state;
    if (this.sides) this.querySelector("fg-choose-sides")?.take(this.sides.get("before"), this.sides.get("after"));
    const player = this.querySelector("fg-player");
    const shown = revealed ?? ballot;
    if (player && shown && shown !== this.shown) {
      if (!this.shown) speak(player);
      this.shown = shown;
      if (revealed) this.#showRevealed(player, ballot, revealed);
      else showBallot(player, ballot);
    }
    if (this.focusNext && choice) {
      this.focusNext = false;
      this.querySelector("#fg-next")?.focus({ preventScroll: true });
    }
  }

  /** The real videos with their names, each where it was. */
  #showRevealed(player, { fps, frames }, revealed) {
    showPair(player, { ...revealed, fps, frames, differences: [] }, revealed.labels, revealed.comparison);
    player.restore({ mode: "side", swapped: revealed.left === "after" });
  }

  #pressed(event) {
    if (event.repeat || event.target.matches?.("input")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const { ballot, choice, played } = this.state;
    if (!ballot) return;
    if (!choice) {
      const wanted = KEYS[key];
      if (!wanted) return;
      event.preventDefault();
      if (played || wanted === "skip") this.#once(() => this.#vote(wanted));
    } else if (key === "u") this.undo();
    else if (key === "r") this.reveal();
    else if (key === "n") this.next();
  }

  vote(event, button) {
    this.#once(() => this.#vote(button.dataset.choice, button));
  }

  /** One thing at a time: a key that is pressed twice means one. */
  async #once(work) {
    if (this.busy) return;
    this.busy = true;
    await work().finally(() => (this.busy = false));
  }

  async #vote(choice, button) {
    const { ballot } = this.state;
    const done = await this.#of(ballot, () => api.put(`/ballots/${ballot.id}/choice`, { choice }), button);
    if (!done) return;
    if (choice === "skip") {
      this.set({ played: false });
      return this.#goOn();
    }
    this.focusNext = true;
    if (this.querySelector("[data-key=results]").open) this.#loadResults();
    this.set({ choice, said: t(`vote.chose.${choice}`) });
  }

  undo(event, button) {
    this.#once(() => this.#undo(button));
  }

  async #undo(button) {
    const { ballot, choice, undone, revealed } = this.state;
    if (!choice || undone || revealed) return;
    if (await this.#of(ballot, () => api.remove(`/ballots/${ballot.id}/choice`), button)) this.set({ choice: "", undone: true, said: t("vote.undone") });
  }

  reveal(event, button) {
    this.#once(() => this.#reveal(button));
  }

  async #reveal(button) {
    const { ballot, choice, revealed } = this.state;
    if (!choice || revealed) return;
    const found = await this.#of(ballot, async () => {
      const [told, comparison] = await Promise.all([
        api.post(`/ballots/${ballot.id}/reveal`),
        api.get(`/comparison?${this.sides}&limit=1`),
      ]);
      return { ...told, comparison, labels: sideLabels(comparison.before, comparison.after) };
    }, button);
    if (!found) return;
    const [first, second] = found.left === "before" ? found.labels : [...found.labels].reverse();
    this.set({ revealed: found, said: t("vote.revealed_text", { left: first, right: second }) });
  }

  next(event, button) {
    this.#once(() => this.#goOn(button));
  }

  #goOn(button) {
    const last = this.state.ballot.left_to_vote <= 1;
    return this.act(() => (last ? this.#end() : this.#next()), button);
  }

  /** Something about a ballot, which another tab may have voted on, or whose videos are gone: then the next one comes. */
  async #of(ballot, work, button) {
    const answer = await this.act(async () => (await work()) ?? true, button);
    const { error } = this.state;
    if (answer !== null || !error || this.state.ballot !== ballot) return answer;
    const gone = error.status === 404 || error.status === 410;
    if (!gone && error.code !== "voted_already") return null;
    const said = t(gone ? "vote.pair_gone" : "vote.voted_elsewhere");
    await this.#next();
    this.set({ error: this.state.error ?? { message: said }, said });
    return null;
  }

  openResults(event) {
    if (event.target.open) this.#loadResults();
  }
}

customElements.define("fg-vote", Vote);
