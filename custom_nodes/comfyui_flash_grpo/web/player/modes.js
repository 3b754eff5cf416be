// A copy of flash_grpo_studio/app/web/player/modes.js, made by `make comfyui-pack`; edit that file instead.
// Choosing one of the five ways to compare, and the controls each of them has of its own.

import { element, toolbar } from "./dom.js";
import { GAINS, MODES } from "./state.js";

/** A row: the modes, and the controls of the chosen one. */
export function modes(act) {
  const buttons = MODES.map((mode, place) =>
    element("button", {
      type: "button",
      "aria-keyshortcuts": String(place + 1),
      onclick: () => act.mode(mode),
    }),
  );
  const bar = toolbar(buttons);
  bar.classList.add("modes");
  const own = controls(act);
  const render = (view, words) => {
    bar.setAttribute("aria-label", words.say("modes"));
    bar.hidden = view.blind;
    MODES.forEach((mode, place) => {
      buttons[place].textContent = words.say(`mode_${mode}`);
      buttons[place].setAttribute("aria-pressed", String(view.mode === mode));
      buttons[place].title = `${words.say(`mode_${mode}`)} (${place + 1})`;
    });
    own.render(view, words);
  };
  return { root: element("div", { className: "row ways" }, bar, own.root), render };
}

function controls(act) {
  const wipe = slider((value) => act.wipe(value));
  const onion = slider((value) => act.onion(value));
  const gains = GAINS.map((gain) => element("button", { type: "button", onclick: () => act.gain(gain) }, `× ${gain}`));
  const gain = toolbar(gains);
  const gainName = element("span");
  const hold = holdButton(act);
  const boxes = {
    wipe: wipe.root,
    onion: onion.root,
    flicker: hold,
    difference: element("div", { className: "row" }, gainName, gain),
  };
  const root = element("div", { className: "row own" }, Object.values(boxes));
  const render = (view, words) => {
    const [before, after] = view.sides.map((side) => side.label);
    const left = view.swapped ? after : before;
    const other = view.swapped ? before : after;
    for (const [mode, box] of Object.entries(boxes)) box.hidden = mode !== view.mode;
    wipe.render(view.wipe, words.say("divider"), words.say("divider_at", { left, percent: Math.round(view.wipe) }));
    onion.render(view.onion, words.say("blend", { side: after }), `${Math.round(view.onion)} %`);
    gainName.textContent = words.say("gain");
    gain.setAttribute("aria-label", words.say("gain"));
    GAINS.forEach((value, place) => gains[place].setAttribute("aria-pressed", String(value === view.gain)));
    hold.textContent = words.say("hold", { side: other });
    hold.setAttribute("aria-pressed", String(view.peek));
  };
  return { root, render };
}

function slider(heard) {
  const name = element("span");
  const input = element("input", { type: "range", min: 0, max: 100, step: 1, oninput: () => heard(Number(input.value)) });
  const render = (value, label, text) => {
    name.textContent = label;
    if (Number(input.value) !== Math.round(value)) input.value = String(Math.round(value));
    input.setAttribute("aria-valuetext", text);
  };
  return { root: element("label", {}, name, input), render };
}

/** Pressed as long as a finger or key is on it. */
function holdButton(act) {
  const button = element("button", { type: "button", className: "held" });
  const press = (event) => {
    if (event.button) return;
    button.setPointerCapture(event.pointerId);
    act.peek(true);
  };
  button.addEventListener("pointerdown", press);
  for (const type of ["pointerup", "pointercancel", "lostpointercapture"]) {
    button.addEventListener(type, () => act.peek(false));
  }
  button.addEventListener("contextmenu", (event) => event.preventDefault());
  // A click that no pointer made comes from Enter or an assistive technology, which cannot hold.
  button.addEventListener("click", (event) => event.detail === 0 && act.peek(button.getAttribute("aria-pressed") !== "true"));
  return button;
}
