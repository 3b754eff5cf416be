// A copy of flash_grpo_studio/app/web/player/keys.js, made by `make comfyui-pack`; edit that file instead.
// Which key does what. Keys with Ctrl, Alt or Meta belong to the browser, and a field that is typed in gets them all.

import { element } from "./dom.js";
import { MODES } from "./state.js";

const ACTIONS = {
  k: "toggle",
  ",": "back",
  ".": "forward",
  "<": "backTen",
  ">": "forwardTen",
  i: "loopIn",
  o: "loopOut",
  "[": "slower",
  "]": "faster",
  s: "swap",
  z: "zoom",
  f: "full",
  "?": "help",
};
const HELP = [
  [["1", "–", "5"], "key_modes"],
  [["K"], "key_play"],
  [["Space"], "key_space"],
  [[",", "."], "key_step"],
  [["<", ">"], "key_leap"],
  [["I", "O"], "key_loop"],
  [["[", "]"], "key_speed"],
  [["S"], "key_swap"],
  [["Z"], "key_zoom"],
  [["F"], "key_full"],
  [["?"], "key_help"],
];
const PANS = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

const typedIn = (target) =>
  target instanceof HTMLElement && (target.isContentEditable || target.matches("select, textarea, input:not([type=range])"));
/** Space is a button's own, but one that is already pressed has nothing to do with it. */
const ownSpace = (target, mode) =>
  target instanceof HTMLElement && target.matches("button, a, summary") && !(mode === "flicker" && target.closest(".modes"));

/** Answer the keys that reach `host`; `view()` is the present state. Returns what a page may pass its own keys to. */
export function keys(host, stage, act, view) {
  const down = (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    // AltGr is Ctrl and Alt on some systems, and [ and ] need it on many keyboards.
    if ((event.ctrlKey || event.altKey || event.metaKey) && !event.getModifierState("AltGraph")) return;
    const target = event.composedPath()[0];
    if (typedIn(target) || act.asking()) return;
    if (pressed(event, target, stage, act, view())) event.preventDefault();
  };
  const release = () => act.peek(false);
  host.addEventListener("keydown", down);
  host.addEventListener("keyup", (event) => event.key === " " && release());
  host.addEventListener("focusout", release);
  return down;
}

function pressed(event, target, stage, act, view) {
  const { key } = event;
  if (key === " ") return space(event, target, act, view);
  const pan = PANS[key];
  if (pan && target === stage) return act.pan(...pan);
  const action = ACTIONS[key.length === 1 ? key.toLowerCase() : key];
  if (action) {
    const repeats = ["back", "forward", "backTen", "forwardTen"].includes(action);
    if (!event.repeat || repeats) act[action]();
    return true;
  }
  const place = "12345".indexOf(key);
  if (place < 0 || key.length !== 1 || view.blind) return false;
  act.mode(MODES[place]);
  return true;
}

function space(event, target, act, view) {
  if (ownSpace(target, view.mode)) return false;
  if (view.mode === "flicker") act.peek(true);
  else if (!event.repeat) act.toggle();
  return true;
}

/** The window that lists the keys. */
export function helpDialog() {
  const title = element("h2");
  const list = element("dl");
  const close = element("button", { type: "button", onclick: () => root.close() });
  const root = element("dialog", { "aria-labelledby": "keys" }, title, list, close);
  title.id = "keys";
  root.addEventListener("keydown", (event) => event.key === "?" && (root.close(), event.preventDefault()));
  const open = (view, words) => {
    title.textContent = words.say("keys");
    close.textContent = words.say("close");
    const hidden = view.blind ? ["key_modes", "key_swap"] : [];
    const rows = HELP.filter(([, name]) => !hidden.includes(name)).flatMap(([names, name]) => [
      element("dt", {}, names.map((text) => (text === "–" ? "–" : element("kbd", {}, text)))),
      element("dd", {}, words.say(name)),
    ]);
    list.replaceChildren(...rows);
    root.showModal();
  };
  return { root, open };
}
