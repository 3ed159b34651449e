// Takes the pictures of the README: docs/images/page-light.png and page-dark.png.

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { startBrowser } from "./browser.mjs";
import { startDemo } from "./demo.mjs";

const images = join(dirname(fileURLToPath(import.meta.url)), "../../docs/images");
const demo = await startDemo();
const browser = await startBrowser();

async function shot(name, colorScheme) {
  const viewport = { width: 1600, height: 1000 };
  const context = await browser.newContext({ reducedMotion: "reduce", viewport, colorScheme });
  const page = await context.newPage();
  await page.goto(demo.url);
  await page.screenshot({ path: join(images, `${name}.png`) });
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

try {
  await live(Number(process.env.LIVE ?? 60));
  await sweep("max_removals=500&target=containers");
  await live(Number(process.env.LIVE ?? 60));
  await shot("page-light", "light");
  await shot("page-dark", "dark");
} finally {
  await browser.close();
  await demo.stop();
}
