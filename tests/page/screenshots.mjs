// Takes the pictures of the documentation: docs/images/page-*.png.

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { startBrowser, until } from "./browser.mjs";
import { startDemo } from "./demo.mjs";

const images = join(dirname(fileURLToPath(import.meta.url)), "../../docs/images");
const only = process.argv[2];
const demo = await startDemo();
const browser = await startBrowser();

async function shot(name, path, options, before = async () => {}) {
  if (only && !name.includes(only)) return;
  const context = await browser.newContext({ reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  await page.goto(demo.url + path);
  await before(page);
  const target = options.selector ? page.locator(options.selector).first() : page;
  await target.screenshot({ path: join(images, `${name}.png`) });
  await context.close();
}

/** Lets the node live on: each look is a point of the history. */
async function live(seconds) {
  for (let passed = 0; passed < seconds; passed += 5) {
    await fetch(`${demo.url}/metrics`).then((it) => it.text());
    await new Promise((resolve) => setTimeout(resolve, 5_000));
  }
}

async function sweep(query) {
  const pass = await (await fetch(`${demo.url}/gc?wait=5m&${query}`, { method: "POST" })).json();
  if (pass.state !== "done") throw new Error("the pass did not end");
}

const WIDE = { viewport: { width: 1600, height: 1000 } };
try {
  await live(Number(process.env.LIVE ?? 60));
  await sweep("max_removals=500&target=containers");
  await live(Number(process.env.LIVE ?? 60));
  await shot("page-light", "/", { ...WIDE, colorScheme: "light" });
  await shot("page-dark", "/", { ...WIDE, colorScheme: "dark" });
  await shot("page-phone", "/", { viewport: { width: 400, height: 850 }, colorScheme: "light", deviceScaleFactor: 2 });
  await shot("page-confirm", "/", { viewport: { width: 1000, height: 700 }, colorScheme: "light" }, async (page) => {
    await page.locator("#remove").click();
    await page.locator("dialog #confirmed").waitFor();
  });
  const { kept } = await demo.get("/api/v1/plan?target=sandboxes");
  const stays = kept.find((it) => it.reason === "has-containers") ?? kept[0];
  const narrow = { viewport: { width: 1000, height: 900 }, colorScheme: "light" };
  await shot("page-explanation", `/?explain=${stays.id}`, { ...narrow, selector: "#explanation" });
  await sweep("target=containers&target=sandboxes&target=logs");
  await shot("page-quarantine", "/", { ...narrow, selector: "#quarantine" });
  await shot("page-pass", "/", { ...narrow, selector: "#pass" });
  const running = fetch(`${demo.url}/gc?wait=5m&target=images`, { method: "POST" });
  await until("the pass runs", async () => (await demo.get("/api/v1/status")).running !== null).catch(() => {});
  await running;
} finally {
  await browser.close();
  await demo.stop();
}
