import { html } from "./template.js";
import { t } from "./texts.js";
import { View } from "./view.js";

class Page extends View {
  render() {
    return html`<h1>${t("page.runs")}</h1>`;
  }
}

customElements.define("fg-runs", Page);
