import { html } from "./template.js";
import { t } from "./texts.js";
import { View } from "./view.js";

class Page extends View {
  render() {
    return html`<h1>${t("page.help")}</h1>`;
  }
}

customElements.define("fg-help", Page);
