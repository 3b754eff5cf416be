// A finished run that ships with the package: its real curves, videos and figures, before there is one of one's own.

import "./chart.js";
import "./player/player.js";
import { duration, moment, number } from "./format.js";
import { heldoutTable } from "./home_pair.js";
import { pageKeys } from "./player_keys.js";
import { showPair, speak } from "./player_words.js";
import { choices } from "./shell_parts.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

const FOLDER = "/web/example/";
const NUMERICS = ["grad_norm", "drift", "clip_fraction"];
const STEPS = { n: 1, p: -1 };

class Example extends View {
  state = { example: null, place: 0 };

  async start() {
    this.onStop(pageKeys(this, (event) => this.#move(STEPS[event.key.toLowerCase()] ?? 0)));
    this.addEventListener("fg-player-next", () => this.#move(1));
    this.addEventListener("fg-player-previous", () => this.#move(-1));
    await this.act(async () => {
      const answer = await fetch(`${FOLDER}example.json`);
      this.set({ example: await answer.json() });
    });
  }

  render() {
    const { example, error } = this.state;
    return html`<div class="fg-stack"><div class="fg-row fg-spread"><h1>${t("home.example_title")}</h1>
        <a class="fg-button fg-primary" href="/new?preset=pocket">${t("home.own")}</a></div>
      <p class="fg-notice">${t("home.example_label")}</p> ${errorBox(error)}
      ${example ? this.#found(example) : html`<p class="fg-muted">${t("home.loading")}</p>`}</div>`;
  }

  rendered() {
    const { example, place } = this.state;
    if (!example) return;
    if (place !== this.shown) this.#play(example, place);
    if (this.drawn) return;
    this.drawn = true;
    for (const chart of this.querySelectorAll("fg-chart")) this.#draw(chart, example);
  }

  #play({ pairs, rewards, config: { fps, frames } }, place) {
    const player = this.querySelector("fg-player");
    if (this.shown === undefined) speak(player);
    this.shown = place;
    this.querySelector("#fg-prompt").value = String(place);
    const { prompt, seed, before, after, scores } = pairs[place];
    const figures = Object.entries(scores).map(([name, [old, fresh]]) => [name, { before: old, after: fresh }]);
    const pair = { prompt, seed, fps, frames, before: { url: FOLDER + before }, after: { url: FOLDER + after } };
    const told = Object.keys(scores).map((name) => ({ name, optimised: Boolean(rewards[name]) }));
    const labels = [t("home.side.before"), t("home.side.after")];
    showPair(player, { ...pair, scores: Object.fromEntries(figures), differences: [] }, labels, { rewards: told, differences: [] });
  }

  #draw(chart, example) {
    const name = chart.dataset.series;
    const label = name.replace("reward/", "");
    const curve = example.series[name];
    const lines = [{ name: t("home.curve.training"), ...curve }];
    if (name.startsWith("reward/")) {
      const seen = example.evaluations.filter((found) => found.split === "heldout" && found.rewards[label]);
      lines.push({
        name: t("home.curve.heldout"),
        update: seen.map((found) => found.update),
        value: seen.map((found) => found.rewards[label].mean),
        low: seen.map((found) => found.rewards[label].ci95[0]),
        high: seen.map((found) => found.rewards[label].ci95[1]),
        points: true,
      });
    }
    chart.show(lines, { label });
  }

  #found(example) {
    const goal = Object.keys(example.rewards).filter((name) => example.rewards[name]);
    const facts = [
      ["model", `${example.model} (${example.config.width} × ${example.config.height}, ${example.config.frames})`],
      ["preset", example.preset],
      ["updates", example.updates],
      ["time", duration(example.minutes * 60)],
      ["evaluations", number(example.nfe, 0)],
      ["made", moment(example.time)],
    ];
    const chart = (name) => html`<div class="fg-card fg-chart-box" data-key="${name}"><h3>${name.replace("reward/", "")}
      ${goal.includes(name.replace("reward/", "")) ? html`<span class="fg-badge">${t("home.optimised")}</span>` : ""}</h3>
      <fg-chart data-own data-series="${name}" height="180"></fg-chart></div>`;
    const rewards = Object.keys(example.series).filter((name) => name.startsWith("reward/"));
    return html`<section><h2>${t("home.videos")}</h2><p>${t("home.videos_text")}</p>
        <div class="fg-example-player"><fg-player facts="below" data-own data-key="player"></fg-player>${this.#prompts(example.pairs)}</div></section>
      <section><h2 id="fg-heldout">${t("home.heldout")}</h2><p>${t("home.example_result")}</p>
        ${heldoutTable("fg-heldout", example.heldout, example.rewards)}<p class="fg-small">${t("home.heldout_note")}</p></section>
      <section><h2>${t("home.curves")}</h2><p>${t("home.curves_text")} <a href="/help#curves">${t("home.curves_help")}</a></p>
        <div class="fg-columns">${rewards.map(chart)} ${NUMERICS.map(chart)}</div></section>
      <section class="fg-card"><h2>${t("home.facts")}</h2><dl class="fg-facts">${facts.map(
        ([name, value]) => html`<div><dt>${t(`home.fact.${name}`)}</dt><dd>${value}</dd></div>`,
      )}</dl><p>${t("home.again")}</p><pre>flash-grpo train --preset ${example.preset} --seed ${example.seed}</pre></section>`;
  }

  #prompts(pairs) {
    const { place } = this.state;
    const step = (key, name, sign, off) => html`<button type="button" class="fg-button" data-on="click:${name}" ${off ? html`disabled` : ""}>
      ${t(key)} <kbd aria-hidden="true">${sign}</kbd></button>`;
    return html`<div class="fg-row fg-spread fg-pair-steps"><label class="fg-grow"><span class="fg-hidden">${t("compare.prompt")}</span>
        <select id="fg-prompt" data-on="change:choose">${choices(pairs.map((_, at) => at), place, (at) => pairs[at].prompt)}</select></label>
      <span class="fg-row">${step("compare.previous", "previous", "P", !place)} ${step("compare.next", "next", "N", place === pairs.length - 1)}</span></div>`;
  }

  choose(event, select) {
    this.set({ place: Number(select.value) });
  }

  #move(step) {
    const next = this.state.place + step;
    if (step && this.state.example?.pairs[next]) this.set({ place: next });
  }

  next() {
    this.#move(1);
  }

  previous() {
    this.#move(-1);
  }
}

customElements.define("fg-example", Example);
