// Home: what runs, and where to begin.

import { html } from "./template.js";
import { t } from "./texts.js";
import { View } from "./view.js";

class Home extends View {
  render() {
    return html`<h1>${t("page.home")}</h1>`;
  }
}

customElements.define("fg-home", Home);
