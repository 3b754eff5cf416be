// A copy of flash_grpo_studio/app/web/player/badges.js, made by `make comfyui-pack`; edit that file instead.
// Above the pictures: the prompt, how the two were made, and what each reward says.

import { element } from "./dom.js";
import { figure, signedFigure } from "./words.js";

const SIGNS = { up: "▲", down: "▼", level: "◆" };
const MEANINGS = { up: "better", down: "worse", level: "equal" };

export function badges() {
  const root = element("div", { className: "head" });
  return { root, render: (pair, words) => root.replaceChildren(...(pair.blind ? [] : parts(pair, words))) };
}

function parts(pair, words) {
  const found = [];
  if (pair.prompt) {
    const seed = pair.seed === undefined || pair.seed === null ? "" : ` · ${words.say("seed", { seed: pair.seed })}`;
    found.push(element("p", { className: "prompt" }, `“${pair.prompt}”${seed}`));
  }
  const comparable = pair.same !== false && !pair.differences.length;
  if (pair.same === true && comparable) found.push(element("span", { className: "chip same" }, words.say("same")));
  if (!comparable) {
    const list = pair.differences.join("; ") || "?";
    found.push(element("span", { className: "chip differs" }, `${words.say("differs", { list })}`));
  }
  if (pair.rewards.length) {
    const ordered = [...pair.rewards].sort((one, other) => Number(Boolean(other.optimised)) - Number(Boolean(one.optimised)));
    const rows = ordered.map((reward) => badge(reward, comparable, words));
    found.push(element("ul", { className: "badges", "aria-label": words.say("rewards") }, rows));
    if (!comparable) found.push(element("p", { className: "mark" }, words.say("no_figures")));
  }
  return found;
}

const known = (value) => typeof value === "number" && Number.isFinite(value);

function badge({ name, before, after, optimised }, comparable, words) {
  const both = known(before) && known(after);
  return element(
    "li",
    { className: optimised ? "optimised" : "watched" },
    element("strong", {}, String(name)),
    element("span", { className: "mark" }, words.say(optimised ? "optimised" : "watched")),
    element("span", {}, `${figure(before ?? NaN)} → ${figure(after ?? NaN)}`),
    both && comparable ? difference(after - before, words) : null,
  );
}

function difference(value, words) {
  const text = signedFigure(value);
  const way = text === "±0" ? "level" : value > 0 ? "up" : "down";
  const sign = element("span", { "aria-hidden": "true" }, SIGNS[way]);
  const meaning = element("span", { className: "quiet" }, ` ${words.say(MEANINGS[way])}`);
  return element("span", { className: way }, sign, ` ${text}`, meaning);
}
