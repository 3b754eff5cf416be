// The looks of what stands in the nodes; colours are those of ComfyUI's palette.

const CSS = `
.flash-grpo { color-scheme: light; box-sizing: border-box; overflow: auto; font: 13px/1.45 system-ui, sans-serif;
  color: var(--fg-color); --fg-ground: var(--comfy-menu-bg); --fg-raised: var(--comfy-input-bg); --fg-text: var(--fg-color);
  --fg-muted: var(--descrip-text); --fg-line: var(--border-color); }
.dark-theme .flash-grpo { color-scheme: dark; }
.flash-grpo [hidden] { display: none; }
.flash-grpo p { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; user-select: text; }
.flash-grpo-note { padding: 6px 8px; border-radius: 6px; background: var(--comfy-input-bg); color: var(--input-text); }
.flash-grpo-note progress { width: 100%; }
.flash-grpo .flash-grpo-failed { border-left: 4px solid var(--error-text); padding-left: 8px; }
.flash-grpo-compare { display: flex; flex-direction: column; gap: 6px; padding: 8px; border-radius: 6px; background: var(--fg-ground); }
.flash-grpo-compare > * { flex: none; }
.lg-node-widget .flash-grpo-compare { min-height: 620px; } /* where ComfyUI draws nodes by HTML, which gives no height */
.flash-grpo-compare fg-player { flex: 1 1 0; min-height: 240px; font-size: 12px; --fg-target: 30px; }
.flash-grpo-compare a { color: inherit; overflow-wrap: anywhere; }
.flash-grpo-choice { display: flex; gap: 8px; align-items: center; overflow-wrap: anywhere; }
.flash-grpo-compare select { flex: 1; min-width: 0; min-height: 32px; color: inherit; background: var(--comfy-input-bg);
  border: 1px solid var(--border-color); border-radius: 6px; font: inherit; }
.flash-grpo-card { padding: 12px 16px; border: 1px solid var(--border-color); border-radius: 6px; background: var(--comfy-input-bg); }
.flash-grpo-card strong { display: block; margin-bottom: 4px; }
`;

/** Once for the page. */
export function dress() {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(CSS);
  document.adoptedStyleSheets.push(sheet);
}
