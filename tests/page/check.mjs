// What a person does with the page, in a real browser: see, search, ask why, dry run, remove, cancel, look back. At both
// widths and in both colour schemes, without JavaScript, and with the keyboard alone. axe finds nothing anywhere.

import assert from "node:assert/strict";
import { WIDE, accessible, fits, onFirstScreen, open, problems, says, startBrowser, text, until } from "./browser.mjs";
import { startDemo } from "./demo.mjs";

const PHONE = { width: 390, height: 844 };

/** A sandbox that stays although it is dead. */
async function stayingSandbox(demo) {
  const { kept } = await demo.get("/api/v1/plan?target=sandboxes");
  return kept.find((it) => it.reason !== "ready" && it.pod);
}

async function personOnCall(browser, demo) {
  const page = await open(browser, demo.url);
  assert.match(await text(page, "h1"), /Not healthy: \d+ exited containers/);
  await onFirstScreen(page, ["h1", "#mode", "#plan-title", "#dry-run", "#remove", "#q", "#pass-title", "#node-title"]);

  const sandbox = await stayingSandbox(demo);
  await page.locator("#q").pressSequentially(sandbox.pod.name);
  await says(page, "#objects-title", new RegExp(sandbox.pod.name));
  await page.locator("#objects td a", { hasText: "sandbox" }).first().click();
  await says(page, "#explanation-title", /Why sandbox .* stays/);
  assert.match(await text(page, "#explanation"), /What would let it go/);
  await accessible(page, "explanation");

  await page.goto(demo.url);
  await page.locator("#dry-run").click();
  await page.waitForURL(/\?pass=/);
  await says(page, "#pass-title", /was a dry run: nothing was removed/);
  assert.match(await text(page, "#pass"), /It would remove [\d,]+ containers/);

  await page.goto(demo.url);
  await page.locator("#remove").click();
  await says(page, "dialog #confirm-title", /Remove [\d,]+ containers.* on node-1\?/);
  await accessible(page, "dialog");
  await page.locator("dialog [value=containers]").uncheck();
  await says(page, "dialog #confirm-title", /Remove [\d,]+ sandboxes.* on node-1\?/);
  const focused = await page.evaluate(() => document.activeElement.value);
  assert.equal(focused, "containers", "a key pressed again must not begin the pass");
  await page.locator("dialog [data-close]").click();
  assert.equal(await page.locator("dialog[open]").count(), 0);
  assert.equal((await demo.get("/api/v1/passes")).passes.length, 1, "only the dry run ran");

  await cancels(page, demo);
  await endsUnseen(page, demo);
  await removes(page, demo);
  await looksBack(page, demo);
  await page.context().close();
}

async function beginPass(page, demo) {
  await page.goto(demo.url);
  await page.locator("#remove").click();
  await page.locator("dialog #confirmed").click();
  await page.waitForURL(/\?pass=/);
}

async function cancels(page, demo) {
  await beginPass(page, demo);
  await says(page, "#pass-title", /A pass removes now/);
  const bar = page.locator('tr[data-target="containers"] progress');
  const began = await bar.evaluate((it) => it.value);
  await until("the bar moves", async () => (await bar.evaluate((it) => it.value).catch(() => began)) > began);
  await clickSlowly(page, "#cancel");
  await says(page, "#pass-title", /was ended early/);
}

/** A person's finger is slow: the page asks anew while it is down. */
async function clickSlowly(page, selector) {
  const box = await page.locator(selector).boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.down();
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await page.waitForTimeout(700);
  await page.mouse.up();
}

/** The pass ends after the page was written and before it listens. */
async function endsUnseen(page, demo) {
  let listen;
  const over = new Promise((resolve) => { listen = resolve; });
  await page.route("**/api/v1/events", async (route) => {
    await over;
    await route.continue();
  });
  await beginPass(page, demo);
  const pass = `/api/v1/passes/${new URL(page.url()).searchParams.get("pass")}`;
  await until("the pass runs", async () => (await demo.get(pass)).state === "running");
  // The page that was written before may say that the pass waits.
  await says(page, "#pass-title", /A pass removes now|Pass waits/);
  await demo.cancel(pass);
  await until("the pass is over", async () => (await demo.get(pass)).state === "done");
  listen();
  await says(page, "#pass-title", /was ended early/);
  await page.unroute("**/api/v1/events");
}

async function removes(page, demo) {
  await beginPass(page, demo);
  const here = page.url();
  await accessible(page, "running pass");
  // Nothing is clicked or loaded by hand: the page hears of the end.
  await says(page, "#pass-title", /did (not do )?all that it planned/);
  assert.equal(page.url(), here);
  await says(page, "#pass .change", /exited containers [\d,]+ [\d,]+ −[\d,]+/);
  await says(page, "h1", /\d+ (exited|dead)|Healthy/);
}

async function looksBack(page, demo) {
  await page.goto(demo.url);
  await says(page, "#passes", /aborted.*planned/);
  await says(page, "#quarantine", /in quarantine until the next try.*network plugin/);
  await page.locator("#evidence tbody a").first().click();
  await says(page, "#shown-title", /^Container /);
  await page.locator("#shown .log, #shown .muted").first().waitFor();
  await accessible(page, "evidence");
}

