// The page for an address that is none, with a way back; it stands alone, as Gradio knows only the pages there are.

import "./shell.js";
import { html } from "./template.js";
import { loadTexts, t } from "./texts.js";
import { ready, View } from "./view.js";

class Missing extends View {
  render() {
    return html`<div class="fg-empty"><h1>${t("shell.missing_title")}</h1><p>${t("shell.missing_text")}</p>
      <p><code>${location.pathname}</code></p>
      <div class="fg-row fg-foot"><a class="fg-button fg-primary" href="/">${t("shell.missing_home")}</a>
        <a class="fg-button" href="/runs">${t("page.runs")}</a> <a class="fg-button" href="/help">${t("page.help")}</a></div></div>`;
  }
}

customElements.define("fg-missing", Missing);
await loadTexts();
ready.resolve();
