// Requests to the server that this page came from.

const MAX_TRIES = 5;

/** An answer that is an error. `message` is the server's own; `status` is 0 if there was no answer. */
export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/**
 * Asks the server, and asks again after the time that it names while it is busy (429).
 *
 * options: body (an object, sent as JSON; without it the request is a GET), token, signal (an
 * AbortSignal), and onWait(seconds), which is called with the seconds that are left.
 */
export async function ask(path, { body, token, signal, onWait } = {}) {
  for (let tries = 1; ; tries++) {
    const response = await send(path, { body, token, signal });
    if (response.ok) return response.json();
    const error = await errorOf(response);
    if (response.status !== 429 || tries === MAX_TRIES) throw error;
    await countDown(retryAfter(response), onWait, signal);
  }
}

async function send(path, { body, token, signal }) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  try {
    return await fetch(path, {
      method: body ? "POST" : "GET",
      body: body && JSON.stringify(body),
      headers,
      signal,
      cache: "no-store",
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server does not answer. Check that it runs, then try again.", 0);
  }
}

async function errorOf(response) {
  const plain = `The server answered with status ${response.status}.`;
  try {
    return new ServerError((await response.json()).error.message || plain, response.status);
  } catch {
    return new ServerError(plain, response.status); // a proxy's error page
  }
}

function retryAfter(response) {
  const seconds = Number(response.headers.get("Retry-After"));
  return seconds > 0 ? Math.ceil(seconds) : 1;
}

async function countDown(seconds, onWait, signal) {
  for (let left = seconds; left > 0; left--) {
    onWait?.(left);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    signal?.throwIfAborted();
  }
}
