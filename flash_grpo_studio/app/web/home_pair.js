// Two videos side by side, before and after alignment, that begin together and loop; and the rewards on prompts that
// were held out.

import { number, percent, signed } from "./format.js";
import { tableBox } from "./shell_parts.js";
import { html } from "./template.js";
import { t } from "./texts.js";

const SIGNS = { up: "▲", down: "▼", same: "◆" };

export function prefersStill() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/**
 * A pair {key, prompt, seed, before, after} (addresses of videos) with `notes` below each side, and a `playButton` where
 * the pair has one of its own.
 */
export function pairFigure({ key, prompt, seed, before, after, notes = {} }, playButton = "") {
  const side = (name, source) => html`<div><p class="fg-side">${t(`home.side.${name}`)}</p>
    <video class="fg-video fg-pixel" src="${source}" muted loop playsinline preload="auto" aria-label="${t("home.video", {
      side: t(`home.side.${name}`),
      prompt,
    })}"></video>${notes[name] ? html`<p class="fg-small fg-note">${notes[name]}</p>` : ""}</div>`;
  return html`<figure class="fg-pair" data-key="${key}">
    <div class="fg-sides">${side("before", before)} ${side("after", after)}</div>
    <figcaption class="fg-row fg-spread"><span class="fg-small">“${prompt}” · ${t("home.seed", { seed })}</span>
      ${playButton}</figcaption></figure>`;
}

/** A button that plays or stops; the view answers it by `togglePair`. */
export function playButton(playing) {
  return html`<button class="fg-button" data-on="click:togglePair">${t(playing ? "home.pause" : "home.play")}</button>`;
}

/** Play or stop both videos of each pair in `root`, from the same frame. */
export async function playPairs(root, playing) {
  for (const pair of root.querySelectorAll(".fg-pair")) {
    const videos = [...pair.querySelectorAll("video")];
    for (const video of videos) {
      if (playing && !video.paused) continue;
      video.pause();
      video.currentTime = 0;
    }
    // A page that is left meanwhile, or a browser that saves energy, refuses; the button still works.
    if (playing) await Promise.all(videos.filter((video) => video.paused).map((video) => video.play().catch(() => {})));
  }
}

function direction({ gain, ci95 }) {
  if (ci95[0] > 0) return "up";
  return ci95[1] < 0 ? "down" : "same";
}

/** A reward's change as a sentence: before, after, the difference and its 95 % interval. */
export function changeOf(name, found, optimised) {
  const way = direction(found);
  const badge = optimised ? html`<span class="fg-badge">${t("home.optimised")}</span>` : "";
  return html`<span class="fg-change"><strong>${name}</strong> ${badge}
    <span>${number(found.before)} → ${number(found.after)}</span>
    <span class="fg-way-${way}"><span aria-hidden="true">${SIGNS[way]}</span> ${signed(found.gain)}
      <span class="fg-small">[${signed(found.ci95[0])}, ${signed(found.ci95[1])}]</span></span>
    <span class="fg-hidden">${t(`home.way.${way}`)}</span></span>`;
}

/** The table of all rewards on held-out prompts, below a heading with the id `labelledby`; `weights` tells the goal. */
export function heldoutTable(labelledby, heldout, weights) {
  const rows = Object.entries(heldout).map(([name, found]) => {
    const way = direction(found);
    return html`<tr><th scope="row"><a href="/help#reward-${name}">${name}</a>
        <span class="fg-badge">${t(weights[name] ? "home.optimised" : "home.watched")}</span></th>
      <td>${number(found.before)}</td><td>${number(found.after)}</td>
      <td class="fg-way-${way}"><span aria-hidden="true">${SIGNS[way]}</span> ${signed(found.gain)}
        <span class="fg-hidden">${t(`home.way.${way}`)}</span></td>
      <td>[${signed(found.ci95[0])}, ${signed(found.ci95[1])}]</td>
      <td>${found.win_rate === undefined ? "–" : percent(found.win_rate)}</td></tr>`;
  });
  const columns = ["reward", "before", "after", "gain", "interval", "wins"];
  return tableBox(labelledby, columns.map((name) => t(`home.column.${name}`)), rows, "fg-figures");
}
