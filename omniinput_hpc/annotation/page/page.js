"use strict";
// The page of one annotator. Every text from outside goes in by textContent; a score that the server
// has not acknowledged is kept (also in localStorage) and sent again under the same nonce.

const $ = (id) => document.getElementById(id);
const KEPT = "pending:" + document.body.dataset.session;
const RETRY = 2000; // milliseconds
const LABELS = JSON.parse(document.body.dataset.labels); // empty: any score can be given
const LAST_KEY = LABELS.length ? LABELS.length - 1 : 9; // the key of the score 1

let item = null; // what is shown, null when all is done
let lastPosition = -1;
let count = 0;
let busy = false;
let spaces = false;
let shownAt = 0;
let hiddenSince = null;

// ---- text ----

const NAMES = {
  0x00ad: "SHY", 0x061c: "ALM", 0x200b: "ZWSP", 0x200c: "ZWNJ", 0x200d: "ZWJ", 0x200e: "LRM",
  0x200f: "RLM", 0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO",
  0x2060: "WJ", 0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0xfeff: "BOM",
  0x0d: "CR", 0x0b: "VT", 0x0c: "FF", 0x1b: "ESC", 0x00: "NUL", 0x07: "BEL", 0x08: "BS", 0x7f: "DEL",
};
// Control, format and lone surrogate code points: always shown by name, never let loose.
const STRANGE = /(?![\t\n\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/u;
const ACCENT = /\p{M}/u;
const MOST_ACCENTS = 5; // on one letter; more are shown by name, since they would pile up
const BLANK = /[\t\n\u200c\u200d]|\p{Zs}/u;

function mark(text, plain) {
  const span = document.createElement("span");
  span.className = plain ? "mark plain" : "mark";
  span.textContent = text;
  return span;
}

function visible(character) {
  const code = character.codePointAt(0);
  const name = NAMES[code] || "U+" + code.toString(16).toUpperCase().padStart(4, "0");
  return mark(name, false);
}

function put(element, text) {
  const made = document.createDocumentFragment();
  let run = "", accents = 0;
  const flush = () => { if (run) made.append(run); run = ""; };
  for (const character of text) {
    accents = ACCENT.test(character) ? accents + 1 : 0;
    if (STRANGE.test(character) || accents > MOST_ACCENTS) {
      flush();
      made.append(visible(character));
    } else if (spaces && BLANK.test(character)) {
      flush();
      if (character === " ") made.append(mark("\u00b7\u200b", true)); // lines still break at blanks
      else if (character === "\n") made.append(mark("\u23ce", true), "\n");
      else if (character === "\t") made.append(mark("\u2192", true), "\t");
      else made.append(visible(character));
    } else run += character;
  }
  flush();
  if (text === "") made.append(mark("empty", false));
  element.replaceChildren(made);
}

// ---- showing ----

// A score in words: its label, or the number.
function named(score) {
  const label = LABELS.find((_, key) => Math.abs(score - key / LAST_KEY) < 1e-9);
  return label === undefined ? score.toFixed(2) : label;
}

function tell(words, score) {
  const shown = [words];
  if (score !== undefined) {
    const value = document.createElement("b");
    value.textContent = named(score);
    shown.push(" ", value, "  (U undoes it)");
  }
  $("last").replaceChildren(...shown);
}

function enlarge() {
  const image = $("image");
  if (!image.naturalWidth) return;
  const room = Math.min($("item").clientWidth - 40, window.innerHeight * 0.5);
  const longest = Math.max(image.naturalWidth, image.naturalHeight);
  const scale = Math.max(1, Math.floor(Math.min(room, 480) / longest));
  image.style.width = image.naturalWidth * scale + "px";
  image.style.height = image.naturalHeight * scale + "px";
  const small = $("small"), less = Math.max(1, Math.round(scale / 5)); // as on a printed page
  small.hidden = scale < 3;
  if (small.hidden) return;
  small.src = image.src;
  small.style.width = image.naturalWidth * less + "px";
  small.style.height = image.naturalHeight * less + "px";
}

function time(seconds) {
  if (seconds < 90) return "under 2 min";
  if (seconds < 5400) return "about " + Math.round(seconds / 60) + " min";
  return "about " + (seconds / 3600).toFixed(1) + " h";
}

function showProgress(p) {
  count = p.n;
  $("bar").max = p.n;
  $("bar").value = p.done;
  const left = p.seconds_left === null || p.done === p.n ? "" : ", " + time(p.seconds_left) + " left";
  $("progress").textContent = p.done + " of " + p.n + left;
  $("undo").disabled = p.undoable === 0;
}

function draw() {
  const text = item !== null && item.text !== null;
  $("text").hidden = !text;
  $("prefix").hidden = item === null || item.prefix === null;
  $("picture").hidden = item === null || item.png === null;
  if (text) put($("text"), item.text);
  if (!$("prefix").hidden) put($("prefix"), item.prefix);
}

function show(view) {
  item = view.item;
  showProgress(view.progress);
  $("message").hidden = item !== null;
  $("message").textContent = item === null
    ? "All items are scored, and every score is saved. Go back or undo to change one, or close the page."
    : "";
  const own = item !== null && item.score !== null;
  $("own").hidden = !own;
  $("own").textContent = own ? "Your score so far: " + named(item.score) : "";
  for (const button of $("keys").children) {
    button.classList.toggle("chosen", own && Math.abs(item.score - Number(button.dataset.score)) < 1e-9);
    button.disabled = item === null;
  }
  $("give").disabled = $("skip").disabled = item === null;
  $("item").dataset.id = item === null ? "" : item.id;
  draw();
  if (item !== null) {
    lastPosition = item.position;
    if (item.png !== null) {
      $("image").src = item.png;
      $("image").decode().then(enlarge, () => say("This picture cannot be shown."));
    }
    $("text").scrollTop = 0;
    setSlider(own ? item.score : 0.5);
  }
  shownAt = performance.now();
  hiddenSince = document.hidden ? shownAt : null;
}

function setSlider(value) {
  $("slider").value = value;
  $("value").textContent = Number($("slider").value).toFixed(2);
}

function warn(words) {
  $("alert").hidden = words === "";
  if ($("alert").textContent !== words) $("alert").textContent = words;
}

function say(words) { $("said").textContent = words; }

// ---- the server ----

function nonce() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((b) => b.toString(16).padStart(2, "0")).join("");
}

async function once(path, body) {
  const options = { cache: "no-store", signal: AbortSignal.timeout(10000) };
  if (body) {
    options.method = "POST";
    options.headers = { "content-type": "application/json" };
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(path, options);
  return { status: answer.status, value: await answer.json() };
}

// Asks until there is an answer; null if the server says that the request itself is wrong.
async function ask(path, body) {
  const kept = body ? "Your last score is kept here and will be sent again. " : "";
  for (;;) {
    try {
      const { status, value } = await once(path, body);
      if (status === 200) { warn(""); return value; }
      if (status === 400) { warn("The server refused the request: " + value.error); return null; }
      warn(status === 403
        ? kept + "The server no longer recognizes this page: " + value.error + "."
        : kept + "The server could not save: " + value.error + ".");
    } catch {
      warn("The connection is lost. " + kept + "Trying again; nothing is lost.");
    }
    await new Promise((done) => setTimeout(done, RETRY));
  }
}

async function act(path, body) {
  if (busy) return;
  busy = true;
  document.body.classList.add("busy");
  if (body) localStorage.setItem(KEPT, JSON.stringify({ path, body }));
  const view = await ask(path, body);
  if (body) localStorage.removeItem(KEPT);
  busy = false;
  document.body.classList.remove("busy");
  if (view !== null) {
    show(view);
    if (path === "/api/score") tell("Saved:", body.score);
    if (path === "/api/undo") tell("Undone.");
  }
}

// ---- what a person does ----

function give(score) {
  if (item === null || busy) return;
  const until = hiddenSince === null ? performance.now() : hiddenSince;
  const seconds = Math.round(until - shownAt) / 1000;
  say("Scored " + named(score));
  act("/api/score", { id: item.id, score, seconds: Math.max(0, seconds), nonce: nonce() });
}

// The second click of a double click would score the next item unseen.
function clicked(event, score) { if (event.detail < 2) give(score); }

function back() {
  const position = item === null ? lastPosition : Math.max(0, item.position - 1);
  if (position >= 0) act("/api/item/" + position);
}

function skip() { if (item !== null) act("/api/after/" + item.position); }
function undo() { if (!$("undo").disabled) act("/api/undo", { nonce: nonce() }); }

function toggleSpaces() {
  spaces = !spaces;
  $("white").setAttribute("aria-pressed", String(spaces));
  draw();
}

function toggleGuideline() {
  const off = document.querySelector("main").classList.toggle("unguided");
  $("guide").setAttribute("aria-pressed", String(!off));
}

const KEYS = { b: back, s: skip, u: undo, w: toggleSpaces, g: toggleGuideline };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
  if (/^[0-9]$/.test(event.key)) {
    event.preventDefault();
    if (Number(event.key) <= LAST_KEY) give(Number(event.key) / LAST_KEY);
    return;
  }
  const does = KEYS[event.key.toLowerCase()];
  if (does) { event.preventDefault(); does(); return; }
  if (event.key === "Enter" && !LABELS.length && event.target.tagName !== "BUTTON") {
    event.preventDefault();
    give(Number($("slider").value));
  }
});

