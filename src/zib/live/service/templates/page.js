// Puts sections in place as they change, and says so when the connection is lost.
(() => {
  "use strict";
  const page = document.getElementById("live");
  const state = document.getElementById("connection");
  if (!page || !window.EventSource) return;
  const marks = JSON.parse(page.dataset.marks);
  const silence = 25000; // longest time without a sign of life
  let source = null, lost = null, wait = 1000, again = 0, watch = 0;

  const key = (node) => (node.nodeType === 1 && node.getAttribute("data-key")) || "";

  // Makes one element like another and touches only what differs, so that focus, open parts,
  // selected text and places scrolled to stay.
  function become(old, fresh) {
    if (old.nodeType !== 1) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    for (const { name } of [...old.attributes])
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes)
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    fill(old, fresh);
  }

  function move(place, node, before) {
    if (place.moveBefore) place.moveBefore(node, before); // keeps the focus
    else place.insertBefore(node, before);
  }

  function fill(old, fresh) {
    const keyed = new Map([...old.childNodes].filter(key).map((node) => [key(node), node]));
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      let same = keyed.get(key(next)) || null;
      if (!key(next)) {
        same = at; // or the first of its kind after it
        while (same && (key(same) || same.nodeName !== next.nodeName)) same = same.nextSibling;
      }
      if (!same || same.nodeName !== next.nodeName) {
        old.insertBefore(next, at);
        continue;
      }
      if (same === at) at = at.nextSibling;
      else move(old, same, at);
      become(same, next);
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  }

  function put(id, text) {
    const place = document.getElementById(id);
    if (!place) return;
    const focused = document.activeElement;
    const made = document.createElement("template");
    made.innerHTML = text;
    fill(place, made.content);
    if (focused !== document.activeElement && place.contains(focused))
      focused.focus({ preventScroll: true });
  }

  function say(words, level) {
    state.textContent = words;
    state.className = level;
  }

  const clock = (date) =>
    date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

  function alive() {
    clearTimeout(watch);
    watch = setTimeout(broken, silence);
    wait = 1000;
    if (lost || state.className !== "on") say("Live", "on");
    lost = null;
  }

  function broken() {
    close();
    lost = lost || new Date();
    say(`Connection lost since ${clock(lost)}; trying again.`, "off");
    again = setTimeout(connect, wait);
    wait = Math.min(2 * wait, 30000);
  }

  function close() {
    clearTimeout(again);
    clearTimeout(watch);
    if (source) source.close();
    source = null;
  }

  function connect() {
    close();
    const have = Object.entries(marks).map((pair) => pair.join(":")).join(",");
    source = new EventSource(`${page.dataset.address}?marks=${have}`);
    watch = setTimeout(broken, silence);
    source.onerror = broken;
    source.addEventListener("beat", alive);
    source.addEventListener("sections", (event) => {
      const [changed, now] = JSON.parse(event.data);
      for (const [id, text] of Object.entries(changed)) put(id, text);
      Object.assign(marks, now);
      alive();
    });
    source.addEventListener("ended", () => {
      close();
      say("You are logged out: load the page again to log in.", "off");
    });
  }

  // A page that nobody sees needs no connection; browsers allow few of them.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : connect()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => event.persisted && connect());
  if (!document.hidden) connect();
})();
