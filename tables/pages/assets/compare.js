// Two methods, or a method of two runs: what flipped, where tokens first differ, speed item by item.
"use strict";

Report.pages.compare = (() => {
  const { h, rows, rowAt, row, load, file, verdict, address, go, plot } = Report;
  const MOST = 100; // rows of the list
  let form = null;
  let drawn = null;

  function build(section, book) {
    const changed = () => go("compare", values());
    const choose = (name) => h("select", { name, onchange: changed }, ...book.series.map((each, number) => h("option", { value: number }, each.name)));
    const suites = [["", "all suites"], ...book.suites.map((title, number) => [number, title])];
    const what = { flips: "flips", tokens: "other tokens", "": "all items" };
    form = {
      a: choose("a"), b: choose("b"),
      suite: h("select", { name: "suite", onchange: changed }, ...suites.map(([value, text]) => h("option", { value }, text))),
      what: h("select", { name: "what", onchange: changed }, ...Object.entries(what).map(([value, text]) => h("option", { value }, text))),
    };
    section.append(
      h("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, h("label", {}, "First", form.a), h("label", {}, "Second", form.b),
        h("label", {}, "Suite", form.suite), h("label", {}, "List", form.what)),
      h("div", { class: "wide" }, h("table", { id: "sums" })),
      h("h2", {}, "Seconds by item"), h("div", { class: "plot", id: "plot-speed", role: "img", "aria-label": "Seconds by item" }),
      h("h2", {}, "Items"), h("p", { id: "differing", role: "status" }), h("div", { class: "wide" }, h("table", { id: "pairs" })));
  }

  const values = () => Object.fromEntries(Object.entries(form).map(([name, control]) => [name, control.value]));

  function pairs(groups, a, b, suite) {
    const found = [];
    for (const group of groups.values()) {
      if (group.series !== a || (suite !== "" && group.suite !== Number(suite))) continue;
      group.item.forEach((item, index) => {
        const other = row(groups, group.suite, b, item);
        if (other) found.push([rowAt(group, index), other]);
      });
    }
    return found;
  }

  const flipped = ([a, b]) => a.right !== b.right && a.right !== "-" && b.right !== "-";
  const sameTokens = ([a, b]) => a.same !== null && a.same >= 0 && a.same === b.same;

  // The ratio over all suites is the mean of theirs, as in the overview; its interval is there if it is of all suites.
  function sums(book, found, ends, a, b) {
    const lines = book.suites.map((title, suite) => [title, found.filter((pair) => pair[0].suite === suite), suite]).filter(([, own]) => own.length);
    const ratio = (own) => {
      const known = own.filter((pair) => pair.every((each) => each.seconds !== null));
      return known.reduce((sum, [x]) => sum + x.seconds, 0) / known.reduce((sum, [, y]) => sum + y.seconds, 0);
    };
    const ratios = lines.map(([, own]) => ratio(own));
    if (lines.length > 1) {
      lines.push(["all", found, ""]);
      ratios.push(ratios.reduce((sum, each) => sum + each, 0) / ratios.length);
    }
    const speed = (value, suite) => {
      const [low, high] = ends[suite]?.[a][b] ?? [null, null];
      return Number.isNaN(value) ? "-" : `${value.toFixed(2)}x${low === null || a === b ? "" : ` (${low.toFixed(2)} to ${high.toFixed(2)})`}`;
    };
    const count = (own, test) => own.filter(test).length;
    const cells = ([title, own, suite], line) => [
      title, own.length, count(own, ([a]) => a.right === "1"), count(own, ([, b]) => b.right === "1"),
      count(own, (each) => flipped(each) && each[1].right === "1"), count(own, (each) => flipped(each) && each[0].right === "1"),
      count(own, sameTokens), speed(ratios[line], suite)];
    const heads = ["Suite", "Items of both", "First right", "Second right", "Gained", "Lost", "Same tokens", "Seconds, first / second (95% interval)"];
    return [h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, ...lines.map((line, number) => h("tr", {}, ...cells(line, number).map((cell) => h("td", {}, String(cell))))))];
  }

  const address_of = (a, b) => address("item", { suite: a.suite, item: a.item, series: `${a.series},${b.series}` });

  function speeds(book, found, a, b) {
    const suites = [...new Set(found.map(([each]) => each.suite))];
    const most = found.reduce((top, pair) => Math.max(top, pair[0].seconds, pair[1].seconds), 0);
    const axis = (name) => ({ title: { text: `${name}, seconds` }, rangemode: "tozero" });
    const data = suites.map((suite, number) => {
      const own = found.filter(([each]) => each.suite === suite);
      return {
        type: "scatter", mode: "markers", name: book.suites[suite], x: own.map(([each]) => each.seconds), y: own.map(([, each]) => each.seconds),
        customdata: own.map(([x, y]) => address_of(x, y)), text: own.map(([each]) => `item ${each.item}`),
        marker: { size: 7, opacity: 0.7, symbol: ["circle", "square", "diamond", "triangle-up", "x"][number % 5], color: book.palette[number % book.palette.length] },
      };
    });
    const line = { type: "line", x0: 0, y0: 0, x1: most, y1: most, line: { width: 1, dash: "dot", color: "gray" } };
    return { data, layout: { xaxis: axis(book.series[a].name), yaxis: axis(book.series[b].name), shapes: [line], margin: { l: 56, r: 12, t: 12, b: 48 } } };
  }

  // Where two responses first differ: a position and both tokens of traced ones, else a letter of the text.
  async function apart(book, a, b) {
    if (sameTokens([a, b])) return "nowhere";
    const both = [a, b].every((each) => book.series[each.series].traced);
    const traced = both ? (await file(book, "trace", a.suite, a.item)) : null;
    const own = traced?.of[a.item];
    if (own?.[a.series] && own?.[b.series]) {
      const first = Report.film.film(book, own[a.series], traced.pieces);
      const second = Report.film.film(book, own[b.series], traced.pieces, first);
      const at = second.firstDifference;
      if (at < 0) return "nowhere";
      const piece = (film) => (film.final[at] === null ? "a mask" : JSON.stringify(traced.pieces[film.final[at]]));
      return `position ${at}: ${piece(first)}, ${piece(second)}`;
    }
    const said = (await file(book, "text", a.suite, a.item))[a.item].said;
    const [x, y] = [said[a.series]?.[0] ?? "", said[b.series]?.[0] ?? ""];
    if (x === y) return "not in the text";
    let at = 0;
    while (at < x.length && x[at] === y[at]) at += 1;
    return `letter ${at} of the text`;
  }

  return {
    async show(settings, section) {
      const { book, groups } = await rows();
      if (!form) build(section, book);
      const b = Number(settings.get("b") ?? Math.min(1, book.series.length - 1));
      Object.assign(form.a, { value: settings.get("a") ?? "0" });
      Object.assign(form.b, { value: String(b) });
      Object.assign(form.suite, { value: settings.get("suite") ?? "" });
      Object.assign(form.what, { value: settings.get("what") ?? (settings.has("a") ? "" : "flips") });
      const a = Number(form.a.value);
      const found = pairs(groups, a, b, form.suite.value);
      document.getElementById("sums").replaceChildren(...sums(book, found, await load("speeds"), a, b));
      const canvas = document.getElementById("plot-speed");
      drawn = found.length ? speeds(book, found, a, b) : null;
      canvas.hidden = !drawn;
      if (drawn) plot(canvas, drawn).catch((error) => Report.say(error.message));
      const listed = found.filter({ flips: flipped, tokens: (pair) => !sameTokens(pair), "": () => true }[form.what.value]);
      document.getElementById("differing").textContent = found.length
        ? `${listed.length} of ${found.length} items${listed.length > MOST ? `, the first ${MOST} shown` : ""}`
        : "the two have no item in common";
      const cells = listed.slice(0, MOST).map(([x, y]) => {
        const where = h("td", {}, "..");
        apart(book, x, y).then((text) => where.replaceChildren(Report.foreign(text)), () => where.replaceChildren("-"));
        return h("tr", {}, h("td", {}, h("a", { href: address_of(x, y) }, `${book.suites[x.suite]} ${x.item}`)), h("td", {}, verdict(x.right)),
          h("td", {}, verdict(y.right)), where, h("td", {}, `${(x.seconds / y.seconds).toFixed(2)}x`));
      });
      const heads = ["Item", "First", "Second", "They first differ at", "Seconds, first / second"];
      document.getElementById("pairs").replaceChildren(h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, ...cells));
    },
    redraw() { if (drawn && !document.getElementById("compare").hidden) plot(document.getElementById("plot-speed"), drawn); },
  };
})();
