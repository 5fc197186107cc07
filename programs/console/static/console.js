// Live figures: the page is fetched again every few seconds while somebody looks at it, and the parts marked data-live take over
// what changed. Without this file every page works all the same, and is brought up to date by loading it.
"use strict";
(() => {
  const EVERY_MS = 3000;
  const parts = () => [...document.querySelectorAll("[data-live][id]")];
  const live = document.getElementById("live");
  const pause = document.getElementById("pause");
  const fresh = document.getElementById("fresh");
  const said = document.getElementById("said");
  if (!parts().length || !live) return;
  let paused = sessionStorage.getItem("paused") === "yes";
  let failures = 0;
  let timer = 0;
  let alarms = document.querySelectorAll(".alarms li").length;

  const say = (text) => { if (said.textContent !== text) said.textContent = text; };

  // Elements keep their identity, so that focus, selection and scrolling stay where they are.
  function update(now, then) {
    if (now.isEqualNode(then)) return;
    if (now.nodeType !== then.nodeType || now.nodeName !== then.nodeName) { now.replaceWith(then.cloneNode(true)); return; }
    if (now.nodeType !== Node.ELEMENT_NODE) { now.nodeValue = then.nodeValue; return; }
    for (const { name } of [...now.attributes]) if (!then.hasAttribute(name) && !(now.nodeName === "DETAILS" && name === "open")) now.removeAttribute(name);
    for (const { name, value } of [...then.attributes]) if (now.getAttribute(name) !== value) now.setAttribute(name, value);
    const olds = [...now.childNodes], news = [...then.childNodes];
    news.forEach((child, index) => { if (index < olds.length) update(olds[index], child); else now.append(child.cloneNode(true)); });
    olds.slice(news.length).forEach((child) => child.remove());
  }

  async function refresh() {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "error", signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error("the console answers " + answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts()) {
      const then = page.getElementById(part.id);
      if (then) update(part, then);
    }
    const now = document.querySelectorAll(".alarms li").length;
    if (failures) say("Live again.");
    else if (now !== alarms) say(now ? now + (now === 1 ? " thing is" : " things are") + " wrong now." : "Nothing is wrong any more.");
    alarms = now;
    failures = 0;
    fresh.textContent = "as of " + new Date().toLocaleTimeString();
  }

  function next() {
    clearTimeout(timer);
    if (!paused && !document.hidden) timer = setTimeout(turn, EVERY_MS * Math.min(2 ** failures, 8));
  }

  async function turn() {
    try {
      await refresh();
    } catch (error) {
      failures += 1;
      if (failures === 2) say("The figures are not live: the console does not answer. It is asked again.");
      fresh.textContent = "not live";
    }
    next();
  }

  function show() {
    pause.textContent = paused ? "Resume live figures" : "Pause live figures";
    pause.setAttribute("aria-pressed", String(paused));
    next();
  }

  pause.addEventListener("click", () => {
    paused = !paused;
    sessionStorage.setItem("paused", paused ? "yes" : "no");
    show();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) turn(); });
  live.hidden = false;
  show();
})();
