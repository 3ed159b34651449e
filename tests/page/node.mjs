// A person sweeps a real node from its page: node.mjs URL CONTAINERS POD. CONTAINERS go; POD's sandbox stays. Prints
// the log of a removed container as the page shows it.

import assert from "node:assert/strict";
import { accessible, open, problems, says, startBrowser } from "./browser.mjs";

const [url, containers, pod] = process.argv.slice(2);
const browser = await startBrowser();
try {
  const page = await open(browser, url);
  await says(page, "#plan-counts", new RegExp(`containers ${containers}: `));
  await page.locator("#q").fill(pod);
  await page.locator("#search button").click();
  await says(page, "#objects-title", new RegExp(pod));
  await page.locator("#objects td a", { hasText: "sandbox" }).first().click();
  await says(page, "#explanation-title", new RegExp(`Why sandbox .*${pod} stays`));
  await accessible(page, "explanation");

  await page.goto(url);
  await page.locator("#remove").click();
  await says(page, "dialog #confirm-title", new RegExp(`Remove ${containers} containers.* on e2e-node\\?`));
  await page.locator("dialog #confirmed").click();
  await page.waitForURL(/\?pass=/);
  await says(page, "#pass-title", /did all that it planned/);
  await says(page, "#pass .change", new RegExp(`exited containers \\d+ \\d+ −${containers}`));
  await accessible(page, "pass");

  await page.goto(url);
  await page.locator("#evidence tbody tr", { hasNotText: "none" }).first().locator("a").click();
  await says(page, "#shown-title", /^Container /);
  await accessible(page, "evidence");
  assert.deepEqual(problems, []);
  const shown = new URL(page.url()).searchParams.get("evidence");
  console.log(JSON.stringify({ shown, log: await page.locator("#shown .log").innerText() }));
} finally {
  await browser.close();
}
