// Entry of the pages: the words first, then the elements of this page, and Gradio's own scripts when these stand.

import "./shell.js";
import { loadTexts, t } from "./texts.js";
import { ready } from "./view.js";

const GRADIO_AFTER_MS = 2000;

const name = location.pathname.replace(/^\/|\/$/g, "") || "home";
await Promise.all([loadTexts(), import(`./page_${name}.js`)]);
document.title = `${t(`page.${name}`)} · Flash-GRPO Studio`;
ready.resolve();

/** Some thirty scripts for what stands below the page's own content, so that this never waits for them. */
function beginGradio() {
  const place = document.getElementById("fg-gradio");
  if (!place) return;
  place.replaceWith(Object.assign(document.createElement("script"), { type: "module", src: place.dataset.src }));
}

const whenIdle = window.requestIdleCallback ?? ((work) => work());
setTimeout(() => whenIdle(beginGradio), GRADIO_AFTER_MS);
