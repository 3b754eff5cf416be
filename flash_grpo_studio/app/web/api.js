// The studio's REST API for the pages: errors as sentences, one banner while it is away, polls that stop when hidden.

const ROOT = "/api/v1";

/** What the API refused, in words: `message`, `whatToDo`, `fields` ({name: sentence}), `id` to ask about, `status`. */
export class ApiError extends Error {
  constructor(status, error = {}) {
    super(error.message || `HTTP ${status}`);
    this.status = status;
    this.code = error.code || "unknown";
    this.whatToDo = error.what_to_do || "";
    this.fields = error.fields || {};
    this.id = error.id || "";
  }
}

/**
 * Whether the server answers; pages listen to `change` on this target to show one banner. `locked` from the moment on that
 * it asks for a login: until the page is loaded anew no poll asks again.
 */
export const connection = Object.assign(new EventTarget(), { lost: false, locked: false });

function setLost(lost) {
  if (connection.lost === lost) return;
  connection.lost = lost;
  connection.dispatchEvent(new Event("change"));
}

async function call(method, path, body) {
  const options = { method, headers: { Accept: "application/json" }, credentials: "same-origin" };
  if (body instanceof FormData) options.body = body;
  else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(ROOT + path, options);
  } catch {
    setLost(true);
    throw new ApiError(0, { code: "away", message: "the studio does not answer" });
  }
  const text = await answer.text();
  let content = null;
  try {
    content = text ? JSON.parse(text) : null;
  } catch {
    content = null;
  }
  // What stands before the server speaks no JSON; a server whose database is away says so itself.
  setLost([502, 503, 504].includes(answer.status) && !content?.error);
  if (answer.status === 401 && path !== "/login") {
    connection.locked = true;
    window.dispatchEvent(new Event("fg-login-needed"));
  }
  if (!answer.ok) throw new ApiError(answer.status, content?.error);
  return content;
}

export const api = {
  get: (path) => call("GET", path),
  post: (path, body = {}) => call("POST", path, body),
  put: (path, body) => call("PUT", path, body),
  patch: (path, body) => call("PATCH", path, body),
  remove: (path) => call("DELETE", path),
  upload: (path, form) => call("POST", path, form),
};

/**
 * Call `look` now and then every `seconds` until the returned function is called; never while the page is hidden, never
 * twice at once. What `look` throws is handed to `failed`, and the next look comes all the same.
 */
export function poll(look, seconds, failed = () => {}) {
  let timer = null;
  let stopped = false;
  let running = false;
  async function turn() {
    timer = null;
    if (stopped || document.hidden || running || connection.locked) return;
    running = true;
    try {
      await look();
    } catch (error) {
      failed(error);
    }
    running = false;
    if (!stopped && !document.hidden) timer = setTimeout(turn, seconds * 1000);
  }
  function shown() {
    if (!document.hidden && timer === null && !running) turn();
  }
  document.addEventListener("visibilitychange", shown);
  turn();
  return () => {
    stopped = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", shown);
  };
}
