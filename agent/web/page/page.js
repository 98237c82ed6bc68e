// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Asks the agent every two seconds and shows what it says. Text goes in as text, never as markup.
"use strict";

const EVERY_MS = 2000;
const KEPT = 150; // points: five minutes
const COLOURS = { smcd: "#2a78d6", smcr: "#1f9d6b", fallback: "#d98a1f", handshake: "#8a6fd1", bypass: "#c2478d" };
const NAMES = {
  smcd: "SMC-D",
  smcr: "SMC-R",
  fallback: "TCP through the agent",
  handshake: "handshake",
  bypass: "bypass (sockets)",
};

const byId = (id) => document.getElementById(id);

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; count >= 1024 && unit < units.length - 1; unit++) count /= 1024;
  return `${count.toFixed(unit ? 1 : 0)} ${units[unit]}`;
}

// columns: [heading, value of a row, whether it is a number]
function fill(id, rows, columns, nothing) {
  const table = byId(id);
  table.replaceChildren();
  if (!rows.length) {
    const row = table.insertRow();
    row.append(element("td", nothing, "none"));
    return;
  }
  const head = table.createTHead().insertRow();
  for (const [name, , number] of columns) head.append(element("th", name, number ? "number" : ""));
  const body = table.createTBody();
  for (const one of rows) {
    const row = body.insertRow();
    for (const [, value, number] of columns) row.append(element("td", String(value(one)), number ? "number" : ""));
  }
}

function line(canvas, title, colours) {
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--quiet");
  return new Chart(canvas, {
    type: "line",
    data: {
      labels: [],
      datasets: Object.entries(colours).map(([path, colour]) => ({
        label: NAMES[path] || path, path, data: [], borderColor: colour, backgroundColor: colour,
        borderWidth: 2, pointRadius: 0, tension: 0.2,
      })),
    },
    options: {
      animation: false,
      maintainAspectRatio: false,
      interaction: { mode: "index", intersect: false },
      scales: {
        x: { ticks: { maxTicksLimit: 6, color: ink }, grid: { display: false } },
        y: { beginAtZero: true, title: { display: true, text: title, color: ink }, ticks: { color: ink } },
      },
      plugins: { legend: { labels: { color: ink, boxWidth: 12 } } },
    },
  });
}

function add(chart, time, values) {
  chart.data.labels.push(time);
  if (chart.data.labels.length > KEPT) chart.data.labels.shift();
  for (const set of chart.data.datasets) {
    set.data.push(values[set.path] || 0);
    if (set.data.length > KEPT) set.data.shift();
  }
  chart.update();
}

function sums(status) {
  const moved = {};
  for (const one of status.traffic) moved[one.path] = one.sent + one.received;
  let fallbacks = 0;
  for (const one of status.totals) if (one.path === "fallback") fallbacks += one.count;
  return { moved, fallbacks, when: performance.now() };
}

let charts = null;
let before = null;

function draw(status) {
  const now = sums(status);
  const time = new Date().toLocaleTimeString();
  if (before) {
    const seconds = (now.when - before.when) / 1000;
    const rates = {};
    for (const path of ["smcd", "smcr", "bypass", "fallback"]) {
      rates[path] = Math.max(0, (now.moved[path] || 0) - (before.moved[path] || 0)) / seconds / 1048576;
    }
    add(charts.throughput, time, rates);
    add(charts.fallbacks, time, { fallback: (Math.max(0, now.fallbacks - before.fallbacks) / seconds) * 60 });
  }
  before = now;
}

function tiles(status) {
  const counts = { ...status.live };
  if (status.bypass.available) counts.bypass = status.bypass.sockets.members;
  byId("paths").replaceChildren(
    ...Object.entries(counts).map(([path, count]) => {
      const tile = element("div", undefined, "tile");
      tile.style.borderLeftColor = COLOURS[path] || "";
      tile.append(element("b", count), element("span", NAMES[path] || path));
      return tile;
    }),
  );
}

function state(status) {
  const agent = status.agent;
  byId("host").textContent = `${agent.host_name}, version ${agent.version}`;
  byId("state").textContent = agent.serving
    ? "serving"
    : `not serving: ${agent.obstacle}. New connections are plain TCP.`;
  byId("state").className = agent.serving ? "" : "bad";
}

function show(status) {
  state(status);
  tiles(status);
  draw(status);
  fill("applications", status.applications, [
    ["Pod or control group", (a) => a.name],
    ["SMC-D", (a) => a.smcd, true],
    ["SMC-R", (a) => a.smcr, true],
    ["Bypass", (a) => a.bypass, true],
    ["TCP through the agent", (a) => a.fallback, true],
    ["Sent", (a) => bytes(a.sent), true],
    ["Received", (a) => bytes(a.received), true],
  ], "No connection is in the agent now.");
  const others = status.totals.filter((one) => one.reason.name !== "none" && one.path !== "broken");
  others.sort((a, b) => b.count - a.count);
  fill("reasons", others, [
    ["Reason", (t) => t.reason.name],
    ["Code", (t) => t.reason.code],
    ["Meaning", (t) => t.reason.text],
    ["Count", (t) => t.count, true],
  ], "No connection fell back or was refused.");
  const groups = status.groups.smcd
    .map((g) => ({ kind: "SMC-D", peer: g.host_name || g.peer_gid, type: "", connections: g.connections, links: "" }))
    .concat(status.groups.smcr.map((g) => ({
      kind: "SMC-R", peer: g.host_name || g.peer_id, type: g.type, connections: g.connections,
      links: g.links.map((l) => `${l.device}/${l.port} ${l.state}`).join(", "),
    })));
  fill("groups", groups, [
    ["Kind", (g) => g.kind],
    ["Peer", (g) => g.peer],
    ["Type", (g) => g.type],
    ["Links", (g) => g.links],
    ["Connections", (g) => g.connections, true],
  ], "There is no link group.");
  const silent = status.namespaces.filter((n) => !n.ipv4 || !n.ipv6);
  fill("namespaces", silent, [
    ["Inode", (n) => n.inode],
    ["IPv4", (n) => n.ipv4_obstacle || "served"],
    ["IPv6", (n) => n.ipv6_obstacle || "served"],
  ], `All ${status.namespaces.length} are served.`);
}

async function ask() {
  try {
    const answer = await fetch("api/overview", { cache: "no-store" });
    if (!answer.ok) throw new Error(`the agent answers ${answer.status}`);
    show(await answer.json());
  } catch (problem) {
    byId("state").textContent = `no answer from the agent: ${problem.message}`;
    byId("state").className = "bad";
  }
  setTimeout(ask, EVERY_MS);
}

charts = {
  throughput: line(byId("throughput"), "MiB/s", {
    smcd: COLOURS.smcd, smcr: COLOURS.smcr, bypass: COLOURS.bypass, fallback: COLOURS.fallback,
  }),
  fallbacks: line(byId("fallbacks"), "a minute", { fallback: COLOURS.fallback }),
};
ask();
