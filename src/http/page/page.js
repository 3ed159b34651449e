"use strict";
// Everything here works without it: links, forms and a reload. This makes the page live.
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const dialog = $("#dialog");
  if (!dialog) return;
  let began = performance.now();
  let reloading = null;
  let spoken = 0;
  let missed = false;
  let pressed = false;
  let state = JSON.parse($("main").dataset.state);

  const span = (s) => s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 3600)} h`;
  const number = (n) => n.toLocaleString("en-US");

  // Replaces what changed, and nothing that a person types in or has opened.
  function adopt(page) {
    document.title = page.title;
    for (const now of document.querySelectorAll("[data-live]")) {
      const next = page.getElementById(now.id);
      if (!next || next.isEqualNode(now)) continue;
      const open = [...now.querySelectorAll("details")].map((it) => it.open);
      const focus = now.contains(document.activeElement) ? document.activeElement : null;
      const place = focus && [...now.querySelectorAll("a,button,summary,input,[tabindex]")].indexOf(focus);
      const fresh = document.importNode(next, true);
      now.replaceWith(fresh);
      [...fresh.querySelectorAll("details")].forEach((it, at) => { it.open = open[at] || false; });
      if (focus) {
        const same = focus.id && $(`#${CSS.escape(focus.id)}`);
        const other = [...fresh.querySelectorAll("a,button,summary,input,[tabindex]")][place];
        (same || other)?.focus({ preventScroll: true });
      }
    }
    began = performance.now();
  }

  async function load(url, headers = {}) {
    reloading?.abort();
    reloading = new AbortController();
    try {
      const answer = await fetch(url, { headers: { accept: "text/html", ...headers }, signal: reloading.signal });
      if (!answer.ok) return null;
      return new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch {
      return null;
    }
  }

  async function refresh() {
    missed = document.hidden || dialog.open || pressed;
    if (missed) return;
    const url = new URL(location.href);
    // The causes are looked for when a person asks, not whenever something moves.
    if (url.searchParams.has("doctor")) return;
    const page = await load(url, { "crisweep-live": "true" });
    missed = pressed;
    if (page && !missed) adopt(page);
  }

  // A pass moves: only its numbers change, until it is over.
  function follow(pass) {
    const table = $(`table[data-pass="${CSS.escape(pass.id)}"]`);
    if (pass.state === "done") refresh();
    if (!table || pass.state === "done") return;
    let gone = 0;
    for (const [target, report] of Object.entries(pass.targets)) {
      const done = report.removed + report.already_gone;
      gone += done;
      const row = $(`tr[data-target="${target}"]`, table);
      if (!row) continue;
      const bar = $("progress", row);
      bar.max = Math.max(report.planned, 1);
      bar.value = report.planned - report.remaining;
      let words = report.begun || report.planned ? `${number(done)} of ${number(report.planned)} gone` : "not begun";
      if (report.failed) words += `, ${number(report.failed)} failed`;
      if (report.skipped) words += `, ${number(report.skipped)} skipped`;
      $("span", row).textContent = words;
    }
    // A screen reader reads each change: not more often than it can.
    if (performance.now() - spoken > 3000) {
      spoken = performance.now();
      $("#progress").textContent = `${number(gone)} removed so far`;
    }
  }

  // A hidden page listens to nothing: browsers have few connections to a host.
  let events = null;
  function listen() {
    events?.close();
    events = null;
    if (document.hidden) return;
    events = new EventSource("api/v1/events");
    let due = null;
    events.addEventListener("open", () => { $("#stale").hidden = true; });
    events.addEventListener("error", () => {
      if ($("#stale").hidden) {
        $("#stale").textContent = `Not live since ${new Date().toLocaleTimeString()}: crisweep does not answer.`;
        $("#stale").hidden = false;
      }
      // After a refusal a browser does not try again.
      if (events?.readyState === EventSource.CLOSED) setTimeout(listen, 10000);
    });
    events.addEventListener("state", (event) => {
      const next = JSON.parse(event.data);
      const last = state;
      state = next;
      const { look: a, ...before } = last;
      const { look: b, ...after } = next;
      const moved = JSON.stringify(before) !== JSON.stringify(after);
      // Another client caused a look: show it, but not every one.
      const looked = last.look !== undefined && a !== b;
      if (moved || (looked && !due)) {
        clearTimeout(due);
        due = setTimeout(() => { due = null; refresh(); }, moved ? 100 : 5000);
      }
    });
    events.addEventListener("pass", (event) => follow(JSON.parse(event.data)));
  }
  addEventListener("pagehide", () => events?.close());
  document.addEventListener("visibilitychange", () => {
    listen();
    if (!document.hidden) refresh();
  });
  dialog.addEventListener("close", () => { if (missed) refresh(); });
  // A button that is replaced between press and release is not clicked.
  const press = (is) => () => {
    pressed = is;
    if (!is && missed) setTimeout(refresh);
  };
  for (const it of ["pointerdown", "keydown"]) addEventListener(it, press(true));
  for (const it of ["pointerup", "pointercancel", "keyup", "blur"]) addEventListener(it, press(false));

  async function ask(url) {
    const page = await load(url);
    const section = page && $("#confirm", page);
    if (!section) {
      location.href = url;
      return;
    }
    // Who counts again by a key stays where the key was pressed.
    const held = dialog.open && dialog.contains(document.activeElement) ? document.activeElement.value : "";
    dialog.replaceChildren(document.importNode(section, true));
    if (!dialog.open) dialog.showModal();
    ((held && $(`[value="${CSS.escape(held)}"]:not([type=hidden])`, dialog)) || $("#confirmed", dialog))?.focus();
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (link.matches("[data-dialog]")) {
      event.preventDefault();
      ask(link.href);
    } else if (link.matches("dialog [data-close]")) {
      event.preventDefault();
      dialog.close();
      $("#remove")?.focus();
    }
  });

  document.addEventListener("submit", (event) => {
    const form = event.target;
    const button = event.submitter;
    if (button?.matches("dialog [data-again]")) {
      event.preventDefault();
      const url = new URL(button.formAction);
      url.search = new URLSearchParams(new FormData(form, button));
      ask(url);
    } else if (form.id === "search") {
      event.preventDefault();
      find().then(() => $("#objects").scrollIntoView());
    } else if (form.method === "post") {
      // One click, one pass.
      setTimeout(() => { for (const button of form.querySelectorAll("button")) button.disabled = true; });
    }
  });

  document.addEventListener("change", (event) => {
    const again = $("[data-again]", dialog);
    if (again && dialog.contains(event.target)) event.target.form.requestSubmit(again);
  });

  async function find() {
    const url = new URL(location.href);
    url.search = new URLSearchParams(new FormData($("#search")));
    url.hash = "";
    history.replaceState(null, "", url);
    const page = await load(url);
    if (page) adopt(page);
  }

  let typing = null;
  $("#q").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(find, 250);
  });

  setInterval(() => {
    for (const it of document.querySelectorAll("[data-ago]")) {
      it.textContent = `${span(Number(it.dataset.ago) + Math.floor((performance.now() - began) / 1000))} ago`;
    }
  }, 1000);

  listen();
})();
