// A copy of flash_grpo_studio/app/web/player/style.js, made by `make comfyui-pack`; edit that file instead.
// The player's looks. Colours come from the page's variables; without them they follow its light or dark scheme.

const CSS = `
:host { display: block; container-type: inline-size; color: var(--text); font: 1rem/1.5 system-ui, sans-serif;
  --text: var(--fg-text, light-dark(#1b1f24, #e8ebef)); --muted: var(--fg-muted, light-dark(#57606a, #a5adb8));
  --ground: var(--fg-ground, light-dark(#ffffff, #14171c)); --raised: var(--fg-raised, light-dark(#f6f7f9, #1d2229));
  --line: var(--fg-line, light-dark(#d0d7de, #38404a)); --accent: var(--fg-accent, light-dark(#0b5cad, #7db8f5));
  --on-accent: var(--fg-on-accent, light-dark(#ffffff, #0b1520)); --good: var(--fg-good, light-dark(#116329, #7ee2a0));
  --bad: var(--fg-bad, light-dark(#b3261e, #ff9b93)); --warn: var(--fg-warn, light-dark(#7a4d00, #f2c66b));
  --warn-ground: var(--fg-warn-ground, light-dark(#fff4d6, #382b0d)); --focus: var(--fg-focus, light-dark(#0b5cad, #a9d1fb));
  --target: var(--fg-target, 44px); }
:host([fit]) { overflow: auto; }
:host([hidden]) { display: none; } :host([facts="below"]) .head { order: 1; }
* { box-sizing: border-box; }
[hidden] { display: none !important; }
.root { display: grid; grid-template-columns: minmax(0, 1fr); gap: .5rem; background: var(--ground); }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; border-radius: 4px; }
.quiet { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
p { margin: 0; }

.head { display: flex; flex-wrap: wrap; gap: .35rem .75rem; align-items: center; min-width: 0; touch-action: pan-y; }
.prompt { flex: 1 1 16rem; min-width: 0; overflow-wrap: anywhere; display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; }
.chip { border: 1px solid var(--line); border-radius: 1rem; padding: .15rem .7rem; font-size: .875rem; overflow-wrap: anywhere; }
.chip.same::before { content: "= "; color: var(--good); font-weight: 700; } .chip.differs { background: var(--warn-ground); color: var(--warn); border-color: currentColor; border-radius: .5rem; }
.chip.differs::before { content: "≠ "; font-weight: 700; }
.badges { flex: 1 1 100%; display: flex; flex-wrap: wrap; gap: .35rem; list-style: none; margin: 0; padding: 0; }
.badges li { display: flex; flex-wrap: wrap; gap: 0 .5rem; align-items: baseline; border: 1px solid var(--line); border-radius: .5rem; padding: .2rem .6rem; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; min-width: 0; background: var(--raised); }
.badges .optimised { border-left: 4px solid var(--accent); } .mark { font-size: .8125rem; color: var(--muted); } .optimised .mark { color: var(--accent); font-weight: 600; }
.up { color: var(--good); } .down { color: var(--bad); } .level { color: var(--muted); }
.notice { background: var(--warn-ground); color: var(--warn); border-radius: .5rem; padding: .35rem .7rem; font-size: .9rem; } .notices { display: grid; gap: .25rem; }

.stage { --tall: min(64vh, 60rem); --ratio: 1.7333; --columns: 1; position: relative; width: 100%; margin-inline: auto; background: #000; overflow: hidden; border-radius: .5rem;
  max-width: calc(var(--tall) * var(--ratio) * var(--columns)); touch-action: pan-y; user-select: none; -webkit-user-select: none; -webkit-touch-callout: none; contain: paint; }
:host([fit]) .stage { --tall: calc(var(--fitted, 12rem) / var(--rows, 1)); }
.stage[data-layout="side"] { --columns: 2; } .stage[data-zoomed] { touch-action: none; cursor: grab; } .stage:focus-visible { outline-offset: 2px; border-radius: .5rem; }
.stage[data-mode="wipe"] { cursor: col-resize; }
.panes { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 2px; }
.stage[data-layout="over"] .panes { grid-template-columns: minmax(0, 1fr); isolation: isolate; } .stage[data-layout="over"] .pane { grid-area: 1 / 1; }
.pane { position: relative; overflow: hidden; aspect-ratio: var(--ratio); background: #000; min-width: 0; }
.stage[data-layout="side"][data-swapped] .first { order: 2; }
.content { position: absolute; inset: 0; transform: translate(var(--x), var(--y)) scale(var(--scale)); }
.pane video { position: absolute; width: 1px; height: 1px; opacity: 0; pointer-events: none; }
canvas { position: absolute; inset: 0; width: 100%; height: 100%; object-fit: contain; display: block; } .stage[data-pixelated] canvas { image-rendering: pixelated; }
.stage[data-mode="wipe"] .second { clip-path: inset(0 0 0 var(--wipe)); } .stage[data-mode="wipe"][data-swapped] .second { clip-path: inset(0 calc(100% - var(--wipe)) 0 0); }
.stage[data-mode="flicker"] .second { opacity: 0; } .stage[data-mode="flicker"][data-swapped]:not([data-peek]) .second, .stage[data-mode="flicker"][data-peek]:not([data-swapped]) .second { opacity: 1; }
.stage[data-mode="onion"] .second { opacity: var(--onion); }
.stage[data-mode="difference"] .panes { filter: brightness(var(--gain)); } .stage[data-mode="difference"] .second { mix-blend-mode: difference; }
.divider { display: none; position: absolute; top: 0; bottom: 0; left: var(--wipe); width: 2px; margin-left: -1px; background: #fff; box-shadow: 0 0 0 1px rgb(0 0 0 / .5); pointer-events: none; }
.stage[data-mode="wipe"] .divider { display: block; } .divider span { position: absolute; top: 50%; left: 50%; width: 44px; height: 44px; margin: -22px; border-radius: 50%; border: 2px solid #fff; background: rgb(0 0 0 / .35); box-shadow: 0 0 0 1px rgb(0 0 0 / .5); }
.divider span::after { content: "◂ ▸"; color: #fff; font: 700 .9rem/40px system-ui, sans-serif; display: block; text-align: center; }
.label { position: absolute; top: .4rem; left: .4rem; max-width: calc(100% - .8rem); padding: .1rem .5rem; border-radius: .35rem; background: rgb(0 0 0 / .72); color: #fff; font-size: .875rem; font-weight: 600; pointer-events: none; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.label.middle { left: 50%; transform: translateX(-50%); } :is(.stage[data-mode="difference"], .stage[data-mode="onion"]) .pane .label { display: none; }
.stage[data-mode="wipe"] .label { max-width: calc(50% - .6rem); } .stage[data-mode="wipe"]:not([data-swapped]) .second .label, .stage[data-mode="wipe"][data-swapped] .first .label { left: auto; right: .4rem; }
.cover { position: absolute; inset: 0; display: grid; place-content: center; justify-items: center; gap: .6rem; padding: 1rem; text-align: center; color: #fff; background: rgb(0 0 0 / .8); overflow: auto; }
.cover.failed { background: #24282e; padding-top: 2.4rem; } .cover progress { width: min(14rem, 100%); accent-color: #7db8f5; }

button, select { font: inherit; color: var(--text); background: var(--ground); border: 1px solid var(--line); border-radius: .5rem; min-height: var(--target); min-width: var(--target); padding: .3rem .6rem; cursor: pointer; }
button { display: inline-flex; align-items: center; justify-content: center; touch-action: manipulation; } button:hover:not(:disabled) { border-color: var(--accent); } button:disabled, select:disabled { opacity: .45; cursor: default; }
button[aria-pressed="true"] { background: var(--accent); color: var(--on-accent); border-color: var(--accent); } svg { width: 22px; height: 22px; fill: currentColor; }
.bar, .row { display: flex; flex-wrap: wrap; gap: .25rem; align-items: center; min-width: 0; } .row { gap: .35rem .75rem; }
input[type="range"] { min-height: var(--target); min-width: 0; margin: 0; accent-color: var(--accent); } .seek { display: flex; align-items: center; gap: .75rem; } .seek input { flex: 1; }
.readout { contain: strict; flex: none; width: 9ch; height: 1.5em; text-align: right; font-variant-numeric: tabular-nums; font-size: .9rem; white-space: nowrap; }
label { display: inline-flex; align-items: center; gap: .5rem; min-height: var(--target); font-size: .9rem; } .own { flex: 1 1 14rem; } .own label { flex: 1; } .own input { flex: 1; } .loop { font-size: .9rem; color: var(--muted); }
.held { touch-action: none; user-select: none; -webkit-user-select: none; }
dialog { color: var(--text); background: var(--ground); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem 1.25rem; max-width: min(34rem, calc(100vw - 2rem)); } dialog::backdrop { background: rgb(0 0 0 / .5); }
dialog h2 { margin: 0 0 .6rem; font-size: 1.1rem; } dl { display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1rem; margin: 0 0 1rem; } dd { margin: 0; } kbd { font: .9rem ui-monospace, monospace; border: 1px solid var(--line); border-bottom-width: 2px; border-radius: 4px; padding: 0 .35rem; }
.root.filled { position: fixed; inset: 0; z-index: 1000; } :host(:fullscreen) .root, .root.filled { height: 100%; align-content: center; padding: .5rem; overflow: auto; }
:host(:fullscreen) .stage, .root.filled .stage { --tall: calc(100vh - 15rem); }
@container (max-width: 34rem) {
  .stage[data-layout="side"][data-wide]:not([data-blind]) { --columns: 1; } .stage[data-layout="side"][data-wide]:not([data-blind]) .panes { grid-template-columns: minmax(0, 1fr); }
  :host([fit]) .stage[data-layout="side"][data-wide]:not([data-blind]) { --rows: 2; }
  .modes button { flex: 1 1 auto; } .seek { gap: .4rem; }
}
@media (forced-colors: active) { .chip, .label { border: 1px solid; } button[aria-pressed="true"] { forced-color-adjust: none; } }
`;

/** Give a shadow root the looks; one sheet serves all players of a page. */
let sheet = null;
export function dress(root) {
  if (!sheet) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(CSS);
  }
  root.adoptedStyleSheets = [sheet];
}
