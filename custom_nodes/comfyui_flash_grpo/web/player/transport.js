// A copy of flash_grpo_studio/app/web/player/transport.js, made by `make comfyui-pack`; edit that file instead.
// Play, step, loop, speed, and what else acts on both videos at once.

import { element, icon, toolbar } from "./dom.js";
import { SPEEDS } from "./state.js";

const TOLD_MS = 100; // a number that changes faster is not read, and each change costs a layout
const BUTTONS = [
  ["play", "toggle", "K"],
  ["backTen", "backTen", "<"],
  ["back", "back", ","],
  ["forward", "forward", "."],
  ["forwardTen", "forwardTen", ">"],
  ["loopIn", "loopIn", "I"],
  ["loopOut", "loopOut", "O"],
  ["loopClear", "loopClear", null],
  ["swap", "swap", "S"],
  ["zoom", "zoom", "Z"],
  ["full", "full", "F"],
];

export function transport(act) {
  const bar = buttonBar(act);
  const seek = seekBar(act);
  const speed = speedChoice(act);
  const loop = element("span", { className: "loop" });
  const root = [seek.root, element("div", { className: "row" }, bar.root, speed.root, loop)];
  const render = (view, words) => {
    bar.render(view, words);
    seek.render(view, words);
    speed.render(view, words);
    const [first, last] = view.loop;
    loop.hidden = !view.looped;
    loop.textContent = words.say("looped", { first, last });
  };
  return { root, render, tick: seek.tick };
}

function buttonBar(act) {
  const made = BUTTONS.map(([name, action, key]) => {
    const button = element("button", { type: "button", onclick: () => act[action]() }, icon(name));
    if (key) button.setAttribute("aria-keyshortcuts", key);
    return button;
  });
  const help = element("button", { type: "button", "aria-keyshortcuts": "?", onclick: () => act.help() }, "?");
  const root = toolbar([...made, help]);
  const tell = (button, text, key) => {
    button.setAttribute("aria-label", text);
    button.title = key ? `${text} (${key})` : text;
  };
  let playing = null;
  const render = (view, words) => {
    root.setAttribute("aria-label", words.say("playback"));
    BUTTONS.forEach(([name, , key], place) => {
      const button = made[place];
      tell(button, words.say(name === "play" && view.playing ? "pause" : name), key);
      button.disabled = !view.open && name !== "full" && name !== "swap";
    });
    made[7].hidden = !view.looped;
    made[8].hidden = view.blind;
    made[9].setAttribute("aria-pressed", String(view.zoom.scale > 1));
    tell(help, words.say("help"), "?");
    if (playing !== view.playing) made[0].replaceChildren(icon(view.playing ? "pause" : "play"));
    playing = view.playing;
    root.settle();
  };
  return { root, render };
}

function seekBar(act) {
  const input = element("input", { type: "range", min: 0, step: 1, oninput: () => act.frame(Number(input.value)) });
  const readout = element("output", { className: "readout" });
  const text = document.createTextNode("");
  readout.append(text);
  let [last, playing, say] = [0, false, (frame) => String(frame)];
  const put = (frame) => {
    input.value = String(frame);
    text.data = `${frame} / ${last}`;
  };
  let told = 0;
  const tick = (frame) => {
    const now = performance.now();
    if (playing && now - told < TOLD_MS) return;
    told = now;
    put(frame);
    // A value that changes by itself is not read out.
    if (!playing) input.setAttribute("aria-valuetext", say(frame));
  };
  const render = (view, words) => {
    last = Math.max(0, view.frames - 1);
    playing = view.playing;
    say = (frame) => words.say("frame_of", { frame, last });
    input.max = String(last);
    input.disabled = !view.open;
    input.setAttribute("aria-label", words.say("frame"));
    readout.setAttribute("aria-hidden", "true");
    put(view.frame);
    if (!playing) input.setAttribute("aria-valuetext", say(view.frame));
  };
  return { root: element("div", { className: "seek" }, input, readout), render, tick };
}

function speedChoice(act) {
  const options = SPEEDS.map((speed) => element("option", { value: String(speed) }, `${speed} ×`));
  const other = element("option", { hidden: true });
  const select = element("select", { onchange: () => act.speed(Number(select.value)) }, options, other);
  const name = element("span");
  const render = (view, words) => {
    name.textContent = words.say("speed");
    select.title = `${words.say("slower")} ([), ${words.say("faster")} (])`;
    other.hidden = SPEEDS.includes(view.speed);
    [other.value, other.textContent] = other.hidden ? ["", ""] : [String(view.speed), `${view.speed} ×`];
    select.value = String(view.speed);
  };
  return { root: element("label", {}, name, select), render };
}