$("fine").hidden = LABELS.length > 0;
$("keys").classList.toggle("labelled", LABELS.length > 0);
for (let key = 0; key <= LAST_KEY; key++) {
  const score = key / LAST_KEY;
  const button = document.createElement("button");
  const digit = document.createElement("kbd");
  const value = document.createElement("small");
  button.type = "button";
  button.dataset.score = String(score);
  const words = LABELS.length ? LABELS[key] + ", score " : "Score ";
  button.setAttribute("aria-label", words + score.toFixed(2) + ", key " + key);
  digit.textContent = String(key);
  value.textContent = LABELS.length ? LABELS[key] : score.toFixed(2);
  button.append(digit, value);
  button.addEventListener("click", (event) => clicked(event, score));
  $("keys").append(button);
}
$("slider").addEventListener("input", () => setSlider($("slider").value));
$("give").addEventListener("click", (event) => clicked(event, Number($("slider").value)));
$("back").addEventListener("click", back);
$("skip").addEventListener("click", skip);
$("undo").addEventListener("click", undo);
$("white").addEventListener("click", toggleSpaces);
$("guide").addEventListener("click", toggleGuideline);
window.addEventListener("resize", enlarge);
window.addEventListener("beforeunload", (event) => {
  if (localStorage.getItem(KEPT)) event.preventDefault();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) hiddenSince = performance.now();
  else if (hiddenSince !== null) { shownAt += performance.now() - hiddenSince; hiddenSince = null; }
});

history.replaceState(null, "", "/"); // the token does not stay in the address
(async () => {
  const kept = JSON.parse(localStorage.getItem(KEPT) || "null");
  if (kept) await act(kept.path, kept.body); // what was not acknowledged before the page was closed
  await act("/api/first");
})();
