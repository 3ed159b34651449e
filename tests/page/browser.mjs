// A browser of the system, and what a person sees and does in it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
// tests/page/setup.sh installs them there.
const installed = createRequire(join(root, "target/page/package.json"));
const { chromium } = installed("playwright-core");
const axe = readFileSync(installed.resolve("axe-core/axe.min.js"), "utf8");

export const WIDE = { width: 1600, height: 1000 };
export const problems = [];

export async function open(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: WIDE, reducedMotion: "reduce", ...options });
  await context.addInitScript({ content: axe });
  const page = await context.newPage();
  page.setDefaultTimeout(120_000);
  page.on("pageerror", (error) => problems.push(`${page.url()}: ${error}`));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) problems.push(`${page.url()}: ${message.text()}`);
  });
  await page.goto(url);
  return page;
}

export async function accessible(page, where) {
  const found = await page.evaluate(() => globalThis.axe.run());
  for (const it of found.violations) {
    problems.push(`${where}: ${it.id}: ${it.help}\n  ${it.nodes.map((node) => node.html).join("\n  ")}`);
  }
}

export async function fits(page, where) {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (over > 0) problems.push(`${where}: ${over} px too wide`);
}

/** What must be read without scrolling. */
export async function onFirstScreen(page, selectors) {
  for (const selector of selectors) {
    const box = await page.locator(selector).first().boundingBox();
    const height = page.viewportSize().height;
    assert.ok(box && box.y >= 0 && box.y + box.height <= height, `${selector} is not on the first screen: ${box?.y}`);
  }
}

export async function text(page, selector) {
  return (await page.locator(selector).first().innerText()).replace(/\s+/g, " ");
}

export async function says(page, selector, words) {
  let last = "";
  await until(() => `${selector} says ${words}, not "${last}"`, async () => {
    const found = await page.locator(selector).count();
    last = found > 0 ? await text(page, selector).catch(() => "") : "";
    return words.test(last);
  });
}

/** Starts the system's Chromium. As root it has no sandbox; it only opens crisweep's page. */
export function startBrowser() {
  const args = process.getuid() === 0 ? ["--no-sandbox"] : [];
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args, headless: true });
}

export async function until(what, holds, patience = 300_000) {
  const end = Date.now() + patience;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`waited too long until ${what instanceof Function ? what() : what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
