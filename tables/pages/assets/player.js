// A decoding forward by forward: the state of every position after a forward, from the events of a trace.
"use strict";

Report.film = (() => {
  const { h } = Report;
  const COMMITS = new Set(["unmasked", "accepted", "known", "corrected", "drawn", "filled"]);
  const SAID = {
    mask: "masked", remasked: "masked again", noise: "corrupted", flight: "a draft, not judged yet", unmasked: "unmasked",
    accepted: "draft accepted", known: "draft known to be accepted", corrected: "corrected", drawn: "drawn from its target",
    filled: "filled behind the end", rejected: "draft rejected", discarded: "draft not judged, behind a rejected one",
  };

  // The events of a trace as objects, in their order.
  function events(book, trace) {
    let refused = 0;
    return [...trace.kind].map((digit, index) => {
      const kind = book.kinds[Number(digit)];
      const part = (value) => (value === undefined || value < 0 ? null : value / book.likely);
      const isDraft = kind === "rejected" || kind === "discarded";
      return {
        kind, forward: trace.forward[index], step: trace.step[index], window: trace.window[index],
        position: trace.position[index], token: trace.token[index], prob: part(trace.prob[index]),
        target: isDraft ? part(trace.target[refused++]) : null,
      };
    });
  }

  // What stands at every position once `now` forwards were made; drafts of the next window while it is being judged.
  function state(film, now) {
    const cells = Array.from({ length: film.trace.length }, () => ({ kind: "mask", token: null }));
    let last = 0;
    let next = null;
    for (const event of film.events) {
      if (event.forward > now) { next = event; break; }
      last = event.forward;
      const before = cells[event.position];
      if (event.kind === "remasked") {
        const masked = event.token === film.trace.mask;
        const was = before.was ?? before.token;
        cells[event.position] = { ...event, kind: masked ? "remasked" : "noise", token: masked ? null : event.token, was };
      } else if (COMMITS.has(event.kind)) {
        cells[event.position] = event.token === film.trace.mask ? { kind: "mask", token: null } : event;
      } else if (event.forward === now) {
        cells[event.position] = { ...before, refused: event };
      }
    }
    if (next && next.window >= 0 && last < now) {
      for (const event of film.events) {
        if (event.window === next.window && cells[event.position].token === null && event.kind !== "corrected") {
          cells[event.position] = { ...event, kind: "flight" };
        }
      }
    }
    return cells;
  }

  const percent = (prob) => (prob === null || prob === undefined ? "" : `, p ${prob.toFixed(3)}`);

  function sign(film, token) {
    if (token === null) return "▢";
    const text = film.pieces[token];
    if (film.trace.ends.includes(token)) return "·";
    return text.replace(/\n/g, "⏎\n").replace(/\t/g, "⇥\t") || "∅";
  }

  function cell(film, each, position, now, differs) {
    const fresh = each.forward === now && each.kind !== "flight";
    const classes = ["token", each.kind, fresh ? "fresh" : "", differs ? "differs" : ""].filter(Boolean).join(" ");
    const where = each.forward ? `, forward ${each.forward}, step ${each.step}${each.window >= 0 ? `, window ${each.window}` : ""}` : "";
    const title = `position ${position}: ${SAID[each.kind]}${percent(each.prob)}${where}`;
    // What has just been masked again still shows, struck out, as long as its forward is on.
    const gone = fresh && each.kind === "remasked" && (each.was ?? null) !== null;
    const element = h("bdi", { class: classes, title, dir: "ltr", style: { "--sure": String(each.prob ?? 0) } },
      gone ? h("s", {}, sign(film, each.was)) : sign(film, each.token));
    if (!each.refused) return [element];
    const { token, kind, prob, target } = each.refused;
    const why = `position ${position}: ${SAID[kind]}${percent(prob)} by the draft${percent(target)} by the target`;
    return [element, h("bdi", { class: `token ${kind}`, title: why, dir: "ltr" }, sign(film, token))];
  }

  // What one forward did, in words.
  function told(film, now) {
    const own = film.events.filter((event) => event.forward === now);
    const counts = new Map();
    for (const event of own) counts.set(event.kind, (counts.get(event.kind) ?? 0) + 1);
    const words = [...counts].map(([kind, count]) => `${count} × ${SAID[kind]}`).join(", ");
    const flight = state(film, now).filter((each) => each.kind === "flight").length;
    if (words || now === 0) return words || "all positions are masked";
    return flight ? `drafts wait to be judged: ${flight}` : now > film.last ? "finished" : "no position changed";
  }

  // The film of a trace; `other` is one whose last tokens are compared with its own.
  function film(book, trace, pieces, other = null) {
    const all = events(book, trace);
    const made = { trace, pieces, events: all, last: all.length ? all[all.length - 1].forward : 0 };
    made.final = state(made, made.last).map((each) => each.token);
    const differs = made.final.map((token, position) => {
      if (!other || position >= other.final.length) return false;
      return token === null ? other.final[position] !== null : other.pieces[other.final[position]] !== pieces[token];
    });
    made.screen = h("p", { class: "film" });
    made.words = h("p", { class: "told", role: "status" });
    made.firstDifference = differs.indexOf(true);
    made.draw = (now) => {
      made.screen.replaceChildren(...state(made, now).flatMap((each, position) => cell(made, each, position, now, differs[position])));
      made.words.textContent = told(made, now);
      for (const bar of made.strip?.children ?? []) {
        const at = Number(bar.dataset.forward);
        bar.classList.toggle("now", at === now);
        bar.classList.toggle("later", at > now);
      }
    };
    return made;
  }

  // The windows of a response as a strip, from left to right by position and from top to bottom in their order.
  // windows: [step, start, proposed, accepted, committed]. judged: of each the forward that judged it, and its positions
  // with whether a draft was kept there; without them a window is drawn from its start on.
  function strip(windows, length, judged, jump) {
    const share = (count) => `${(100 * count) / length}%`;
    const bar = (at, count, kept) => h("span", { class: "bar", style: { left: share(at), width: share(Math.min(count, length - at)) } },
      h("span", { class: "kept", style: { width: `${100 * kept}%` } }));
    const bars = windows.map(([step, start, proposed, accepted, committed], number) => {
      const { forward, places } = judged[number] ?? {};
      const at = places ? `at ${[...places.keys()].join(", ")}` : `from ${start}`;
      const title = `window ${number}, step ${step}: ${at}, ${proposed} drafts, ${accepted} accepted, ${committed} committed`;
      const parts = places
        ? [...places].map(([position, kept]) => bar(position, 1, kept ? 1 : 0))
        : [bar(start ?? 0, Math.max(proposed, committed), accepted / Math.max(1, proposed, committed))];
      const properties = { class: `row step${step % 2}`, title, "data-forward": forward ?? "" };
      if (forward === undefined) return h("span", properties, ...parts);
      return h("button", { ...properties, type: "button", "aria-label": title, tabindex: "-1", onclick: () => jump(forward) }, ...parts);
    });
    return h("div", { class: "strip", "aria-label": `${windows.length} windows`, role: "group" }, ...bars);
  }

  const judgedAt = (made) => {
    const found = [];
    for (const event of made.events) {
      if (event.window < 0) continue;
      const window = (found[event.window] ??= { forward: event.forward, places: new Map() });
      window.places.set(event.position, ["accepted", "known"].includes(event.kind));
    }
    return found;
  };

  return { film, strip, judgedAt, SAID };
})();