async function isHonestWhenCutOff(browser, demo) {
  const page = await open(browser, demo.url);
  await page.waitForTimeout(500);
  await page.route("**/api/v1/events", (route) => route.fulfill({ status: 503, body: "full" }));
  // A page that comes back into view asks anew.
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await says(page, "#stale", /Not live since/);
  await page.unroute("**/api/v1/events");
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await until("it is live again", () => page.locator("#stale").isHidden());
  await page.context().close();
}

async function everywhere(browser, demo) {
  const sandbox = await stayingSandbox(demo);
  const [pass] = (await demo.get("/api/v1/passes")).passes;
  const [evidence] = (await demo.get("/api/v1/evidence")).evidence;
  const paths = [
    "/", "/?q=newest&show=stays", `/?explain=${sandbox.id}`, `/?pass=${pass.id}`, "/?confirm=pass",
    `/?evidence=${evidence.number}`, "/?show=wrong", `/?explain=${sandbox.pod.uid}`, "/?doctor=true",
  ];
  for (const colorScheme of ["light", "dark"]) {
    for (const viewport of [WIDE, PHONE]) {
      const page = await open(browser, demo.url, { colorScheme, viewport });
      // Each scheme and each width once: axe takes most of the time.
      const ofAxe = (colorScheme === "light") === (viewport === WIDE);
      for (const path of paths) {
        const where = `${path}, ${colorScheme}, ${viewport.width} px`;
        await page.goto(demo.url + path);
        await fits(page, where);
        if (ofAxe) await accessible(page, where);
      }
      await page.context().close();
    }
  }
  const phone = await open(browser, demo.url, { viewport: PHONE });
  await onFirstScreen(phone, ["h1", "#plan-title", "#remove"]);
  const head = await phone.locator(".objects thead tr").boundingBox();
  assert.ok(head.height < 32, "the heads of the objects are one line each");
  const why = await phone.locator(".objects tbody tr:nth-child(2) td:nth-child(3)").first().boundingBox();
  assert.ok(why.width > PHONE.width / 3, `the reasons have ${why.width} px`);
  await phone.context().close();
}

async function withoutScript(browser, demo) {
  const page = await open(browser, demo.url, { javaScriptEnabled: false });
  await page.locator("#q").fill("quarantined");
  await page.locator("#search button").click();
  await says(page, "#objects-title", /quarantined/);
  await page.goto(demo.url);
  await page.locator("#remove").click();
  await says(page, "#confirm-title", /on node-1\?/);
  for (const target of ["sandboxes", "logs"]) await page.locator(`#confirm [value=${target}]`).uncheck();
  await page.locator("#confirm fieldset button").click();
  await page.waitForURL(/target=containers/);
  // Not counted again: what is ticked is what goes.
  await page.locator("#confirm [value=images]").uncheck();
  await page.locator("#confirmed").click();
  await page.waitForURL(/\?pass=/);
  const [begun] = (await demo.get("/api/v1/passes")).passes;
  assert.deepEqual(Object.keys(begun.targets), ["containers"]);
  // It loads itself again until the pass is over.
  await says(page, "#pass-title", /Pass (did|found)/);
  await page.context().close();
}

async function keyboardOnly(browser, demo) {
  const page = await open(browser, demo.url);
  const focused = () => page.evaluate(() => document.activeElement?.id || document.activeElement?.className);
  const tabTo = async (id) => {
    for (let presses = 0; presses < 60; presses += 1) {
      if ((await focused()) === id) return;
      await page.keyboard.press("Tab");
    }
    assert.fail(`no way to ${id} by Tab`);
  };
  await tabTo("skip");
  await page.keyboard.press("Enter");
  await tabTo("remove");
  await page.keyboard.press("Enter");
  await page.locator("dialog #confirm-title").waitFor();
  assert.equal(await focused(), "confirmed");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.notEqual(outline, "none", "the focus is visible");
  await page.keyboard.press("Escape");
  await until("the focus is back", async () => (await focused()) === "remove");
  await tabTo("q");
  await page.keyboard.type("ready");
  await page.keyboard.press("Enter");
  await says(page, "#objects-title", /ready/);
  await page.context().close();
}

const demo = await startDemo();
const browser = await startBrowser();
try {
  for (const part of [personOnCall, isHonestWhenCutOff, everywhere, withoutScript, keyboardOnly]) {
    const began = Date.now();
    await part(browser, demo);
    console.log(`page: ${part.name}: ${((Date.now() - began) / 1000).toFixed(1)} s`);
  }
  // The refusals of a wrong query and of the events are meant, and Chromium reports them.
  const meant = /400 \(Bad Request\)|503 \(Service Unavailable\)/;
  const unexpected = problems.filter((it) => !meant.test(it));
  assert.deepEqual(unexpected, []);
} finally {
  await browser.close();
  await demo.stop();
}
