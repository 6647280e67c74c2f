// The list of items: filters, a search in all texts, and pages of a hundred.
"use strict";

Report.pages.items = (() => {
  const { h, rows, rowAt, row, file, verdict, address, go, say } = Report;
  const PAGE = 100;
  const ONLY = {
    "": "all items", right: "right", wrong: "wrong", unscored: "not scored", flips: "flips against LLaDA",
    lost: "lost against LLaDA", gained: "gained on LLaDA", slow: "slow: the slowest tenth", rejected: "rejected much: the least accepted tenth",
  };
  const SORTS = { "": "in order", slow: "slowest first", calls: "most calls first", rejected: "least accepted first" };
  let form = null;
  let search = 0; // the number of the search that goes on; an older one ends when it sees a newer

  const accepted = (each) => (each.proposed ? each.accepted / each.proposed : null);
  // The number that one in ten of the values, and one at least, does not exceed.
  const lowestTenth = (values) => values.sort((a, b) => a - b)[Math.max(1, Math.floor(values.length / 10)) - 1];

  function keeps(only, each, reference, limits) {
    const flip = reference && reference.right !== "-" && each.right !== "-" && reference.right !== each.right;
    switch (only) {
      case "right": return each.right === "1";
      case "wrong": return each.right === "0";
      case "unscored": return each.right === "-";
      case "flips": return flip;
      case "lost": return flip && each.right === "0";
      case "gained": return flip && each.right === "1";
      case "slow": return each.seconds >= limits.slow;
      case "rejected": return accepted(each) !== null && accepted(each) <= limits.rejected;
      default: return true;
    }
  }

  function select(book, groups, wanted) {
    const found = [];
    for (const group of groups.values()) {
      if (wanted.suite !== "" && group.suite !== Number(wanted.suite)) continue;
      if (wanted.series !== "" && group.series !== Number(wanted.series)) continue;
      const own = group.item.map((_, index) => rowAt(group, index));
      const reference = book.series[group.series].reference;
      const limits = {
        slow: -lowestTenth(own.map((each) => -each.seconds)),
        rejected: lowestTenth(own.map(accepted).filter((share) => share !== null)),
      };
      for (const each of own) {
        each.reference = reference === null || reference === group.series ? null : row(groups, group.suite, reference, each.item);
        if (keeps(wanted.only, each, each.reference, limits)) found.push(each);
      }
    }
    const by = { slow: (e) => -e.seconds, calls: (e) => -e.forwards, rejected: (e) => accepted(e) ?? 2 }[wanted.sort];
    return by ? found.sort((a, b) => by(a) - by(b)) : found.sort((a, b) => a.suite - b.suite || a.item - b.item || a.series - b.series);
  }

  // The text files are read one after the other; each is kept by the page once it was loaded.
  async function searched(book, found, text, mine) {
    const wanted = text.toLowerCase();
    const files = new Map();
    for (const each of found) {
      const name = `${each.suite} ${Math.floor(each.item / book.itemsAFile)}`;
      files.set(name, [...(files.get(name) ?? []), each]);
    }
    const hits = new Set();
    let done = 0;
    for (const own of files.values()) {
      const content = await file(book, "text", own[0].suite, own[0].item);
      if (mine !== search) return null;
      for (const each of own) {
        const entry = content[each.item];
        const said = entry?.said[each.series];
        const all = [entry?.prompt, entry?.gold, said?.[0], said?.[1]];
        if (all.some((part) => part?.toLowerCase().includes(wanted))) hits.add(each);
      }
      done += 1;
      if (done % 20 === 0) say(`searched ${done} of ${files.size} files`);
    }
    return found.filter((each) => hits.has(each));
  }

  function build(section, book) {
    const options = (pairs) => pairs.map(([value, text]) => h("option", { value }, text));
    const field = (label, control) => h("label", {}, label, control);
    const changed = () => go("items", { ...values(), page: "" });
    const suites = [["", "all suites"], ...book.suites.map((title, number) => [number, title])];
    const series = [["", "all methods"], ...book.series.map((each, number) => [number, each.name])];
    form = {
      suite: h("select", { name: "suite", onchange: changed }, ...options(suites)),
      series: h("select", { name: "series", onchange: changed }, ...options(series)),
      only: h("select", { name: "only", onchange: changed }, ...options(Object.entries(ONLY))),
      sort: h("select", { name: "sort", onchange: changed }, ...options(Object.entries(SORTS))),
      text: h("input", { type: "search", name: "text", onchange: changed }),
    };
    const submit = (event) => { event.preventDefault(); changed(); };
    section.append(
      h("form", { class: "filters", onsubmit: submit }, field("Suite", form.suite), field("Method", form.series),
        field("Show", form.only), field("Order", form.sort), field("Text", form.text)),
      h("p", { id: "count", role: "status" }),
      h("div", { class: "wide" }, h("table", { id: "list" })),
      h("p", { id: "paging" }),
    );
  }

  const values = () => Object.fromEntries(Object.entries(form).map(([name, control]) => [name, control.value]));
  const number = (value, digits = 0) => (value === null ? "-" : value.toFixed(digits));

  const DISTURBED = "timed while other programs had the cores";

  // What older records do not have: a heading, the field of the rows' groups, and the text of a row.
  const share = (each) => (each.draws === null || !each.seconds ? null : (100 * each.draws) / each.seconds);
  const scaled = (value, unit) => (value === null ? null : value / unit);
  const COSTS = [
    ["Draws, %", "draw_seconds", (each) => number(share(each), 1)],
    ["TFLOP", "flop", (each) => number(scaled(each.flop, 1e12), 4)],
    ["Peak, GiB", "peak_bytes", (each) => number(scaled(each.peak, 2 ** 30), 2)],
    ["Joules", "joules", (each) => number(each.joules, 1)],
  ];

  function line(book, each, costs) {
    const shown = each.reference === null ? each.series : `${book.series[each.series].reference},${each.series}`;
    const link = address("item", { suite: each.suite, item: each.item, series: shown });
    const rate = accepted(each);
    const flipped = each.reference && each.reference.right !== "-" && each.right !== "-" && each.reference.right !== each.right;
    return h("tr", {},
      h("td", {}, h("a", { href: link }, `${book.suites[each.suite]} ${each.item}`)),
      h("td", {}, book.series[each.series].name),
      h("td", {}, verdict(each.right), flipped ? h("span", { class: "flip" }, each.right === "1" ? " gained" : " lost") : null),
      h("td", { title: each.disturbed ? DISTURBED : "" }, number(each.seconds, 3), each.disturbed ? " *" : ""),
      h("td", {}, number(each.forwards)), h("td", {}, number(each.tokens)),
      h("td", {}, rate === null ? "-" : `${Math.round(100 * rate)}%`),
      ...costs.map(([, , text]) => h("td", {}, text(each))));
  }

  return {
    async show(settings, section) {
      const { book, groups } = await rows();
      if (!form) build(section, book);
      for (const [name, control] of Object.entries(form)) control.value = settings.get(name) ?? "";
      const mine = ++search;
      let found = select(book, groups, values());
      if (form.text.value) {
        found = await searched(book, found, form.text.value, mine);
        if (found === null) return;
        say("");
      }
      const page = Math.min(Number(settings.get("page") ?? 0), Math.max(0, Math.ceil(found.length / PAGE) - 1));
      const shown = found.slice(page * PAGE, (page + 1) * PAGE);
      document.getElementById("count").textContent =
        `${found.length} responses${found.length > PAGE ? `, ${page * PAGE + 1} to ${page * PAGE + shown.length}` : ""}`;
      const costs = COSTS.filter(([, field]) => [...groups.values()].some((group) => field in group));
      const heads = ["Item", "Method", "Verdict", "Seconds", "Calls", "Tokens", "Accepted", ...costs.map(([head]) => head)];
      document.getElementById("list").replaceChildren(
        h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
        h("tbody", {}, ...shown.map((each) => line(book, each, costs))));
      const turn = (to, text) => h("a", { href: address("items", { ...values(), page: to || "" }) }, text);
      document.getElementById("paging").replaceChildren(
        ...(page > 0 ? [turn(page - 1, "earlier")] : []), " ",
        ...((page + 1) * PAGE < found.length ? [turn(page + 1, "more")] : []));
    },
    leave() { search += 1; },
  };
})();
