// Settings: how the studio looks, tokens for programs, one's password, and who may log in.

import { api } from "./api.js";
import { ago, moment } from "./format.js";
import { chooseTheme, remember, THEMES, themeChosen } from "./shell.js";
import { confirmed } from "./shell_confirm.js";
import "./settings_price.js";
import { choices, tableBox } from "./shell_parts.js";
import { html } from "./template.js";
import { chooseLanguage, currentLanguage, LANGUAGES, t } from "./texts.js";
import { errorBox, View } from "./view.js";

const SCOPES = ["read", "write", "admin"];
const DAYS = [7, 30, 90, 365, ""];
const ROLES = ["viewer", "creator", "admin"];

class Settings extends View {
  state = { me: null, tokens: [], users: null, made: null, copied: false, said: "", health: null, fields: {} };

  async start() {
    await this.act(() => this.#load());
  }

  async #load() {
    const [me, health, { tokens }] = await Promise.all([api.get("/me"), api.get("/health"), api.get("/tokens")]);
    const users = me.scopes.includes("admin") ? (await api.get("/users")).users : null;
    this.set({ me, health, tokens, users });
  }

  render() {
    const { me, error, said, users } = this.state;
    return html`<div class="fg-stack"><h1>${t("page.settings")}</h1> ${errorBox(error)}
      <p class="fg-hidden" role="status">${said}</p>
      <div class="fg-columns">${this.#looks()} <fg-price data-own data-key="price"></fg-price> ${me?.login_needed ? this.#password() : ""}</div>
      ${me ? html`${this.#tokens()} ${this.#hub(me)}` : html`<p class="fg-muted">${t("settings.loading")}</p>`}
      ${me && users ? this.#users() : ""} ${this.#about()}</div>`;
  }

  rendered() {
    for (const select of this.querySelectorAll("#fg-own-theme")) select.value = themeChosen();
  }

  #looks() {
    const theme = choices(THEMES, themeChosen(), (name) => t(`theme.${name}`));
    const language = choices(Object.keys(LANGUAGES), currentLanguage(), (name) => LANGUAGES[name]);
    return html`<section class="fg-card" aria-labelledby="fg-looks"><h2 id="fg-looks">${t("settings.looks")}</h2>
      <label class="fg-field"><span>${t("shell.language")}</span>
        <select id="fg-own-language" data-on="change:language">${language}</select></label>
      <label class="fg-field"><span>${t("shell.theme")}</span>
        <select id="fg-own-theme" data-on="change:theme">${theme}</select></label>
      <p class="fg-small">${t("settings.looks_note")}</p></section>`;
  }

  #password() {
    const field = (name, autocomplete, least) => html`<label class="fg-field"><span>${t(`settings.${name}`)}</span>
      <input name="${name}" type="password" autocomplete="${autocomplete}" minlength="${least}" required></label>`;
    return html`<form class="fg-card" data-on="submit:changePassword" aria-labelledby="fg-password">
      <h2 id="fg-password">${t("settings.password")}</h2>
      <input type="text" name="username" autocomplete="username" value="${this.state.me.name}" hidden>
      ${field("old_password", "current-password", 1)} ${field("new_password", "new-password", 8)}
      <p class="fg-small">${t("settings.password_note")}</p>
      <button class="fg-button">${t("settings.change_password")}</button></form>`;
  }

