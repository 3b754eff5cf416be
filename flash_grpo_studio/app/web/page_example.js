// A finished run that ships with the package: its real curves, videos and figures, before there is one of one's own.

import "./chart.js";
import { duration, moment, number } from "./format.js";
import { heldoutTable, pairFigure, playButton, playPairs, prefersStill } from "./home_pair.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

const FOLDER = "/web/example/";
const NUMERICS = ["grad_norm", "drift", "clip_fraction"];

class Example extends View {
  state = { example: null, playing: false };

  async start() {
    await this.act(async () => {
      const answer = await fetch(`${FOLDER}example.json`);
      this.set({ example: await answer.json(), playing: !prefersStill() });
    });
  }

  render() {
    const { example, error, playing } = this.state;
    return html`<div class="fg-stack"><div class="fg-row fg-spread"><h1>${t("home.example_title")}</h1>
        <a class="fg-button fg-primary" href="/new?preset=pocket">${t("home.own")}</a></div>
      <p class="fg-notice">${t("home.example_label")}</p> ${errorBox(error)}
      ${example ? this.#found(example, playing) : html`<p class="fg-muted">${t("home.loading")}</p>`}</div>`;
  }

  rendered() {
    const { example } = this.state;
    if (!example || this.drawn) return;
    this.drawn = true;
    for (const chart of this.querySelectorAll("fg-chart")) this.#draw(chart, example);
    playPairs(this, this.state.playing);
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

  #found(example, playing) {
    const goal = Object.keys(example.rewards).filter((name) => example.rewards[name]);
    const facts = [
      ["model", `${example.model} (${example.config.width} × ${example.config.height}, ${example.config.frames})`],
      ["preset", example.preset],
      ["updates", example.updates],
      ["time", duration(example.minutes * 60)],
      ["evaluations", number(example.nfe, 0)],
      ["made", moment(example.time)],
    ];
    const pair = (one, place) => {
      const notes = Object.fromEntries(
        ["before", "after"].map((side, index) => [side, goal.map((name) => `${name} ${number(one.scores[name][index])}`).join(", ")]),
      );
      const sources = { before: FOLDER + one.before, after: FOLDER + one.after };
      return html`<div class="fg-card">${pairFigure({ ...one, ...sources, key: `pair ${place}`, notes })}</div>`;
    };
    const chart = (name) => html`<div class="fg-card fg-chart-box" data-key="${name}"><h3>${name.replace("reward/", "")}
      ${goal.includes(name.replace("reward/", "")) ? html`<span class="fg-badge">${t("home.optimised")}</span>` : ""}</h3>
      <fg-chart data-own data-series="${name}" height="180"></fg-chart></div>`;
    const rewards = Object.keys(example.series).filter((name) => name.startsWith("reward/"));
    return html`<section><h2 id="fg-heldout">${t("home.heldout")}</h2><p>${t("home.example_result")}</p>
        ${heldoutTable("fg-heldout", example.heldout, example.rewards)}<p class="fg-small">${t("home.heldout_note")}</p></section>
      <section><div class="fg-row fg-spread"><h2>${t("home.videos")}</h2>${playButton(playing)}</div>
        <p>${t("home.videos_text")}</p><div class="fg-pairs">${example.pairs.map(pair)}</div></section>
      <section><h2>${t("home.curves")}</h2><p>${t("home.curves_text")} <a href="/help#curves">${t("home.curves_help")}</a></p>
        <div class="fg-columns">${rewards.map(chart)} ${NUMERICS.map(chart)}</div></section>
      <section class="fg-card"><h2>${t("home.facts")}</h2><dl class="fg-facts">${facts.map(
        ([name, value]) => html`<div><dt>${t(`home.fact.${name}`)}</dt><dd>${value}</dd></div>`,
      )}</dl><p>${t("home.again")}</p><pre>flash-grpo train --preset ${example.preset} --seed ${example.seed}</pre></section>`;
  }

  togglePair() {
    this.set({ playing: !this.state.playing });
    playPairs(this, this.state.playing);
  }
}

customElements.define("fg-example", Example);
