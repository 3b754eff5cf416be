import { html } from "./template.js";
import { t } from "./texts.js";
import { View } from "./view.js";

class Page extends View {
  render() {
    return html`<h1>${t("page.run")}</h1>`;
  }
}

customElements.define("fg-run", Page);