  #tokens() {
    const { tokens, made } = this.state;
    const rows = tokens.map(
      (token) => html`<tr data-key="${token.id}"><th scope="row">${token.name}</th>
        <td>${token.scopes.map((scope) => t(`settings.scope.${scope}`)).join(", ")}</td>
        <td>${token.expires ? moment(token.expires) : t("settings.never")}</td>
        <td>${token.last_used ? ago(token.last_used) : t("settings.unused")}</td>
        <td><button class="fg-button fg-danger" data-on="click:revoke" data-id="${token.id}" data-name="${token.name}">
          ${t("settings.revoke")}</button></td></tr>`,
    );
    const columns = ["name", "scopes", "expires", "used"].map((name) => t(`settings.column.${name}`));
    return html`<section class="fg-card fg-stack" aria-labelledby="fg-tokens">
      <div><h2 id="fg-tokens">${t("settings.tokens")}</h2><p>${t("settings.tokens_text")}</p></div>
      ${made ? this.#made(made) : ""}
      ${rows.length ? tableBox("fg-tokens", [...columns, ""], rows) : html`<p class="fg-muted">${t("settings.no_tokens")}</p>`}
      ${this.#newToken()}</section>`;
  }

  #newToken() {
    const days = choices(DAYS, 90, (count) => (count ? t("settings.days", { count }) : t("settings.never")));
    const scopes = SCOPES.map(
      (scope) => html`<label class="fg-tick"><input type="checkbox" name="scope" value="${scope}"
        ${scope === "read" ? html`checked` : ""} ${this.state.me.scopes.includes(scope) ? "" : html`disabled`}>
        ${t(`settings.scope.${scope}`)}</label>`,
    );
    return html`<form data-on="submit:makeToken" id="fg-new-token" aria-label="${t("settings.make")}">
      <div class="fg-grid"><label class="fg-field"><span>${t("settings.token_name")}</span>
          <input name="name" required maxlength="100" placeholder="${t("settings.token_example")}"></label>
        <label class="fg-field"><span>${t("settings.expires")}</span><select name="days">${days}</select></label></div>
      <fieldset class="fg-plain"><legend>${t("settings.scopes")}</legend><div class="fg-row">${scopes}</div></fieldset>
      <button class="fg-button fg-primary">${t("settings.make")}</button></form>`;
  }

  #made(made) {
    return html`<div class="fg-notice" id="fg-made" role="alert">
      <p><strong>${t("settings.made", { name: made.name })}</strong> ${t("settings.made_once")}</p>
      <div class="fg-row"><code id="fg-token">${made.token}</code>
        <button class="fg-button" data-on="click:copy">${t(this.state.copied ? "settings.copied" : "settings.copy")}</button>
        <button class="fg-button" data-on="click:forget">${t("settings.forget")}</button></div></div>`;
  }

  /** The token for a hub: written and taken away, never shown. */
  #hub({ hub_token: there }) {
    const remove = html`<button type="button" class="fg-button fg-danger" data-key="remove" data-on="click:removeHubToken">${t("settings.hub_remove")}</button>`;
    return html`<form class="fg-card" id="hub" data-on="submit:keepHubToken" aria-labelledby="fg-hub"><h2 id="fg-hub">${t("settings.hub")}</h2>
      <p>${t("settings.hub_text")}</p><p id="fg-hub-state"><strong>${t(there ? "settings.hub_set" : "settings.hub_none")}</strong></p>
      <input type="text" name="username" autocomplete="username" value="hub" hidden>
      <label class="fg-field"><span>${t("settings.hub_token")}</span>
        <input name="token" type="password" autocomplete="off" required maxlength="500"></label>
      <div class="fg-row"><button class="fg-button">${t("settings.hub_keep")}</button> ${there ? remove : ""}</div></form>`;
  }

  #users() {
    const { users, me } = this.state;
    const columns = ["name", "role", "login", "since"].map((name) => t(`settings.column.${name}`));
    return html`<section class="fg-card fg-stack" aria-labelledby="fg-users">
      <div><h2 id="fg-users">${t("settings.users")}</h2>
        <p>${t(me.login_needed ? "settings.users_text" : "settings.users_none")}</p></div>
      ${tableBox("fg-users", [...columns, ""], users.map((user) => this.#user(user, user.id === me.id)))}
      <form data-on="submit:addUser" id="fg-new-user" aria-label="${t("settings.add_user")}"><div class="fg-grid">
        <label class="fg-field"><span>${t("login.name")}</span>
          <input name="name" required maxlength="64" autocomplete="off"></label>
        <label class="fg-field"><span>${t("login.password")}</span>
          <input name="password" type="password" required minlength="8" autocomplete="new-password"></label>
        <label class="fg-field"><span>${t("settings.column.role")}</span>
          <select name="role">${choices(ROLES, "creator", roleName)}</select></label></div>
        <button class="fg-button">${t("settings.add_user")}</button></form></section>`;
  }

  #user(user, oneself) {
    const you = oneself ? html`<span class="fg-badge">${t("settings.you")}</span>` : "";
    const remove = html`<button class="fg-button fg-danger" data-on="click:removeUser" data-id="${user.id}"
      data-name="${user.name}">${t("settings.remove")}</button>`;
    return html`<tr data-key="${user.id}"><th scope="row">${user.name} ${you}</th>
      <td><label><span class="fg-hidden">${t("settings.role_of", { name: user.name })}</span>
        <select data-on="change:role" data-id="${user.id}">${choices(ROLES, user.role, roleName)}</select></label></td>
      <td>${t(user.can_log_in ? "settings.yes" : "settings.no")}</td><td>${moment(user.created)}</td>
      <td>${oneself ? "" : remove}</td></tr>`;
  }

  #about() {
    const { health } = this.state;
    return html`<section class="fg-card"><h2>${t("settings.about")}</h2><p>Flash-GRPO Studio ${health?.version || ""}</p>
      <p><a href="/docs">${t("settings.api_docs")}</a> · <a href="/api/v1/openapi.json">OpenAPI</a> ·
        <a href="/help">${t("page.help")}</a></p></section>`;
  }

  async language(event) {
    await remember({ language: event.target.value });
    chooseLanguage(event.target.value);
  }

  theme(event) {
    chooseTheme(event.target.value);
    remember({ theme: event.target.value });
  }

  async changePassword(event) {
    const form = event.target;
    const body = { old_password: form.elements.old_password.value, password: form.elements.new_password.value };
    // All sessions end with the old password; the form to log in again comes with the next request.
    if (await this.act(() => api.patch("/me", body), form.querySelector("button"))) location.reload();
  }

  async makeToken(event) {
    const form = event.target;
    const scopes = [...form.querySelectorAll("[name=scope]:checked")].map((box) => box.value);
    const days = form.elements.days.value;
    const body = { name: form.elements.name.value, scopes, days: days ? Number(days) : null };
    await this.act(async () => {
      const made = await api.post("/tokens", body);
      form.reset();
      this.set({ made, copied: false, tokens: (await api.get("/tokens")).tokens });
    }, form.querySelector("button"));
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(this.state.made.token);
    } catch {
      // Without https there is no clipboard; what is selected can be copied by hand.
      getSelection().selectAllChildren(this.querySelector("#fg-token"));
      return;
    }
    this.set({ copied: true, said: t("settings.copied") });
  }

  forget() {
    this.set({ made: null });
  }

  async keepHubToken(event) {
    const form = event.target;
    await this.act(async () => {
      await api.put("/me/hub-token", { token: form.elements.token.value });
      form.reset();
      this.set({ me: await api.get("/me"), said: t("settings.hub_kept") });
    }, form.querySelector("button:not([type])"));
  }

  async removeHubToken(event, button) {
    await this.act(async () => {
      await api.remove("/me/hub-token");
      this.set({ me: await api.get("/me"), said: t("settings.hub_removed") });
    }, button);
  }

  async revoke(event, button) {
    const { id, name } = button.dataset;
    if (!(await sure("revoke", name))) return;
    await this.act(async () => {
      await api.remove(`/tokens/${id}`);
      this.set({ tokens: (await api.get("/tokens")).tokens, made: null, said: t("settings.revoked", { name }) });
    }, button);
  }

  async addUser(event) {
    const form = event.target;
    const { name, password, role } = form.elements;
    await this.act(async () => {
      await api.post("/users", { name: name.value, password: password.value, role: role.value });
      form.reset();
      this.set({ said: t("settings.added") });
      await this.#load();
    }, form.querySelector("button"));
  }

  async role(event, select) {
    const changed = await this.act(() => api.patch(`/users/${select.dataset.id}`, { role: select.value }));
    if (!changed) select.value = this.state.users.find((user) => user.id === select.dataset.id).role;
  }

  async removeUser(event, button) {
    const { id, name } = button.dataset;
    if (!(await sure("remove", name))) return;
    await this.act(async () => {
      await api.remove(`/users/${id}`);
      await this.#load();
    }, button);
  }
}

function roleName(role) {
  return t(`settings.role.${role}`);
}

function sure(action, name) {
  return confirmed({
    title: t(`settings.${action}_ask`, { name }),
    text: t(`settings.${action}_text`),
    yes: t(`settings.${action}`),
    no: t("settings.keep"),
    danger: true,
  });
}

customElements.define("fg-settings", Settings);
