// One item: what was asked, and the responses of several methods side by side, with a player of their decoding.
"use strict";

Report.pages.item = (() => {
  const { h, foreign, rows, row, file, verdict, address, go, view } = Report;
  const MOST = 4; // methods side by side
  const PACE = 350; // milliseconds a forward
  const MOST_PAIRS = 4e6; // of words that a comparison of two texts may look at
  let now = 0;
  let last = 0;
  let films = [];
  let playing = null;
  let shown = "";
  let slider = null;
  let button = null;
  let place = null; // {suite, item, series, items}

  // Which words of two texts are not in their longest common part: a list of [word, differs] for each.
  function difference(first, second) {
    const words = [first, second].map((text) => text.match(/\s+|[^\s]+/g) ?? []);
    const [a, b] = words;
    if (a.length * b.length > MOST_PAIRS) return words.map((own) => own.map((word) => [word, first !== second]));
    const width = b.length + 1;
    const longest = new Uint16Array((a.length + 1) * width);
    for (let i = a.length - 1; i >= 0; i -= 1) {
      for (let j = b.length - 1; j >= 0; j -= 1) {
        longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1
          : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
      }
    }
    const marked = [[], []];
    let [i, j] = [0, 0];
    while (i < a.length || j < b.length) {
      if (i < a.length && j < b.length && a[i] === b[j]) {
        marked[0].push([a[i++], false]);
        marked[1].push([b[j++], false]);
      } else if (j >= b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
        marked[0].push([a[i++], true]);
      } else {
        marked[1].push([b[j++], true]);
      }
    }
    return marked;
  }

  function marked(words) {
    const parts = [];
    for (const [word, differs] of words) {
      const previous = parts[parts.length - 1];
      if (previous && previous[1] === differs) previous[0] += word;
      else parts.push([word, differs]);
    }
    return h("bdi", { class: "text block", dir: "ltr", tabindex: "0" },
      ...parts.map(([text, differs]) => (differs ? h("mark", {}, text) : text)));
  }

  function turnTo(forward, keep = true) {
    now = Math.max(0, Math.min(last, forward));
    for (const film of films) film.draw(now);
    if (slider) {
      slider.value = now;
      slider.setAttribute("aria-valuetext", `forward ${now} of ${last}`);
      document.getElementById("clock").textContent = `forward ${now} of ${last}`;
    }
    if (keep) settle();
  }

  const settle = () => go("item", { suite: place.suite, item: place.item, series: place.series.join(","), forward: now }, true);

  function play(on) {
    clearInterval(playing);
    playing = null;
    if (on) {
      if (now >= last) turnTo(0, false);
      playing = setInterval(() => (now >= last ? play(false) : turnTo(now + 1, false)), PACE);
    } else if (films.length) {
      settle();
    }
    if (button) button.textContent = playing ? "Pause" : "Play";
  }

  function keys(event) {
    if (view().page !== "item" || event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range";
    const pressing = event.target.tagName === "BUTTON" || event.target.tagName === "SUMMARY";
    if (typing || (pressing && event.key === " ")) return;
    const moves = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: last };
    if (event.key in moves && films.length) turnTo(moves[event.key]);
    else if (event.key === " " && films.length) play(!playing);
    else if (event.key === "n" || event.key === "p") step(event.key === "n" ? 1 : -1);
    else return;
    event.preventDefault();
  }

  function step(by) {
    const to = place.items[place.items.indexOf(place.item) + by];
    if (to !== undefined) go("item", { suite: place.suite, item: to, series: place.series.join(",") });
  }

  function controls() {
    button = h("button", { type: "button", id: "play", onclick: () => play(!playing) }, "Play");
    slider = h("input", { type: "range", id: "scrubber", min: 0, max: last, value: now, "aria-label": "forward",
      oninput: () => { play(false); turnTo(Number(slider.value)); } });
    const move = (text, label, to) => h("button", { type: "button", "aria-label": label, onclick: () => { play(false); turnTo(to()); } }, text);
    return h("div", { class: "buttons" }, button, move("←", "one forward back", () => now - 1), move("→", "one forward on", () => now + 1),
      slider, h("output", { id: "clock" }));
  }

  function legend() {
    const kinds = ["accepted", "known", "corrected", "unmasked", "drawn", "filled", "remasked", "flight", "rejected", "discarded"];
    const there = new Set(films.flatMap((film) => film.events.map((event) => event.kind)));
    if (there.has("accepted")) there.add("flight");
    return h("div", { class: "player" }, h("p", { class: "legend" }, ...kinds.filter((kind) => there.has(kind)).map((kind) => h("span", { class: `token ${kind}`, style: { "--sure": "1" } }, Report.film.SAID[kind])),
        " ▢ is a mask, · the end. The stronger the color, the surer. A double line below marks tokens that are not the first method's."),
      h("p", { class: "hint" }, "Keys: arrows move by a forward, Home and End to the ends, space plays, n and p go to the next and previous item."));
  }

  function panel(book, groups, entry, traced, number, first) {
    const each = row(groups, place.suite, number, place.item);
    const said = entry?.said[number];
    const title = h("h2", {}, book.series[number].name);
    if (!each) return h("article", {}, title, h("p", {}, "has no response to this item"));
    const share = each.proposed ? `, ${each.accepted} of ${each.proposed} drafts accepted` : "";
    const numbers = `${each.forwards} calls, ${each.tokens ?? "-"} tokens, ${each.seconds?.toFixed(3) ?? "-"} s${each.disturbed ? " (disturbed)" : ""}${share}`;
    const judged = h("p", {}, verdict(each.right), said?.[1] ? h("span", {}, ": ", foreign(said[1])) : null, h("span", { class: "numbers" }, `; ${numbers}`));
    const parts = [title, judged];
    const trace = traced?.of[place.item]?.[number];
    const windows = said?.[2] ?? [];
    if (trace) {
      const film = Report.film.film(book, trace, traced.pieces, films[0] ?? null);
      film.series = number;
      if (windows.length) film.strip = Report.film.strip(windows, trace.length, Report.film.judgedAt(film), (to) => { play(false); turnTo(to); });
      films.push(film);
      last = Math.max(last, film.last);
      const apart = film.firstDifference >= 0 ? h("p", {}, `first differs from the first method at position ${film.firstDifference}`) : null;
      parts.push(film.screen, film.words, apart, film.strip ?? null);
    } else if (windows.length) {
      const length = Math.max(...windows.map(([, start, proposed, , committed]) => (start ?? 0) + Math.max(proposed, committed)));
      parts.push(Report.film.strip(windows, length, [], null));
    }
    const written = (said?.[0] ?? null) !== null;
    const base = first === number ? null : entry?.said[first]?.[0] ?? null;
    const text = !written ? h("p", {}, "the record has no text") : marked(base === null ? [[said[0], false]] : difference(base, said[0])[1]);
    parts.push(trace ? h("details", {}, h("summary", {}, "Response"), text) : text);
    return h("article", { "data-series": number }, ...parts);
  }

  function chooser(book, groups) {
    const toggle = (number) => {
      const without = place.series.filter((each) => each !== number);
      const series = without.length < place.series.length ? without : [...without.slice(0, MOST - 1), number];
      go("item", { suite: place.suite, item: place.item, series: series.join(","), forward: now });
    };
    const boxes = book.series.map((each, number) => (row(groups, place.suite, number, place.item)
      ? h("label", {}, h("input", { type: "checkbox", checked: place.series.includes(number), onchange: () => toggle(number) }), each.name)
      : null));
    return h("fieldset", { class: "choose" }, h("legend", {}, `Methods, up to ${MOST} side by side`), ...boxes);
  }

  async function show(settings, section) {
    const { book, groups } = await rows();
    const suite = Number(settings.get("suite"));
    const item = Number(settings.get("item"));
    const series = (settings.get("series") ?? "").split(",").filter(Boolean).map(Number).filter((number) => number in book.series).slice(0, MOST);
    const forward = settings.get("forward");
    const key = `${suite} ${item} ${series}`;
    if (key === shown && films.length) {
      turnTo(forward === null ? last : Number(forward), false);
      return;
    }
    const [content, traced] = await Promise.all([
      file(book, "text", suite, item),
      series.some((number) => book.series[number].traced) ? file(book, "trace", suite, item).catch(() => null) : null,
    ]);
    if (JSON.stringify([...view().settings]) !== JSON.stringify([...settings])) return; // another view was asked for meanwhile
    clearInterval(playing);
    [playing, films, last, slider, shown] = [null, [], 0, null, key];
    const items = [...new Set([...groups.values()].filter((group) => group.suite === suite).flatMap((group) => group.item))].sort((a, b) => a - b);
    place = { suite, item, series, items };
    const entry = content[item];
    const panels = series.map((number) => panel(book, groups, entry, traced, number, series[0]));
    const at = items.indexOf(item);
    const neighbour = (to, text) => (to === undefined ? null : h("a", { href: address("item", { suite, item: to, series: series.join(",") }) }, text));
    const asked = entry?.prompt;
    section.replaceChildren(
      h("h1", {}, `${book.suites[suite]} ${item}`),
      h("p", { class: "paging" }, neighbour(items[at - 1], "previous item"), " ", neighbour(items[at + 1], "next item"), " ",
        h("a", { href: "", id: "link", onclick: copy }, "link to this view")),
      films.length ? controls() : "", h("div", { class: "panels" }, ...panels), films.length ? legend() : "",
      h("details", {}, h("summary", {}, "Prompt"), asked ? foreign(asked, "block") : h("p", {}, "not recorded: the run was not traced")),
      h("details", {}, h("summary", {}, "Reference"), foreign(entry?.gold ?? "none", "block")),
      chooser(book, groups));
    if (films.length) turnTo(forward === null ? last : Number(forward), false);
  }

  function copy(event) {
    event.preventDefault();
    play(false);
    event.target.href = location.href;
    navigator.clipboard?.writeText(location.href).then(() => Report.say("copied"), () => Report.say(location.href));
  }

  document.addEventListener("keydown", keys);
  return {
    show,
    moved() { document.getElementById("link")?.setAttribute("href", location.href); },
    leave() { clearInterval(playing); playing = null; shown = ""; films = []; },
  };
})();
