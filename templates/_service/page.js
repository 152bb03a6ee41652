// Keeps a page fresh: it is read again, and what changed inside the elements marked data-live is put in place. Without this the page
// reads the same; it is then reloaded every ten seconds.
"use strict";
const period_ms = Number(document.body.dataset.refresh || 0);
const connection = document.getElementById("connection");

function atEnd(element) { return element.scrollHeight - element.scrollTop - element.clientHeight < 4; }

function place(old, fresh) {
  if (old.innerHTML === fresh.innerHTML) return;
  const follows = atEnd(old), wanted = old.contains(document.activeElement) ? document.activeElement : null;
  if (wanted && wanted !== old && !wanted.href) return;  // somebody types or chooses there
  old.replaceChildren(...fresh.childNodes);
  if (follows) old.scrollTop = old.scrollHeight;
  if (wanted && wanted.href) for (const link of old.querySelectorAll("a")) if (link.href === wanted.href) link.focus();
}

async function refresh() {
  if (!document.hidden) {
    try {
      const answer = await fetch(location.href, {cache: "no-store", headers: {accept: "text/html"}});
      if (!answer.ok) throw new Error(answer.status);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-live]")) {
        const now = fresh.getElementById(old.id);
        if (now) place(old, now);
      }
      connection.hidden = true;
      if (!fresh.body.dataset.refresh) return;  // the job has ended: nothing changes any more
    } catch {
      connection.hidden = false;
    }
  }
  setTimeout(refresh, period_ms);
}

for (const element of document.querySelectorAll("pre[data-live]")) element.scrollTop = element.scrollHeight;
if (period_ms > 0) setTimeout(refresh, period_ms);
